"""The corpus: named sources of unlabelled text, streamed as passages in a fixed order and without duplicates."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from endtask.config import AlignedSettings, CorpusSettings
from endtask.corpus.links import Links, links_inside
from endtask.corpus.passages import number_passages, passage_spans
from endtask.corpus.reading import SHOWN, Skipped, SourceDocument, read_source, source_contents
from endtask.corpus.sources import Source, find_sources, parse_source
from endtask.errors import InputError
from endtask.io.digests import fingerprint
from endtask.io.input_files import ReadProgress
from endtask.io.machine import usable_cores
from endtask.records import Document


@dataclass
class SourceStatistics:
    """Counts of one source: documents with and without text (`empty`), and the passages and bytes it yields.

    `unread_files` are of unknown formats; `skipped` rows or files could not be read. Of both the first are listed.
    """

    documents: int = 0
    empty: int = 0
    passages: int = 0
    duplicates: int = 0
    excluded: int = 0
    bytes: int = 0
    unread_files: int = 0
    skipped: int = 0
    first_unread: list[str] = field(default_factory=list)
    first_skipped: list[str] = field(default_factory=list)

    def add_skipped(self, count: int, messages: Sequence[str]) -> None:
        """Count what could not be read."""
        self.skipped += count
        self.first_skipped = [*self.first_skipped, *messages][:SHOWN]


@dataclass
class CorpusStatistics:
    """Counts by source name, filled while the corpus streams.

    >>> counts = CorpusStatistics({"a": SourceStatistics(passages=2), "b": SourceStatistics(passages=1)})
    >>> counts.total.passages
    3
    """

    sources: dict[str, SourceStatistics] = field(default_factory=dict)

    @property
    def total(self) -> SourceStatistics:
        """Sums over all sources."""
        names = [entry.name for entry in fields(SourceStatistics) if entry.type == "int"]
        sums = {name: sum(getattr(source, name) for source in self.sources.values()) for name in names}
        return SourceStatistics(**sums)

    @classmethod
    def of(cls, sources: Sequence[Source]) -> CorpusStatistics:
        """Return the counts of sources before they are read."""
        counts = {
            source.name: SourceStatistics(unread_files=len(source.unread), first_unread=[*source.unread[:SHOWN]])
            for source in sources
        }
        return cls(counts)

    def check_not_empty(self, sources: Sequence[Source]) -> None:
        """Raise an InputError if no source has any text."""
        if self.total.passages == 0:
            names = ", ".join(f"{source.name} ({source.path})" for source in sources)
            raise InputError("the corpus is empty: no text in any of its sources", hint=names)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return plain values for a manifest, one entry per source; without empty lists."""
        return {
            name: {key: value for key, value in asdict(source).items() if value != []}
            for name, source in self.sources.items()
        }

    def skipped_lines(self) -> list[str]:
        """Return a sentence for each source of which something could not be read."""
        return [
            f"{source.skipped:,} {'item' if source.skipped == 1 else 'items'} of {name} skipped, which could not be "
            f"read: {'; '.join(source.first_skipped)}{'; ...' if source.skipped > len(source.first_skipped) else ''}"
            for name, source in self.sources.items()
            if source.skipped
        ]


FORMAT = 1
"""Part of the fingerprint: increase it when the same files give other passages or ids."""


class Corpus:
    """Unlabelled text from files, folders, globs, the hub or installed documentation.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "notes.csv").write_text("text\\nA first note.\\nA second one.\\n")
    ...     [document.id for document in Corpus.read(Path(folder, "notes.csv")).documents()]
    ['notes/notes.csv#2', 'notes/notes.csv#3']
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        passage_characters: int = 2000,
        deduplicate: bool = True,
        exclude: Iterable[str] = (),
        with_links: bool = False,
    ) -> None:
        self.sources = tuple(sources)
        self.passage_characters = passage_characters
        self.deduplicate = deduplicate
        self.exclude = frozenset(exclude)
        self.with_links = with_links
        self.statistics = CorpusStatistics.of(self.sources)

    @classmethod
    def read(cls, given: str | Path | Sequence[str | Path] | CorpusSettings) -> Corpus:
        """Find the files of a corpus, which must exist, without reading them; a string may be `name=path`."""
        if not isinstance(given, CorpusSettings):
            entries = [given] if isinstance(given, str | Path) else given
            return cls(find_sources([parse_source(str(entry)) for entry in entries]))
        return cls(
            find_sources(given.sources, skip_errors=given.on_error == "skip"),
            passage_characters=given.passage_characters,
            deduplicate=given.deduplicate,
            exclude=given.exclude,
        )

    @classmethod
    def aligned(cls, aligned: AlignedSettings, corpus: CorpusSettings) -> Corpus:
        """Find the text of aligned objectives, with links; passage length and exclusions are those of `corpus`."""
        return cls(
            find_sources(aligned.sources, key="aligned.sources", skip_errors=corpus.on_error == "skip"),
            passage_characters=corpus.passage_characters,
            exclude=corpus.exclude,
            with_links=True,
        )

    def documents(self, progress: ReadProgress | None = None) -> Iterator[Document]:
        """Stream the passages: sources as listed, files by path, rows in order, without duplicates.

        Fills `statistics` and calls `progress` with the number of bytes of `files_bytes()` read since the last call.
        """
        self.statistics = CorpusStatistics.of(self.sources)
        return self._stream(self.statistics, progress)

    def files_bytes(self) -> int:
        """Return the size of all files on disk."""
        return sum(file.size() for source in self.sources for file in source.files)

    def fingerprint(self) -> str:
        """Return a hash of the settings and of every file's content, computed once per object."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        contents = [source_contents(source) for source in self.sources]
        return fingerprint(FORMAT, self.passage_characters, self.deduplicate, sorted(self.exclude), contents)

    def unread_lines(self) -> list[str]:
        """Return a sentence for each path with files that are not read."""
        return [line for source in self.sources if (line := source.unread_line)]

    def _stream(self, statistics: CorpusStatistics, progress: ReadProgress | None) -> Iterator[Document]:
        texts, ids = Seen(), Seen()
        for source in self.sources:
            counts = statistics.sources[source.name]
            skipped = Skipped()
            for document in read_source(
                source, progress, with_links=self.with_links, skipped=skipped, processes=usable_cores()
            ):
                passages = 0
                for passage_id, (text, links) in linked_passages_of(document, self.passage_characters):
                    passages += 1
                    unique = unique_id(passage_id, document.location, ids)
                    if document.id in self.exclude or unique in self.exclude:
                        counts.excluded += 1
                        continue
                    if self.deduplicate and not texts.add(key_of_words(text)):
                        counts.duplicates += 1
                        continue
                    counts.passages += 1
                    counts.bytes += len(text) if text.isascii() else len(text.encode())
                    yield Document(unique, text, source.name, document.title, document.license, links)
                counts.documents += passages > 0
                counts.empty += passages == 0
            counts.add_skipped(skipped.count, skipped.messages)
        statistics.check_not_empty(self.sources)


