"""Unpack a bundle: checked file by file, aside, and moved into place when it is whole."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from endtask.bundle.archive import ArchiveReader, open_archive
from endtask.bundle.header import HEADER, Header, parse_header
from endtask.errors import InputError
from endtask.io.atomic import link_or_copy
from endtask.io.compression import without_compression
from endtask.io.lock import run_lock
from endtask.io.stage_folder import own_version
from endtask.progress import warn

_LARGEST_HEADER = 1 << 26
# What is smaller is copied: a link would save nothing, and whoever edits one file would edit them all.
_SMALLEST_LINK = 1 << 13
_DISK_BLOCK = 1 << 12


def unbundle(file: str | Path, folder: str | Path | None = None) -> Path:
    """Unpack a bundle into a new folder, by default `runs/NAME`, and return that; one unpacked before is left as it is.

    Every path and hash in the file is checked; where something is wrong, or the process is killed, no folder appears.
    """
    file = Path(file)
    folder = Path(folder) if folder is not None else default_folder(file)
    content, header = _read_header(file)
    with _failures_told(folder):
        place = Path(os.path.realpath(folder))  # what a link leads to, and a name for `.`
        if not _is_there(place, content, file):
            _unpack(file, place, header, content)
    made = own_version()
    if header.version != made:
        warn(f"the bundle was made by endtask {header.version}; this is {made}")
    return folder


def bundle_header(file: Path) -> Header:
    """What a bundle says of itself; nothing else of it is read."""
    return _read_header(file)[1]


def default_folder(file: Path) -> Path:
    """Where a bundle goes if nobody says.

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


def _is_there(folder: Path, content: bytes, file: Path) -> bool:
    """Whether the bundle was unpacked here before; a folder with anything else in it is refused."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    if (folder / HEADER).is_file():
        if (folder / HEADER).read_bytes() == content:
            return True
        what = "another bundle was unpacked here"
    else:
        what = "the folder holds something that did not come out of this bundle" if folder.is_dir() else "is a file"
    raise InputError(what, path=folder, hint=f"choose another --output for {file.name}; nothing was touched")


@contextmanager
def _failures_told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot be unpacked here: {error.strerror or error}", path=folder, hint="choose another --output"
        ) from None


def _refuse_place(folder: Path, above: Path) -> None:
    if not above.is_dir():
        raise InputError("is a file, and no folder can be made below it", path=above, hint="choose another --output")
    if folder.exists() and folder.samefile(Path.cwd()):
        what = "the folder you are in cannot be exchanged for the one that is unpacked"
        raise InputError(what, path=folder, hint="choose another --output")


def _unpack(file: Path, folder: Path, header: Header, content: bytes) -> None:
    # Beside the nearest folder that is there, so that a failure leaves none, and on the same disk.
    above = next(parent for parent in folder.parents if parent.exists())
    _refuse_place(folder, above)
    aside = above / f".{folder.name}.unpacking"
    whole = aside / "whole"
    _check_disk_space(above, header, file)
    aside.mkdir(exist_ok=True)
    with run_lock(aside):
        try:
            shutil.rmtree(whole, ignore_errors=True)  # what a process left that was killed
            _write_files(file, whole, header)
            _write(whole / HEADER, content)
            if not _is_there(folder, content, file):  # another process may have come first
                folder.parent.mkdir(parents=True, exist_ok=True)
                os.rename(whole, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _check_disk_space(above: Path, header: Header, file: Path) -> None:
    copied = {path for path, entry in header.files.items() if entry.bytes < _SMALLEST_LINK}
    sizes = [header.files[path].bytes for path in copied.union(header.members)]
    needed, free = sum(size + -size % _DISK_BLOCK for size in sizes), shutil.disk_usage(above).free
    if needed > free:
        raise InputError(f"unpacked it takes {needed / 1e6:,.0f} MB; {above} has {free / 1e6:,.0f} MB left", path=file)


def _write_files(file: Path, folder: Path, header: Header) -> None:
    expected = header.members
    with open_archive(file) as archive:
        _first_member(archive, file)
        for name, size in archive.members():
            if name not in expected or size != header.files[name].bytes:
                raise archive.damaged(f"{name!r} is not what the bundle's list says")
            _write_member(archive, folder / name, size, header.files[name].sha256)
            for other in expected.pop(name):
                _repeat(folder / name, folder / other)
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
        raise archive.damaged(f"{path.name!r} is not what the bundle's list says")


def _repeat(path: Path, other: Path) -> None:
    """The same file at another place: a hard link again, where that is worth it and the disk has them."""
    other.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size >= _SMALLEST_LINK:
        link_or_copy(path, other)
    else:
        shutil.copyfile(path, other)


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())
