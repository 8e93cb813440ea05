"""The record of a stage's files: size and digest of each, in the manifest, so that later readers notice damage.

Digests are XXH3 with 128 bits, by the package `xxhash`: they cost less than reading the file, and detect damage, not
forgery.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.parsing import ParseError, parse_json
from endtask.io.run_layout import SETTINGS_FILE, STAGES

MANIFEST = "manifest.json"
FILES = "files"
"""Key in a manifest: [size, digest] of each file of the stage, by its path in the folder."""
DIGEST = "digest"
"""Key in a manifest: the digest of all its other keys."""
LEFT_OUT = "left_out"
"""Key in the manifest of an unpacked stage: the files that the bundle left out."""
PARTIAL = ".partial"
CHEAP = 16 << 20
"""Bytes; digests of larger files are checked by `endtask verify`, and by a stage that reads another stage's files."""

_CHUNK = 1 << 20
_DEPTH = 4
"""How many folders above a file its stage may be: `read/tasks/NAME/train.jsonl`."""

Tree = dict[str, Any]
Advance = Callable[..., None]


class DamagedFile(InputError):
    """A file of a finished stage is not as the stage wrote it; the hint names the stage to redo."""

    def __init__(self, path: Path, problem: str, stage: Path) -> None:
        super().__init__(f"damaged: {problem}", path=path, hint=_redo_hint(stage))
        self.problem, self.stage = problem, stage


@dataclass(frozen=True)
class FileRecord:
    """Size and digest of a file."""

    bytes: int
    digest: str

    @classmethod
    def of(cls, path: Path, advance: Advance = lambda amount: None) -> FileRecord:
        """Return the record of a file as it is now."""
        state, size = xxhash.xxh3_128(), 0
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                state.update(chunk)
                size += len(chunk)
                advance(len(chunk))
        return cls(size, state.hexdigest())


def record_files(folder: Path) -> dict[str, list[int | str]]:
    """Return [size, digest] of each file of a stage but the manifest, by its path in the folder."""
    records = {path.relative_to(folder).as_posix(): FileRecord.of(path) for path in _files_in(folder)}
    return {name: [record.bytes, record.digest] for name, record in records.items()}


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / MANIFEST and not path.name.startswith("."):
            yield path


def sealed(manifest: Mapping[str, Any]) -> Tree:
    """Return a manifest with the digest of its content."""
    content = {key: value for key, value in manifest.items() if key != DIGEST}
    return {**content, DIGEST: _digest_of(content)}


