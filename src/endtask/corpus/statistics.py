"""What was met while a corpus was read, source by source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields

from endtask.corpus.sources import Source
from endtask.errors import InputError


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
