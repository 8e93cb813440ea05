"""Local copies of files at addresses such as s3://bucket/folder, by fsspec (extra `cloud`)."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any

from endtask.errors import InputError
from endtask.io.addresses import redacted
from endtask.io.atomic import atomic_file, disk_errors_named, link_or_copy
from endtask.io.input_files import Unskippable, import_extra
from endtask.progress import Advance, bar

_CHUNK = 1 << 20
_MAGIC = re.compile(r"[*?\[]")
_CONTENT = ("ETag", "etag", "md5Hash", "md5", "crc32c")
_TIMES = ("versionId", "mtime", "LastModified", "last_modified", "updated", "created")
"""What file systems say about the version of a file: hashes of its content, or else its times."""
_CHANGED_HINT = "what was read of other files is safe; the same command starts from there"
_MOST_OF_DISK = 0.9
"""A copy is deleted after it was read where the disk of the copies is fuller."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at an address: its name relative to the address, its size, and a key that changes with its version.

    Without `has_version` the file system says nothing about versions.
    """

    address: str
    label: str
    size: int | None
    key: str
    has_version: bool = True

    @property
    def copy(self) -> Path:
        """The path of its local copy, whether it is there or not."""
        return cache_folder() / self.key / PurePosixPath(self.label).name


@contextmanager
def file_system(address: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of an address and the path in it; an error in the block becomes a line with the address."""
    fsspec = import_extra("fsspec.core", "cloud", redacted(address), purpose="access to the cloud")
    try:
        yield fsspec.url_to_fs(address)
    except ImportError as error:  # fsspec names the package of a file system: "Install s3fs to access S3"
        raise Unskippable(str(error).splitlines()[0], path=redacted(address)) from None
    except InputError:
        raise
    except Exception as error:  # each file system has errors of its own
        raise _unreachable(address, error) from None


def copy_bytes(source: Any, target: Any, advance: Advance) -> None:
    """Copy an open file to another one."""
    while content := source.read(_CHUNK):
        target.write(content)
        advance(len(content))


def download(system: Any, remote: str, target: Path, advance: Advance) -> None:
    """Write a file of a file system to the disk; a full disk is named, not the address."""
    with system.open(remote, "rb") as source, disk_errors_named(target.parent), open(target, "wb") as copy:
        copy_bytes(source, copy, advance)


def list_files(address: str) -> list[RemoteFile]:
    """Return the files at an address (of a file, a folder or a glob), sorted by name; downloads nothing."""
    with file_system(address) as (system, root):
        system.invalidate_cache()
        paths, base = _paths_at(system, root)
        return [_remote_file(system, path, base) for path in sorted(paths)]


def local_copy(file: RemoteFile) -> Path:
    """Return the path of a file's copy in the cache folder; downloads it unless this version of it is there."""
    path = file.copy
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_system(file.address) as (system, remote):
        try:
            _download(system, remote, file)
        except FileNotFoundError:
            message = "vanished since its folder was listed"
            raise InputError(message, path=redacted(file.address), hint=_CHANGED_HINT) from None
    return path


def _download(system: Any, remote: str, file: RemoteFile) -> None:
    with atomic_file(file.copy) as aside, bar(f"download {redacted(file.address)}", file.size, unit="B") as advance:
        download(system, remote, aside, advance)
        _check_size(file, aside)
        _check_version(system, remote, file)


@contextmanager
def open_copy(file: RemoteFile) -> Iterator[Path]:
    """Yield the path of a local copy; delete it afterwards if the disk is nearly full."""
    path = local_copy(file)
    try:
        yield path
    finally:
        disk = shutil.disk_usage(path.parent)
        if disk.used > _MOST_OF_DISK * disk.total:
            path.unlink(missing_ok=True)


def local_tree(address: str) -> Path:
    """Return a local copy of a file, or of a folder with all its files."""
    files = list_files(address)
    if not files:
        raise InputError("no file", path=redacted(address))
    if len(files) == 1 and files[0].address.rstrip("/") == address.rstrip("/"):
        return local_copy(files[0])
    key = blake2b("".join(file.key for file in files).encode(), digest_size=12).hexdigest()
    folder = cache_folder() / key / PurePosixPath(address).name
    for file in files:
        if not (folder / file.label).is_file():
            (folder / file.label).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(local_copy(file), folder / file.label)
    return folder


def cache_folder() -> Path:
    """Return the folder of the copies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "endtask" / "downloads"


def _paths_at(system: Any, root: str) -> tuple[list[str], str]:
    """Return the paths of the files, and the folder that their labels are relative to."""
    if _MAGIC.search(root):
        base = root[: _MAGIC.search(root).start()].rpartition("/")[0]  # type: ignore[union-attr]
        return [path for path in system.glob(root) if not _is_hidden(path, base) and system.isfile(path)], base
    # A web server lists no folders, and asking it downloads the page.
    if PurePosixPath(root).suffix or not system.isdir(root):
        if not system.exists(root):
            raise InputError("no such file", path=redacted(system.unstrip_protocol(root)))
        return [root], root.rpartition("/")[0]
    return [path for path in system.find(root) if not _is_hidden(path, root)], root


def _is_hidden(path: str, base: str) -> bool:
    return any(part.startswith(".") for part in path.removeprefix(base).split("/"))


def _remote_file(system: Any, path: str, base: str) -> RemoteFile:
    info = system.info(path)
    address = system.unstrip_protocol(path)
    key, has_version = _key_of(address, info)
    return RemoteFile(address, path.removeprefix(base).lstrip("/"), info.get("size"), key, has_version)


def _key_of(address: str, info: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a hash of the address, size and version of a file, and whether the file system knows versions."""
    known = {name: str(info[name]) for name in _CONTENT if info.get(name) is not None}
    known = known or {name: str(info[name]) for name in _TIMES if info.get(name) is not None}
    content = json.dumps([redacted(address), info.get("size"), known], sort_keys=True)
    return blake2b(content.encode(), digest_size=12).hexdigest(), bool(known)


def _check_size(file: RemoteFile, path: Path) -> None:
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        message = f"{size:,} of {file.size:,} bytes arrived"
        raise InputError(message, path=redacted(file.address), hint=_CHANGED_HINT)


def _check_version(system: Any, path: str, file: RemoteFile) -> None:
    system.invalidate_cache()
    if _key_of(file.address, system.info(path))[0] != file.key:
        raise InputError("changed since its folder was listed", path=redacted(file.address), hint=_CHANGED_HINT)


def _unreachable(address: str, error: Exception) -> InputError:
    reason = (str(error).splitlines() or [""])[0] or type(error).__name__
    return InputError(f"cannot be reached: {reason.replace(address, redacted(address))}", path=redacted(address))
