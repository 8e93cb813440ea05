"""A folder of our own, told from somebody else's by the one file that always stands in it."""

from __future__ import annotations

from pathlib import Path

from endtask.errors import InputError


def make_own_folder(folder: Path, mark: str) -> None:
    """Make the folder; one that holds other things and not the file `mark` is left alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=folder, key="output_dir") from None
    if names and mark not in names:
        raise InputError(
            f"the folder holds other things ({names[0]}) and was left as it is",
            path=folder,
            key="output_dir",
            hint="choose another --output",
        )
