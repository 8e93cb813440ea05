"""Write a bundle: one file, within a size limit, with what training needs of prepared runs.

A bundle holds the settings and finished stages of runs, and copies of the inputs of training.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from endtask.bundle.archive import HEADER, MOST_FILES, SUFFIX, ArchiveWriter, Entry, Header, content_of, is_safe
from endtask.bundle.input_copies import InputCopies
from endtask.bundle.items import (
    LAST_STAGE,
    Item,
    Kind,
    find_runs,
    finished_stages,
    open_run,
    record_items,
    run_items,
    with_plain_selections,
)
from endtask.bundle.unpack import bundle_header
from endtask.errors import InputError
from endtask.io.atomic import atomic_file, remove_leftovers_of
from endtask.io.compression import read_failure
from endtask.io.stage_folder import package_version
from endtask.pipeline.run import Run
from endtask.progress import bar, warn
from endtask.reporting.format import size

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
