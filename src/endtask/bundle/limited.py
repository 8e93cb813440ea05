"""The file of a bundle, written whole or, where it would be too large, not at all."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from endtask.bundle.archive import ArchiveWriter, content_of
from endtask.bundle.contents import Item
from endtask.bundle.header import HEADER, Entry, Header
from endtask.config import SizeBudget
from endtask.errors import InputError
from endtask.io.atomic import atomic_file
from endtask.io.compression import read_failure
from endtask.progress import bar
from endtask.reporting.format import size

_SHRUNK_BY = {
    "tokens of the selection": "a smaller select.budget keeps less, a larger tokenizer.vocab_size cuts fewer tokens",
    "selected text": "a smaller select.budget keeps less text",
    "checkpoint": "a smaller model.path, or the same in half precision",
    "tokenizer": "a smaller tokenizer.vocab_size",
}
_COUNTED_ALONE = 1 << 18  # a count for every small file would cost more than it tells
_PARTS_SHOWN = 3


class Hashes:
    """Size and hash of items; a file that has several names is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Entry] = {}

    def of(self, item: Item) -> Entry:
        """The entry of an item."""
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


def write_items(file: Path, header: Header, items: Sequence[Item], limit: SizeBudget) -> dict[str, int]:
    """Write the header and the items' files; returns the compressed bytes of each part, the largest first."""
    by_path = {item.path: item for item in items}
    with atomic_file(file) as aside, open(aside, "wb") as target:
        archive = ArchiveWriter(target, str(file))
        content = header.to_bytes()
        archive.add(HEADER, len(content), content_of(content))
        parts = _add_all(archive, header, by_path)
        archive.finish()
        if target.tell() > limit.amount:
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
        raise InputError("changed while it was read", path=str(item.source), hint="is a run at work? try again")


def _too_large(file: Path, bytes_: int, parts: Mapping[str, int], limit: SizeBudget) -> InputError:
    largest = [f"{part} {size(amount)}" for part, amount in list(parts.items())[:_PARTS_SHOWN]]
    ways = [_SHRUNK_BY[part] for part in parts if part in _SHRUNK_BY][:1]
    return InputError(
        f"would be {size(bytes_)}, more than bundle_size allows ({limit}); the largest parts: {', '.join(largest)}",
        path=file,
        hint="; ".join([*ways, f"--max-size {bytes_ // 10**6 + 1}MB allows it"]),
    )