def passages_of(document: SourceDocument, passage_characters: int) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of each passage of a document."""
    return ((passage_id, text) for passage_id, (text, _) in linked_passages_of(document, passage_characters))


def linked_passages_of(document: SourceDocument, passage_characters: int) -> Iterator[tuple[str, tuple[str, Links]]]:
    """Yield (id, (text, links)) of each passage of a document; only documents of one part have links."""
    passages = (
        (part[start:end], links_inside(document.links, start, end) if document.links else ())
        for part in document.parts
        for start, end in passage_spans(part, passage_characters)
    )
    return number_passages(document.id, passages)


def unique_id(wanted: str, location: str, ids: Seen) -> str:
    """Return the id, with its location appended if an earlier text has the same id, and add it to `ids`."""
    unique = wanted
    while not ids.add(key_of(unique)):
        unique = f"{wanted}~{location}" if unique == wanted else f"{unique}~"
    return unique


class DrawnDocuments:
    """The passages of a corpus without those for which `is_contaminated` returns True; can be read many times."""

    def __init__(self, corpus: Corpus, *, is_contaminated: Callable[[str], bool] | None = None) -> None:
        self.corpus, self._is_contaminated = corpus, is_contaminated

    def __iter__(self) -> Iterator[Document]:
        for document in self.corpus.documents():
            if self._is_contaminated is None or not self._is_contaminated(document.text):
                yield document


_FIRST_SLOTS = 1 << 12
_FULLEST = 0.75
_BLANKS = bytes.maketrans(b"\t\n\v\f\r\x1c\x1d\x1e\x1f", b" " * 9)


def key_of(text: str) -> int:
    """Return a 64-bit hash of a text.

    Two of n different texts collide with a probability of about n**2 / 2**65: one in 3,700 for a hundred million
    texts. The later text would then be dropped as a duplicate.
    """
    return _hash(text.encode())


def key_of_words(text: str) -> int:
    r"""Return `key_of` the text with every run of white space replaced by one blank, and none at the ends.

    >>> key_of_words("one  two\n") == key_of_words("one two")
    True
    """
    if not text.isascii():
        return _hash(" ".join(text.split()).encode())
    # The same result for ASCII, in a third of the time.
    content = text.encode().translate(_BLANKS).strip()
    while b"  " in content:
        content = content.replace(b"  ", b" ")
    return _hash(content)


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


class Seen:
    """A growing set of keys: a hash table with linear probing, at most three quarters full.

    Keys must be uniformly distributed, as those of `key_of` are.

    >>> seen = Seen()
    >>> seen.add(7), seen.add(7), len(seen)
    (True, False, 1)
    """

    def __init__(self) -> None:
        self._slots = _empty_slots(_FIRST_SLOTS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: int) -> bool:
        """Add a key; returns whether it was new."""
        key = key or 1  # 0 marks an empty slot
        slots = self._slots
        mask = len(slots) - 1
        slot = key & mask
        while found := slots[slot]:
            if found == key:
                return False
            slot = (slot + 1) & mask
        slots[slot] = key
        self._count += 1
        if self._count > _FULLEST * len(slots):
            self._grow()
        return True

    def _grow(self) -> None:
        slots = _empty_slots(2 * len(self._slots))
        mask = len(slots) - 1
        for key in self._slots:
            if key:
                slot = key & mask
                while slots[slot]:
                    slot = (slot + 1) & mask
                slots[slot] = key
        self._slots = slots


def _empty_slots(count: int) -> array[int]:
    return array("Q", bytes(8)) * count
