"""Unpack a bundle into a temporary folder, check every file, and rename the folder when it is complete."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from endtask.bundle.archive import HEADER, ArchiveReader, Header, open_archive, parse_header
from endtask.errors import InputError
from endtask.io.atomic import link_or_copy
from endtask.io.compression import without_compression
from endtask.io.processes import run_lock
from endtask.io.stage_folder import package_version
from endtask.progress import warn

_LARGEST_HEADER = 1 << 26
# Smaller duplicates are copied: a link would save little, and an edit of one file would change all of them.
_SMALLEST_LINK = 1 << 13
_DISK_BLOCK = 1 << 12


def unbundle(file: str | Path, folder: str | Path | None = None) -> Path:
    """Unpack a bundle into a new folder, by default `runs/NAME`, and return it; do nothing if it was unpacked before.

    The folder appears only if every path and hash in the file is right and the process is not killed.
    """
    file = Path(file)
    folder = Path(folder) if folder is not None else default_folder(file)
    content, header = _read_header(file)
    with _os_errors_as_input_errors(folder):
        target = Path(os.path.realpath(folder))  # resolves links and `.`
        if not _was_unpacked(target, content, file):
            _unpack(file, target, header, content)
    version = package_version()
    if header.version != version:
        warn(f"the bundle was made by endtask {header.version}; this is {version}")
    return folder


def bundle_header(file: Path) -> Header:
    """Return the header of a bundle without reading the other files."""
    return _read_header(file)[1]


def default_folder(file: Path) -> Path:
    """Return the default folder for a bundle.

    >>> default_folder(Path("from/there/chemprot.tar.zst")).as_posix()
    'runs/chemprot'
    """
    return Path("runs", without_compression(file.name).removesuffix(".tar") or "bundle")


def _read_header(file: Path) -> tuple[bytes, Header]:
    with open_archive(file) as archive:
        return _first_member(archive, file)


def _first_member(archive: ArchiveReader, file: Path) -> tuple[bytes, Header]:
    name, size = next(archive.members(), ("", 0))
    if name != HEADER or size > _LARGEST_HEADER:
        raise archive.damaged("not a bundle, or a damaged one")
    content = b"".join(archive.content(size))
    return content, parse_header(content, str(file))


def _was_unpacked(folder: Path, content: bytes, file: Path) -> bool:
    """Return whether the bundle was unpacked into the folder. Raise `InputError` for a folder with other content."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    if (folder / HEADER).is_file():
        if (folder / HEADER).read_bytes() == content:
            return True
        message = "another bundle was unpacked here"
    else:
        message = "the folder contains files that are not from this bundle" if folder.is_dir() else "is a file"
    raise InputError(message, path=folder, hint=f"choose another --output for {file.name}; nothing was touched")


@contextmanager
def _os_errors_as_input_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot unpack here: {error.strerror or error}", path=folder, hint="choose another --output"
        ) from None


def _check_target(folder: Path, parent: Path) -> None:
    hint = "choose another --output"
    if not parent.is_dir():
        raise InputError("is a file, and no folder can be made below it", path=parent, hint=hint)
    if folder.exists() and folder.samefile(Path.cwd()):
        raise InputError("cannot unpack into the current folder", path=folder, hint=hint)


def _unpack(file: Path, folder: Path, header: Header, content: bytes) -> None:
    # Unpack next to the first missing folder: on the same disk, and a failure leaves no new parent folders.
    parent = next(parent for parent in folder.parents if parent.exists())
    _check_target(folder, parent)
    temporary = parent / f".{folder.name}.unpacking"
    unpacked = temporary / "unpacked"
    _check_disk_space(parent, header, file)
    temporary.mkdir(exist_ok=True)
    with run_lock(temporary):
        try:
            shutil.rmtree(unpacked, ignore_errors=True)  # left by a killed process
            _write_files(file, unpacked, header)
            _write(unpacked / HEADER, content)
            if not _was_unpacked(folder, content, file):  # another process may have been faster
                folder.parent.mkdir(parents=True, exist_ok=True)
                os.rename(unpacked, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _check_disk_space(parent: Path, header: Header, file: Path) -> None:
    copied = {path for path, entry in header.files.items() if entry.bytes < _SMALLEST_LINK}
    sizes = [header.files[path].bytes for path in copied.union(header.members)]
    needed, free = sum(size + -size % _DISK_BLOCK for size in sizes), shutil.disk_usage(parent).free
    if needed > free:
        raise InputError(f"needs {needed / 1e6:,.0f} MB unpacked; {parent} has {free / 1e6:,.0f} MB free", path=file)


def _write_files(file: Path, folder: Path, header: Header) -> None:
    expected = header.members
    with open_archive(file) as archive:
        _first_member(archive, file)
        for name, size in archive.members():
            if name not in expected or size != header.files[name].bytes:
                raise archive.damaged(f"{name!r} does not match the bundle's header")
            _write_member(archive, folder / name, size, header.files[name].sha256)
            for duplicate in expected.pop(name):
                _duplicate(folder / name, folder / duplicate)
        if expected:
            raise archive.damaged(f"{next(iter(expected))!r} is missing")


def _write_member(archive: ArchiveReader, path: Path, size: int, sha256: str) -> None:
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as target:
        for chunk in archive.content(size):
            digest.update(chunk)
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != sha256:
        raise archive.damaged(f"{path.name!r} does not match the bundle's header")


def _duplicate(path: Path, target: Path) -> None:
    """Copy a file, or create a hard link if the file is large and the disk supports it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size >= _SMALLEST_LINK:
        link_or_copy(path, target)
    else:
        shutil.copyfile(path, target)


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())
