"""Write a bundle: one file, within a size limit, with what training needs of prepared runs.

A bundle holds the settings and finished stages of runs, and copies of the inputs of training.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from endtask.bundle.archive import HEADER, MOST_FILES, SUFFIX, ArchiveWriter, Entry, Header, content_of, is_safe
from endtask.bundle.unpack import bundle_header
from endtask.config import load_settings
from endtask.encoders.checkpoint_files import config_file, weight_files
from endtask.errors import InputError
from endtask.io.atomic import atomic_file, remove_leftovers_of
from endtask.io.compression import read_failure
from endtask.io.run_layout import DOMAIN, RETRIEVED, SELECTION, SETTINGS_FILE, SHARED_TOKENIZER, STAGES, record_file
from endtask.io.stage_files import FILES, LEFT_OUT, MANIFEST, FileRecord, check_stage, read_manifest, sealed
from endtask.io.stage_folder import StageFolder, left_out, package_version
from endtask.pipeline.inputs import (
    COPIES,
    LEVELS_ABOVE,
    RECORD,
    BundledInput,
    BundledInputs,
    input_path,
    requested_inputs,
    tokenizer_files,
)
from endtask.pipeline.run import Run
from endtask.progress import bar, warn
from endtask.reporting.format import size
from endtask.task import Task
from endtask.task.task import task_files

_SIZE_HINTS = {
    "tokens of the selection": "a smaller select.budget selects less; a larger tokenizer.vocab_size gives fewer tokens",
    "selected text": "a smaller select.budget selects less text",
    "checkpoint": "a smaller model.path, or the same in half precision",
    "tokenizer": "a smaller tokenizer.vocab_size",
}
_SMALLEST_MEASURED = 1 << 18  # measuring every small file would cost compression
_PARTS_SHOWN = 3
MAX_SIZE = 60_000_000
"""The size limit of a bundle without `--max-size`, in bytes."""

Kind = Literal["tokens", "text"]
LAST_STAGE: dict[Kind, str] = {"tokens": "pack", "text": "select"}

# Only the next stage reads the files of these stages; once it has finished, their manifests suffice.
_READ_BY_NEXT_STAGE = ("retrieve", "select")
_EXPERIMENT_RECORDS = (record_file("compare"), record_file("search"))
"""The records of `endtask compare` and `endtask search`; other files next to the runs belong to the user."""
# The manifest of this stage has the fingerprint of the input, so the bundle needs no copy of the input.
_RECORDED_BY = {"corpus": "retrieve", "selection": "select", "aligned": "pack"}
_DIGEST_CHARACTERS = 12


@dataclass(frozen=True)
class Item:
    """A file of a bundle: its path there, the source of its bytes, and the part of the bundle it belongs to."""

    path: str
    source: Path | bytes
    part: str


@dataclass(frozen=True)
class Bundle:
    """A written bundle: the run folders in it, and its compressed bytes by part."""

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
    max_size: int = MAX_SIZE,
) -> Bundle:
    """Pack the prepared run in a folder, or all runs below it, into one file, by default `FOLDER.tar.zst`.

    Kind `tokens` packs runs up to the stage pack, without the selection's texts; kind `text` packs them up to select.
    Raise `InputError`, and write no file, if it would have more than `max_size` bytes.
    """
    folder = Path(folder)
    file = Path(file) if file is not None else default_file(folder)
    _check_target(file)
    runs = [open_run(path) for path in find_runs(folder)]
    items = _all_items(folder, runs, kind)
    _check_names(folder, items)
    names = tuple(run.folder.relative_to(folder).as_posix() for run in runs)
    with TemporaryDirectory() as scratch:
        items = with_plain_selections(items, Path(scratch))
        hashes = Hashes()
        header = Header(package_version(), kind, names, {item.path: hashes.of(item) for item in items})
        parts = write_items(file, header, items, max_size)
    return Bundle(file, file.stat().st_size, kind, names, parts)


def default_file(folder: Path) -> Path:
    """Return the default path of the bundle of a folder.

    >>> default_file(Path("runs/chemprot")).as_posix()
    'runs/chemprot.tar.zst'
    """
    folder = folder if folder.name else folder.absolute()
    return folder.with_name(f"{folder.name}.tar{SUFFIX}")


def _all_items(folder: Path, runs: Sequence[Run], kind: Kind) -> list[Item]:
    is_single_run = runs[0].folder == folder
    items = [] if is_single_run else list(record_items(folder, [run.folder for run in runs]))
    copies, unprepared = InputCopies(), []
    for run in runs:
        copies.add(run)
        stages = finished_stages(run, kind)
        if not stages or stages[-1].name != LAST_STAGE[kind]:
            unprepared.append(run)
        items += run_items(run, stages, "" if is_single_run else f"{run.folder.relative_to(folder).as_posix()}/")
    for run in unprepared:
        error = _unprepared_error(run, LAST_STAGE[kind])
        if len(unprepared) == len(runs):
            raise error
        warn(f"{error}; the bundle contains its finished stages")
    return [*items, *copies.all_items()]


def _check_names(folder: Path, items: Sequence[Item]) -> None:
    """Raise `InputError` for names that `unbundle` would reject, before hours of transfer."""
    unsafe = next((item.path for item in items if not is_safe(item.path)), None)
    if unsafe is not None:
        raise InputError(f"{unsafe!r} is not a valid name in a bundle", path=folder, hint="rename it")
    if len(items) > MOST_FILES:
        raise InputError(f"{len(items):,} files, more than the {MOST_FILES:,} of a bundle", path=folder)


def _unprepared_error(run: Run, last: str) -> InputError:
    clash = run.first_clash()
    if clash is None:
        hint = f"endtask run {run.folder} --until {last}"
        return InputError(f"the stage {last} has not finished", path=run.folder, hint=hint)
    hint = f"endtask run {run.folder} --from {clash} --until {last}"
    return InputError(f"settings or data changed since the stage {clash} was done", path=run.folder, hint=hint)


def _check_target(file: Path) -> None:
    if file.suffix.lower() != SUFFIX:
        raise InputError("not the name of a bundle", path=file, hint=f"use a name that ends in .tar{SUFFIX}")
    if not file.parent.is_dir():
        raise InputError("no such folder", path=file.parent)
    if not file.exists() and not file.is_symlink():
        return
    try:
        bundle_header(file)
    except InputError:
        hint = "choose another --output"
        raise InputError("the file exists and is not a bundle", path=file, hint=hint) from None


class Hashes:
    """Computes the size and hash of items; reads a file with several hard links once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Entry] = {}

    def of(self, item: Item) -> Entry:
        """Return the size and hash of an item."""
        if isinstance(item.source, bytes):
            return Entry(len(item.source), hashlib.sha256(item.source).hexdigest())
        try:
            status = item.source.stat()
            key = (status.st_dev, status.st_ino)
            if key not in self._known:
                with open(item.source, "rb") as file:
                    self._known[key] = Entry(status.st_size, hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            raise read_failure(error, item.source) from None
        return self._known[key]


def write_items(file: Path, header: Header, items: Sequence[Item], limit: int) -> dict[str, int]:
    """Write the header and the items' files. Return the compressed bytes of each part, the largest first."""
    by_path = {item.path: item for item in items}
    remove_leftovers_of(file)
    with atomic_file(file) as temporary, open(temporary, "wb") as target:
        archive = ArchiveWriter(target, str(file))
        content = header.to_bytes()
        archive.add(HEADER, len(content), content_of(content))
        parts = _add_all(archive, header, by_path)
        archive.finish()
        if target.tell() > limit:
            raise _too_large(file, target.tell(), parts, limit)
    return parts


def _add_all(archive: ArchiveWriter, header: Header, items: Mapping[str, Item]) -> dict[str, int]:
    parts: Counter[str] = Counter()
    before = 0
    with bar("bundle", sum(header.files[path].bytes for path in header.members), unit="B") as advance:
        for path in header.members:
            item, entry = items[path], header.files[path]
            _add(archive, item, entry)
            advance(entry.bytes)
            if entry.bytes >= _SMALLEST_MEASURED:
                now = archive.bytes_so_far()
                parts[item.part] += now - before
                before = now
    parts["small files"] += archive.bytes_so_far() - before
    return dict(parts.most_common())


def _add(archive: ArchiveWriter, item: Item, entry: Entry) -> None:
    try:
        with content_of(item.source) as content:
            sha256 = archive.add(item.path, entry.bytes, content)
    except FileNotFoundError as error:
        raise read_failure(error, Path(item.path)) from None
    if sha256 != entry.sha256:
        raise InputError("changed while it was read", path=str(item.source), hint="wait until the run has finished")


def _too_large(file: Path, bytes_: int, parts: Mapping[str, int], limit: int) -> InputError:
    largest = [f"{part} {size(amount)}" for part, amount in list(parts.items())[:_PARTS_SHOWN]]
    hints = [_SIZE_HINTS[part] for part in parts if part in _SIZE_HINTS][:1]
    return InputError(
        f"would be {size(bytes_)}, more than the limit of {size(limit)}; the largest parts: {', '.join(largest)}",
        path=file,
        hint="; ".join([*hints, f"--max-size {bytes_ // 10**6 + 1}MB allows it"]),
    )


def find_runs(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run, else all run folders below it.

    A comparison's run that only learned the shared tokenizer is left out: the tokenizer is an input of the others.
    """
    if not folder.is_dir():
        raise InputError("no such folder", path=folder)
    runs = []
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if record_file("compare") in names and SHARED_TOKENIZER in folders:
            folders.remove(SHARED_TOKENIZER)
        if SETTINGS_FILE in names:
            runs.append(Path(path))
            folders.clear()
    if not runs:
        raise InputError("no run here", path=folder, hint="give the folder that `endtask run --output` made")
    for run in runs:
        if len(run.relative_to(folder).parts) > LEVELS_ABOVE:
            message = f"the run is over {LEVELS_ABOVE} folders below {folder}, too deep to find its bundled inputs"
            raise InputError(message, path=run, hint="bundle a folder nearer to it")
    return runs


def open_run(folder: Path) -> Run:
    """Open the run in a folder, which may have been moved."""
    return Run(load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)}))


def finished_stages(run: Run, kind: Kind) -> list[StageFolder]:
    """Return the finished stages of a run that a bundle of this kind contains."""
    stages = run.stage_folders()
    names = STAGES[: STAGES.index(LAST_STAGE[kind]) + 1]
    return [stages[name] for name in takewhile(lambda name: stages[name].is_finished(), names)]


def run_items(run: Run, stages: list[StageFolder], prefix: str) -> Iterator[Item]:
    """Yield a run's settings and finished stages; `prefix` is the path of the run in the bundle."""
    yield Item(f"{prefix}{SETTINGS_FILE}", run.folder / SETTINGS_FILE, "settings")
    for stage in stages:
        check_stage(stage.final, digests_up_to=math.inf)
        if stage.name in _READ_BY_NEXT_STAGE and stage is not stages[-1]:
            yield _manifest_item(stage, f"{prefix}{stage.name}/")
        else:
            yield from _stage_items(stage, f"{prefix}{stage.name}/")


def record_items(folder: Path, runs: Iterable[Path]) -> Iterator[Item]:
    """Yield the records of comparisons and searches in the parent folders of the runs; pages are made from them."""
    parents = {path for run in runs for path in run.parents if path == folder or folder in path.parents}
    for path in sorted(parents):
        for file in (path / name for name in _EXPERIMENT_RECORDS):
            if file.is_file() and not file.is_symlink():
                yield Item(file.relative_to(folder).as_posix(), file, "records")


def _stage_items(stage: StageFolder, prefix: str) -> Iterator[Item]:
    missing = left_out(stage.final)
    if missing:
        raise InputError(
            f"{missing[0]} was left out of the bundle that this run came from", path=stage.final, hint="use --tokens"
        )
    for file in sorted(stage.final.rglob("*")):
        if file.is_file():
            path = file.relative_to(stage.final)
            yield Item(f"{prefix}{path.as_posix()}", file, _part(stage.name, path))


def _part(stage: str, path: Path) -> str:
    """Return the part of the bundle that a stage's file belongs to, for messages about sizes."""
    if stage == "select":
        return "selected text" if path.name in (SELECTION, DOMAIN) else "settings"
    if stage == "retrieve":
        return "retrieved text" if path.name == RETRIEVED else "settings"
    if stage == "pack" and len(path.parts) > 1:
        names = {"selection": "tokens of the selection", "domain": "tokens of the domain", "tokenizer": "tokenizer"}
        return names.get(path.parts[0], "tokens of the task")
    return "task" if stage == "read" else "settings"


def _manifest_item(stage: StageFolder, prefix: str) -> Item:
    files = {file.relative_to(stage.final).as_posix() for file in stage.final.rglob("*") if file.is_file()}
    names = sorted({*files, *left_out(stage.final)} - {MANIFEST})
    manifest = {**(read_manifest(stage.final) or {}), LEFT_OUT: names}
    return Item(f"{prefix}{MANIFEST}", _manifest_bytes(manifest), "settings")


def _manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(sealed(manifest), indent=2, ensure_ascii=False) + "\n").encode()


@dataclass
class InputCopies:
    """Copies of the external inputs of several runs; shared inputs are stored once."""

    inputs: dict[str, BundledInput] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    _tasks: dict[str, Task] = field(default_factory=dict)

    def add(self, run: Run) -> None:
        """Add the inputs of a run, and make the run use the copies as it will after the bundle is unpacked."""
        requested = requested_inputs(run.settings)
        key = json.dumps(requested["task"], sort_keys=True)
        if key in self._tasks:
            run.task = self._tasks[key]  # read once for all runs
        self._tasks[key] = run.task
        inputs = [self._input(run, name) for name, value in requested.items() if value is not None]
        run.bundled = BundledInputs(run.folder, tuple(bundled for bundled in inputs if bundled is not None))

    def all_items(self) -> Iterator[Item]:
        """Yield the copies and their record."""
        yield from self.items.values()
        record = BundledInputs(Path(), tuple(self.inputs[key] for key in sorted(self.inputs))).as_json()
        yield Item(RECORD, record.encode(), "settings")

    def _input(self, run: Run, name: str) -> BundledInput | None:
        requested = requested_inputs(run.settings)[name]
        digest = _digest(run, name)
        if digest is None:
            return None
        key = json.dumps([name, requested], sort_keys=True)
        known = self.inputs.get(key)
        if known is None:
            known = self.inputs[key] = BundledInput(name, requested, digest, self._copy(run, name, digest))
        if known.fingerprint != digest:
            message = f"the {name} ({input_path(run.settings, name)}) changed since an earlier of these runs read it"
            raise InputError(message, path=run.folder, hint="bundle each run separately, or run them again")
        return known

    def _copy(self, run: Run, name: str, digest: str) -> str | None:
        files = dict(_input_files(run, name))
        if not files:
            return None
        folder = f"{COPIES}/{name}-{digest[:_DIGEST_CHARACTERS]}"
        for file, source in files.items():
            self.items[f"{folder}/{file}"] = Item(f"{folder}/{file}", source, name)
        return folder


def _digest(run: Run, name: str) -> str | None:
    """Return the digest of the input that the run was prepared with; None if no stage has read it yet."""
    stage = _RECORDED_BY.get(name)
    if stage is None:
        return run.input_digest(name)
    manifest = read_manifest(run.folder / stage)
    return None if manifest is None else str(manifest["inputs"][name])


def _input_files(run: Run, name: str) -> Iterable[tuple[str, Path | bytes]]:
    """Return the files of an input with their paths in its copy; empty if the bundle needs no copy."""
    settings = run.bundled.local_settings(run.settings)
    if name == "task":
        return task_files(run.task).items()
    if name == "tokenizer" and settings.tokenizer.path is not None:
        return [(file.name, file) for file in tokenizer_files(settings.tokenizer.path)]
    if name == "checkpoint" and settings.model.path is not None:
        # The folder of the weights may contain the tokenizer that the run uses.
        config = config_file(settings.model.path)
        files = [config, *weight_files(settings.model.path), *tokenizer_files(settings.model.path, key="model.path")]
        return [(file.relative_to(config.parent).as_posix(), file) for file in files]
    return ()


def with_plain_selections(items: Iterable[Item], scratch: Path) -> list[Item]:
    """Replace every table of texts by an uncompressed copy in `scratch`; the bundle's compression makes it smaller.

    Hard links to the same file share a copy. Manifests get the records of the copies.
    """
    copies: dict[tuple[int, int], Path] = {}
    replaced, records = [], {}
    for item in items:
        if isinstance(item.source, Path) and item.source.name in (SELECTION, DOMAIN, RETRIEVED):
            status = item.source.stat()
            copy = copies.setdefault((status.st_dev, status.st_ino), scratch / f"{len(copies)}.parquet")
            if not copy.exists():
                _copy_uncompressed(item.source, copy)
            item = replace(item, source=copy)
            records[item.path] = FileRecord.of(copy)
        replaced.append(item)
    return [_with_records(item, records) if item.path.endswith(f"/{MANIFEST}") else item for item in replaced]


def _with_records(item: Item, records: Mapping[str, FileRecord]) -> Item:
    """Return the item of a manifest with the records of replaced files of its stage."""
    folder = item.path.removesuffix(MANIFEST)
    own = {path.removeprefix(folder): record for path, record in records.items() if path.startswith(folder)}
    if not own:
        return item
    manifest = json.loads(item.source if isinstance(item.source, bytes) else item.source.read_bytes())
    files = {name: [record.bytes, record.digest] for name, record in own.items()}
    return replace(item, source=_manifest_bytes({**manifest, FILES: {**manifest.get(FILES, {}), **files}}))


def _copy_uncompressed(file: Path, copy: Path) -> None:
    """Write the same rows in the same groups without compression."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as table, parquet.ParquetWriter(copy, table.schema_arrow, compression="none") as to:
        for number in range(table.num_row_groups):
            group = table.read_row_group(number)
            to.write_table(group, row_group_size=max(1, group.num_rows))
