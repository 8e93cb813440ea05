"""Write a bundle: everything that training needs of prepared runs, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from endtask.bundle.archive import SUFFIX
from endtask.bundle.contents import (
    LAST_STAGE,
    Item,
    Kind,
    find_runs,
    finished_stages,
    items_beside,
    open_run,
    run_items,
)
from endtask.bundle.copies import Outside
from endtask.bundle.header import MOST_FILES, Header, is_safe
from endtask.bundle.limited import Hashes, write_items
from endtask.bundle.selection import with_plain_selections
from endtask.bundle.unpack import bundle_header
from endtask.config import SizeBudget
from endtask.errors import InputError
from endtask.io.stage_folder import own_version
from endtask.pipeline.run import Run
from endtask.progress import warn


@dataclass(frozen=True)
class Bundle:
    """A bundle as it was written; `runs` are their folders in it, `parts` its compressed bytes by what they are."""

    file: Path
    bytes: int
    kind: Kind
    runs: tuple[str, ...]
    parts: dict[str, int]


def write_bundle(
    folder: str | Path,
    file: str | Path | None = None,
    *,
    kind: Kind = "tokens",
    max_size: SizeBudget | None = None,
) -> Bundle:
    """Pack the prepared run in a folder, or all runs below it, into one file, by default `FOLDER.tar.zst`.

    With kind `tokens` runs travel up to the stage pack, without the selection's texts; with kind `text` up to select.
    A file that would be larger than `max_size`, by default the setting `bundle_size`, is not written.
    """
    folder = Path(folder)
    file = Path(file) if file is not None else default_file(folder)
    _check_target(file)
    runs = [open_run(place) for place in find_runs(folder)]
    items = _all_items(folder, runs, kind)
    _check_names(folder, items)
    names = tuple(run.folder.relative_to(folder).as_posix() for run in runs)
    with TemporaryDirectory() as scratch:
        items = with_plain_selections(items, Path(scratch))
        hashes = Hashes()
        header = Header(own_version(), kind, names, {item.path: hashes.of(item) for item in items})
        parts = write_items(file, header, items, max_size or runs[0].settings.bundle_size)
    return Bundle(file, file.stat().st_size, kind, names, parts)


def default_file(folder: Path) -> Path:
    """The bundle beside the folder that it is made of.

    >>> default_file(Path("runs/chemprot")).as_posix()
    'runs/chemprot.tar.zst'
    """
    folder = folder if folder.name else folder.absolute()
    return folder.with_name(f"{folder.name}.tar{SUFFIX}")


def _all_items(folder: Path, runs: Sequence[Run], kind: Kind) -> list[Item]:
    is_one_run = runs[0].folder == folder
    items = [] if is_one_run else list(items_beside(folder, [run.folder for run in runs]))
    outside, behind = Outside(), []
    for run in runs:
        outside.add(run)
        stages = finished_stages(run, kind)
        if not stages or stages[-1].name != LAST_STAGE[kind]:
            behind.append(run)
        items += run_items(run, stages, "" if is_one_run else f"{run.folder.relative_to(folder).as_posix()}/")
    _tell_unprepared(behind, kind, all_of_them=len(behind) == len(runs))
    return [*items, *outside.all_items()]


def _check_names(folder: Path, items: Sequence[Item]) -> None:
    """Whoever unpacks would refuse them; better said here, before hours of transfer."""
    wrong = next((item.path for item in items if not is_safe(item.path)), None)
    if wrong is not None:
        raise InputError(f"{wrong!r} cannot be named in a bundle", path=folder, hint="rename it: letters and digits do")
    if len(items) > MOST_FILES:
        raise InputError(f"holds {len(items):,} files, more than the {MOST_FILES:,} of a bundle", path=folder)


def _tell_unprepared(runs: Sequence[Run], kind: Kind, *, all_of_them: bool) -> None:
    """Refuse where no run is far enough; of several, those that are not are named and travel as far as they are."""
    for run in runs:
        error = _unprepared(run, LAST_STAGE[kind])
        if all_of_them:
            raise error
        warn(f"{error}; it travels as far as it is")


def _unprepared(run: Run, last: str) -> InputError:
    clash = run.first_clash()
    if clash is None:
        hint = f"endtask run {run.folder} --until {last}"
        return InputError(f"the stage {last} has not finished", path=run.folder, hint=hint)
    hint = f"endtask run {run.folder} --from {clash} --until {last}"
    return InputError(f"settings or data changed since the stage {clash} was done", path=run.folder, hint=hint)


def _check_target(file: Path) -> None:
    if file.suffix.lower() != SUFFIX:
        raise InputError("not the name of a bundle", path=file, hint=f"let it end in .tar{SUFFIX}")
    if not file.parent.is_dir():
        raise InputError("no such folder", path=file.parent)
    if not file.exists() and not file.is_symlink():
        return
    try:
        bundle_header(file)
    except InputError:
        hint = "choose another --output"
        raise InputError("the file exists, is no bundle and was left as it is", path=file, hint=hint) from None
