"""Write a bundle: everything that training needs of prepared runs, in one file within a size limit, or no file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from endtask.bundle.archive import HEADER, MOST_FILES, SUFFIX, ArchiveWriter, Entry, Header, content_of, is_safe
from endtask.bundle.contents import (
    LAST_STAGE,
    InputCopies,
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
from endtask.io.atomic import atomic_file
from endtask.io.compression import read_failure
from endtask.io.stage_folder import own_version
from endtask.pipeline.run import Run
from endtask.progress import bar, warn
from endtask.reporting.format import size

_SHRUNK_BY = {
    "tokens of the selection": "a smaller select.budget selects less; a larger tokenizer.vocab_size gives fewer tokens",
    "selected text": "a smaller select.budget selects less text",
    "checkpoint": "a smaller model.path, or the same in half precision",
    "tokenizer": "a smaller tokenizer.vocab_size",
}
_COUNTED_ALONE = 1 << 18  # measuring every small file would cost compression
_PARTS_SHOWN = 3
MAX_SIZE = 60_000_000
"""The size limit of a bundle without `--max-size`, in bytes."""


@dataclass(frozen=True)
class Bundle:
    """A written bundle: `runs` are the run folders in it, `parts` its compressed bytes by kind of content."""

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
    Raises `InputError` where the file would be larger than `max_size`, in bytes.
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
        header = Header(own_version(), kind, names, {item.path: hashes.of(item) for item in items})
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
    is_one_run = runs[0].folder == folder
    items = [] if is_one_run else list(record_items(folder, [run.folder for run in runs]))
    copies, unprepared = InputCopies(), []
    for run in runs:
        copies.add(run)
        stages = finished_stages(run, kind)
        if not stages or stages[-1].name != LAST_STAGE[kind]:
            unprepared.append(run)
        items += run_items(run, stages, "" if is_one_run else f"{run.folder.relative_to(folder).as_posix()}/")
    _check_prepared(unprepared, kind, all_of_them=len(unprepared) == len(runs))
    return [*items, *copies.all_items()]


def _check_names(folder: Path, items: Sequence[Item]) -> None:
    """Raise here, before hours of transfer, for names that `unbundle` would refuse."""
    wrong = next((item.path for item in items if not is_safe(item.path)), None)
    if wrong is not None:
        raise InputError(f"{wrong!r} is not a valid name in a bundle", path=folder, hint="rename it")
    if len(items) > MOST_FILES:
        raise InputError(f"{len(items):,} files, more than the {MOST_FILES:,} of a bundle", path=folder)


def _check_prepared(unprepared: Sequence[Run], kind: Kind, *, all_of_them: bool) -> None:
    """Raise where no run is prepared; warn of each unprepared run where others are."""
    for run in unprepared:
        error = _unprepared(run, LAST_STAGE[kind])
        if all_of_them:
            raise error
        warn(f"{error}; the bundle contains its finished stages")


def _unprepared(run: Run, last: str) -> InputError:
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
    """Computes size and hash of items; reads a file with several hard links once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Entry] = {}

    def of(self, item: Item) -> Entry:
        """Return the entry of an item."""
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
    """Write the header and the items' files; returns the compressed bytes of each part, the largest first."""
    by_path = {item.path: item for item in items}
    with atomic_file(file) as aside, open(aside, "wb") as target:
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
            if entry.bytes >= _COUNTED_ALONE:
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
    hints = [_SHRUNK_BY[part] for part in parts if part in _SHRUNK_BY][:1]
    return InputError(
        f"would be {size(bytes_)}, more than the limit of {size(limit)}; the largest parts: {', '.join(largest)}",
        path=file,
        hint="; ".join([*hints, f"--max-size {bytes_ // 10**6 + 1}MB allows it"]),
    )
