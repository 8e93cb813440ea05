"""Local copies of files at addresses such as s3://bucket/folder, by fsspec (extra `cloud`)."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any

from endtask.errors import InputError
from endtask.io.atomic import atomic_file
from endtask.io.input_files import Unskippable, import_extra
from endtask.progress import bar

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://\S+")
_MAGIC = re.compile(r"[*?\[]")
_VERSIONS = (
    "ETag",
    "etag",
    "md5Hash",
    "md5",
    "crc32c",
    "versionId",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
"""What file systems say about the version of a file."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at an address: its name relative to the address, its size, and a key that changes with its version."""

    address: str
    label: str
    size: int | None
    key: str


def is_address(path: str) -> bool:
    """Return whether a path is the address of a file system that fsspec may know.

    >>> is_address("s3://bucket/*.jsonl"), is_address("notes/a.txt"), is_address("C:/notes")
    (True, False, False)
    """
    return _ADDRESS.fullmatch(path) is not None


def list_files(address: str) -> list[RemoteFile]:
    """Return the files at an address (of a file, a folder or a glob), sorted by name; downloads nothing."""
    fsspec = import_extra("fsspec.core", "cloud", address, purpose="reading from the cloud")
    try:
        system, root = fsspec.url_to_fs(address)
        paths, base = _paths_at(system, root)
        return [_remote_file(system, path, base) for path in sorted(paths)]
    except ImportError as error:  # fsspec names the package of a file system: "Install s3fs to access S3"
        raise Unskippable(str(error).splitlines()[0], path=address) from None
    except InputError:
        raise
    except Exception as error:  # each file system has errors of its own
        raise _unreachable(address, error) from None


def local_copy(file: RemoteFile) -> Path:
    """Return the path of a file's copy in the cache folder; downloads it unless this version of it is there."""
    path = cache_folder() / file.key / PurePosixPath(file.label).name
    if path.is_file():
        return path
    fsspec = import_extra("fsspec.core", "cloud", file.address, purpose="reading from the cloud")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        system, remote = fsspec.url_to_fs(file.address)
        with atomic_file(path) as aside, bar(f"download {file.address}", file.size, unit="B") as advance:
            with system.open(remote, "rb") as source, open(aside, "wb") as target:
                while content := source.read(1 << 20):
                    target.write(content)
                    advance(len(content))
            _check_size(file, aside)
    except InputError:
        raise
    except Exception as error:
        raise _unreachable(file.address, error) from None
    return path


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
            raise InputError("no such file", path=system.unstrip_protocol(root))
        return [root], root.rpartition("/")[0]
    return [path for path in system.find(root) if not _is_hidden(path, root)], root


def _is_hidden(path: str, base: str) -> bool:
    return any(part.startswith(".") for part in path.removeprefix(base).split("/"))


def _remote_file(system: Any, path: str, base: str) -> RemoteFile:
    info = system.info(path)
    address = system.unstrip_protocol(path)
    known = {name: str(info[name]) for name in _VERSIONS if info.get(name) is not None}
    content = json.dumps([address, info.get("size"), known], sort_keys=True)
    key = blake2b(content.encode(), digest_size=12).hexdigest()
    return RemoteFile(address, path.removeprefix(base).lstrip("/"), info.get("size"), key)


def _check_size(file: RemoteFile, path: Path) -> None:
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise InputError(f"{size:,} of {file.size:,} bytes arrived", path=file.address, hint="try again")


def _unreachable(address: str, error: Exception) -> InputError:
    reason = (str(error).splitlines() or [""])[0] or type(error).__name__
    return InputError(f"cannot be reached: {reason}", path=address)
