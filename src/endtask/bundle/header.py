"""The first file of a bundle: who made it, which runs it holds, and the size and hash of every other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from endtask.errors import InputError

HEADER = "bundle.json"
FORMAT = 1
MOST_FILES = 100_000
ROOT = "."
"""The run of a bundle that holds a single one."""

_LONGEST_PATH, _LONGEST_NAME = 1024, 255  # in bytes, as Linux and macOS have them
_LARGEST_FILE = (1 << 63) - 1
_LONGEST_WORD = 40


@dataclass(frozen=True)
class Entry:
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Header:
    """What a bundle says of itself; equal bytes are in it once, under the first of their paths.

    `runs` are the folders of its runs, seen from the folder it is unpacked to.
    """

    version: str
    kind: str
    runs: tuple[str, ...]
    files: dict[str, Entry]

    @property
    def members(self) -> dict[str, list[str]]:
        """The paths under which bytes are in the bundle, each with the other paths that have the same bytes."""
        first: dict[Entry, str] = {}
        found: dict[str, list[str]] = {}
        for path in sorted(self.files):
            holder = first.setdefault(self.files[path], path)
            found.setdefault(holder, [])
            if holder != path:
                found[holder].append(path)
        return found

    def to_bytes(self) -> bytes:
        """The header as JSON; without a date, so that the same content gives the same bundle."""
        files = {path: [entry.bytes, entry.sha256] for path, entry in sorted(self.files.items())}
        tree = {"format": FORMAT, "endtask": self.version, "kind": self.kind, "runs": self.runs, "files": files}
        return (json.dumps(tree, indent=1, ensure_ascii=False) + "\n").encode()


def parse_header(content: bytes, where: str) -> Header:
    """The header in these bytes, with paths that are safe to write to; `where` names the bundle in complaints."""
    try:
        tree = json.loads(content)
        if tree["format"] != FORMAT:
            raise _newer(tree, where)
        header = Header(
            version=_shown(tree["endtask"]),
            kind=_shown(tree["kind"]),
            runs=_runs(tree["runs"]),
            files={str(path): _entry(*entry) for path, entry in tree["files"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError("not a bundle, or a damaged one: its list of files cannot be read", path=where) from None
    if len(header.files) > MOST_FILES:
        raise InputError(f"names {len(header.files):,} files, more than the {MOST_FILES:,} of a bundle", path=where)
    for path in (*header.files, *(run for run in header.runs if run != ROOT)):
        if not is_safe(path):
            what = f"names a file outside of its folder or one that cannot be written, {path[:_LONGEST_PATH]!r}"
            raise InputError(f"{what}; nothing was unpacked", path=where)
    _check_no_file_below_file(header.files, where)
    return header


def is_safe(path: str) -> bool:
    r"""Whether a path of a bundle stays below the folder it is unpacked to and can be written and shown, on any system.

    >>> is_safe("pack/tokens.bin"), is_safe("../tokens.bin"), is_safe("/etc/passwd"), is_safe("C:\\tokens.bin")
    (True, False, False, False)
    """
    # What can be printed holds no NUL, no line end, and nothing that UTF-8 cannot encode.
    if not path.isprintable() or "\\" in path or len(path.encode()) > _LONGEST_PATH:
        return False
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME for part in parts)
    return plain and parts[0] != HEADER and not PureWindowsPath(path).drive


def _runs(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError
    return tuple(names)


def _shown(value: Any) -> str:
    """A value as it may be printed: short, and without characters that a terminal would act on."""
    text = str(value)[:_LONGEST_WORD]
    return text if text.isprintable() else ascii(text)


def _entry(size: Any, sha256: Any) -> Entry:
    if type(size) is not int or not 0 <= size <= _LARGEST_FILE or len(bytes.fromhex(sha256)) != 32:
        raise ValueError
    return Entry(size, sha256)


def _check_no_file_below_file(files: Mapping[str, Entry], where: str) -> None:
    for path in files:
        above = [parent.as_posix() for parent in PurePosixPath(path).parents]
        file = next((parent for parent in above if parent in files), None)
        if file is not None:
            raise InputError(f"damaged: {file!r} is both a file and a folder", path=where)


def _newer(tree: Mapping[str, Any], where: str) -> InputError:
    made = f"made by endtask {_shown(tree.get('endtask', 'of another version'))} in format {_shown(tree['format'])}"
    return InputError(f"{made}, of which this one knows {FORMAT} only", path=where, hint="upgrade endtask here")
