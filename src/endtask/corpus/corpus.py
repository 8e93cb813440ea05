"""A corpus: named sources of unlabelled text, streamed as passages in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.config import AlignedSettings, CorpusSettings
from endtask.corpus.deduplicate import Seen, key_of, key_of_words
from endtask.corpus.passages import cut_places, number_passages
from endtask.corpus.reading import Links, Reading, links_inside, read_source, source_contents
from endtask.corpus.sources import Source, find_sources, parse_source
from endtask.errors import InputError
from endtask.io.compression import ReadProgress
from endtask.io.digests import file_size, fingerprint
from endtask.records import Document
from endtask.seeds import generator


@dataclass
class SourceStatistics:
    """Counts of one source: `documents` had text, `empty` had none; `passages` and `bytes` were kept."""

    documents: int = 0
    empty: int = 0
    passages: int = 0
    duplicates: int = 0
    excluded: int = 0
    bytes: int = 0
    skipped_files: int = 0


@dataclass
class CorpusStatistics:
    """Counts by source name, filled while the corpus streams by.

    >>> counts = CorpusStatistics({"a": SourceStatistics(passages=2), "b": SourceStatistics(passages=1)})
    >>> counts.total.passages
    3
    """

    sources: dict[str, SourceStatistics] = field(default_factory=dict)

    @property
    def total(self) -> SourceStatistics:
        """The sums over all sources."""
        names = [entry.name for entry in fields(SourceStatistics)]
        sums = {name: sum(getattr(source, name) for source in self.sources.values()) for name in names}
        return SourceStatistics(**sums)

    def check_not_empty(self, sources: Sequence[Source]) -> None:
        """Complain about a corpus without any text."""
        if self.total.passages == 0:
            names = ", ".join(f"{source.name} ({source.path})" for source in sources)
            raise InputError("the corpus is empty: no text in any of its sources", hint=names)

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Plain numbers for a manifest: one entry per source."""
        return {name: asdict(source) for name, source in self.sources.items()}


FORMAT = 1
"""Raised whenever the same files give other passages or ids."""


class Corpus:
    """Unlabelled text from files, folders, globs, the hub or the installed documentation.

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
        self.statistics = self._no_statistics()

    @classmethod
    def read(cls, given: str | Path | Sequence[str | Path] | CorpusSettings) -> Corpus:
        """Find the files, which must exist, without reading them; a string may also say `name=path`."""
        if not isinstance(given, CorpusSettings):
            entries = [given] if isinstance(given, str | Path) else given
            found = find_sources([parse_source(str(entry)) for entry in entries])
            return cls(found)
        return cls(
            find_sources(given.sources),
            passage_characters=given.passage_characters,
            deduplicate=given.deduplicate,
            exclude=given.exclude,
        )

    @classmethod
    def aligned(cls, aligned: AlignedSettings, corpus: CorpusSettings) -> Corpus:
        """The text of aligned objectives with its links, cut like the corpus and without what that leaves out."""
        return cls(
            find_sources(aligned.sources, key="aligned.sources"),
            passage_characters=corpus.passage_characters,
            exclude=corpus.exclude,
            with_links=True,
        )

    def documents(self, progress: ReadProgress | None = None) -> Iterator[Document]:
        """Stream the passages: sources as listed, files by path, rows in order, equal passages once.

        `statistics` is filled on the way. `progress` is told of every few bytes of `files_bytes()` read.
        """
        self.statistics = self._no_statistics()
        return self._stream(self.statistics, progress)

    def files_bytes(self) -> int:
        """The size of all files as they lie on disk."""
        return sum(file_size(file.path) for source in self.sources for file in source.files)

    def fingerprint(self) -> str:
        """A hash of the settings and of every file's content, worked out once per corpus object."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        contents = [source_contents(source) for source in self.sources]
        return fingerprint(FORMAT, self.passage_characters, self.deduplicate, sorted(self.exclude), contents)

    def _no_statistics(self) -> CorpusStatistics:
        return CorpusStatistics(
            {source.name: SourceStatistics(skipped_files=source.skipped) for source in self.sources}
        )

    def _stream(self, statistics: CorpusStatistics, progress: ReadProgress | None) -> Iterator[Document]:
        texts, ids = Seen(), Seen()
        for source in self.sources:
            counts = statistics.sources[source.name]
            for reading in read_source(source, progress, with_links=self.with_links):
                passages = 0
                for passage_id, (text, links) in linked_passages_of(reading, self.passage_characters):
                    passages += 1
                    unique_id = _unique(passage_id, reading.place, ids)
                    if reading.id in self.exclude or unique_id in self.exclude:
                        counts.excluded += 1
                        continue
                    if self.deduplicate and not texts.add(key_of_words(text)):
                        counts.duplicates += 1
                        continue
                    counts.passages += 1
                    counts.bytes += len(text) if text.isascii() else len(text.encode())
                    yield Document(unique_id, text, source.name, reading.title, reading.license, links)
                counts.documents += passages > 0
                counts.empty += passages == 0
        statistics.check_not_empty(self.sources)


def passages_of(reading: Reading, passage_characters: int) -> Iterator[tuple[str, str]]:
    """(id, text) of each passage of a document."""
    return ((passage_id, text) for passage_id, (text, _) in linked_passages_of(reading, passage_characters))


def linked_passages_of(reading: Reading, passage_characters: int) -> Iterator[tuple[str, tuple[str, Links]]]:
    """(id, (text, links)) of each passage of a document; only documents of one part have links."""
    pieces = (
        (part[start:end], links_inside(reading.links, start, end) if reading.links else ())
        for part in reading.parts
        for start, end in cut_places(part, passage_characters)
    )
    return number_passages(reading.id, pieces)


def _unique(wanted: str, place: str, ids: Seen) -> str:
    """The id, or where an earlier passage has it, the id with the place it was found at."""
    unique = wanted
    while not ids.add(key_of(unique)):
        unique = f"{wanted}~{place}" if unique == wanted else f"{unique}~"
    return unique


class DrawnDocuments:
    """At most `limit` passages, drawn by the seed, in the order of the corpus; `is_contaminated` says which to leave out."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        limit: int | None = None,
        seed: int = 0,
        is_contaminated: Callable[[str], bool] | None = None,
    ) -> None:
        self.corpus = corpus
        self._limit, self._seed, self._is_contaminated = limit, seed, is_contaminated

    def __iter__(self) -> Iterator[Document]:
        for number, document in enumerate(self.corpus.documents()):
            if self._drawn is not None and not self._drawn[number]:
                continue
            if self._is_contaminated is None or not self._is_contaminated(document.text):
                yield document

    @cached_property
    def _drawn(self) -> NDArray[np.bool_] | None:
        if self._limit is None:
            return None
        count = sum(1 for _ in self.corpus.documents())
        drawn = np.zeros(count, dtype=np.bool_)
        drawn[generator(self._seed, "aligned passages").permutation(count)[: self._limit]] = True
        return drawn