def _digest_of(content: Mapping[str, Any]) -> str:
    as_read = json.loads(json.dumps(content))  # keys become strings
    return xxhash.xxh3_128_hexdigest(json.dumps(as_read, sort_keys=True).encode())


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest with its digest."""
    write_json(folder / MANIFEST, sealed(manifest))


def read_manifest(folder: Path) -> Tree | None:
    """Return the manifest in a folder, or None if there is none; raise `DamagedFile` if its content changed.

    A manifest without records of files, such as one written by hand, is read without a check.
    """
    path = folder / MANIFEST
    try:
        return parse_manifest(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedFile(path, f"cannot be read: {error.strerror}", folder) from None
    except ParseError as error:
        raise DamagedFile(path, str(error), folder) from None


def parse_manifest(content: bytes) -> Tree:
    """Return the manifest in the content of a file; raise `ParseError` if it is none or its content changed."""
    try:
        manifest: Tree = parse_json(content)
    except ParseError:
        raise ParseError("not a manifest") from None
    if not isinstance(manifest, dict) or not {"fingerprint", "status"} <= manifest.keys():
        raise ParseError("not a manifest")
    if not isinstance(manifest.get(LEFT_OUT, []), list) or not _has_records(manifest):
        raise ParseError("not a manifest")
    if (FILES in manifest or DIGEST in manifest) and sealed(manifest)[DIGEST] != manifest.get(DIGEST):
        raise ParseError("its content changed since it was written")
    return manifest


def _has_records(manifest: Tree) -> bool:
    """Return whether the records of a manifest, if it has any, are of the right types."""
    files = manifest.get(FILES, {})
    return isinstance(files, dict) and all(
        isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is int and type(entry[1]) is str
        for entry in files.values()
    )


class StageFiles:
    """The files of a finished stage, checked against the record in its manifest."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        absent = set(manifest.get(LEFT_OUT, ()))
        files = manifest.get(FILES, {})
        self.records = {name: FileRecord(*entry) for name, entry in files.items() if name not in absent}

    @classmethod
    def of(cls, folder: Path) -> StageFiles:
        """Return the recorded files of a stage; none for a folder without a manifest."""
        return cls(folder, read_manifest(folder) or {})

    def check(self, *, digests_up_to: float = CHEAP) -> None:
        """Raise `DamagedFile` for the first file that is missing or changed."""
        for name in self.records:
            self.check_file(name, digests_up_to=digests_up_to)

    def check_file(self, name: str, *, digests_up_to: float = CHEAP, advance: Advance = lambda amount: None) -> None:
        """Raise `DamagedFile` if a recorded file is missing or changed; digests of larger files are not computed."""
        problem = self._problem(name, digests_up_to, advance)
        if problem is not None:
            raise DamagedFile(self.folder / name, problem, self.folder)

    def _problem(self, name: str, digests_up_to: float, advance: Advance) -> str | None:
        record, path = self.records.get(name), self.folder / name
        if record is None:
            return None
        try:
            size = path.stat().st_size
            if not path.is_file():
                return "not a file"
            if size != record.bytes:
                return f"{size:,} bytes, and the stage {stage_name(self.folder)} wrote {record.bytes:,}"
            if size <= digests_up_to and FileRecord.of(path, advance) != record:
                return f"its content is not what the stage {stage_name(self.folder)} wrote"
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return None


def check_stage(folder: Path, *, digests_up_to: float = CHEAP) -> None:
    """Raise `DamagedFile` for the first file of a stage that is missing or changed since the stage finished."""
    if folder.is_dir() and not (folder / MANIFEST).exists():
        raise DamagedFile(folder / MANIFEST, "missing", folder)
    StageFiles.of(folder).check(digests_up_to=digests_up_to)


def checked(path: Path, *, digests_up_to: float = CHEAP) -> Path:
    """Return the path of a file or folder; raise `DamagedFile` if a finished stage recorded another content for it.

    A file that no stage recorded, such as one of the user's, is returned as it is.
    """
    for folder in list(path.parents)[:_DEPTH]:
        if (folder / MANIFEST).is_file():
            files, name = StageFiles.of(folder), path.relative_to(folder).as_posix()
            for recorded in files.records:
                if recorded == name or recorded.startswith(f"{name}/"):
                    files.check_file(recorded, digests_up_to=digests_up_to)
            break
    return path


def stage_name(folder: Path) -> str:
    """Return the name of the stage whose folder or partial folder this is.

    >>> stage_name(Path("runs/chemprot/pack")), stage_name(Path("runs/chemprot/pretrain.partial"))
    ('pack', 'pretrain')
    """
    return folder.name.removesuffix(PARTIAL)


def _redo_hint(stage: Path) -> str:
    name, run = stage_name(stage), stage.parent
    if name not in STAGES or not (run / SETTINGS_FILE).exists():
        return "copy it again; or was it changed by hand?"
    again = f"endtask run {run} --from {name} makes it again"
    return f"{again}, or unpack its bundle again" if _came_in_a_bundle(run) else again


def _came_in_a_bundle(run: Path) -> bool:
    """Return whether an earlier stage left its files on another machine."""
    for stage in ("retrieve", "select"):
        try:
            if json.loads((run / stage / MANIFEST).read_text(encoding="utf-8")).get(LEFT_OUT):
                return True
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
    return False
