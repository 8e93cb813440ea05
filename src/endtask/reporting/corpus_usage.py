"""The corpus and what was kept of it, source by source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from endtask.reporting import format as shown
from endtask.reporting.costs import less_of_domain
from endtask.reporting.plots import BarGroup, bar_chart
from endtask.reporting.why import Kept

_SOURCES_DRAWN = 12


@dataclass(frozen=True)
class SourceShare:
    """One source: what it held and what of it is trained on (nothing known before selection)."""

    name: str
    documents: int
    duplicates: int
    passages: int
    bytes: int
    kept_passages: int
    kept_bytes: int


def source_shares(corpus: dict[str, Any], kept: Kept) -> list[SourceShare]:
    """Every source, the largest first."""
    shares = [
        SourceShare(
            name,
            source["documents"],
            source["duplicates"],
            source["passages"],
            source["bytes"],
            kept.passages[name],
            kept.bytes[name],
        )
        for name, source in corpus.get("sources", {}).items()
    ]
    return sorted(shares, key=lambda share: (-share.bytes, share.name))


def source_chart(shares: list[SourceShare]) -> Markup | None:
    """Each source's part of the corpus beside its part of what was kept; none for a single source or no selection."""
    total, kept = sum(share.bytes for share in shares), sum(share.kept_bytes for share in shares)
    if len(shares) < 2 or not total or not kept:
        return None
    groups = []
    for source in shares[:_SOURCES_DRAWN]:
        parts = (source.bytes / total, source.kept_bytes / kept)
        groups.append(BarGroup(source.name, parts, tuple(shown.share(part) for part in parts)))
    return bar_chart(groups, ["of the corpus", "of the kept text"], title="Share of bytes by source")


def domain_sentence(counts: dict[str, Any]) -> str:
    """What was drawn of the task's domain, where an objective reads it.

    >>> domain_sentence({"domain": {"passages": 8, "bytes": 2000, "of_passages": 90, "sources": ["news", "books"]}})
    '8 passages (2 kB) of the domain (books, news) were drawn at random, of 90 that it has.'
    >>> domain_sentence({})
    ''
    """
    if "domain" not in counts:
        return ""
    drawn = counts["domain"]
    passages = f"{shown.plural(drawn['passages'], 'passage')} ({shown.size(drawn['bytes'])})"
    sources = ", ".join(sorted(drawn["sources"]))
    of_all = f"of {drawn['of_passages']:,} that it has{less_of_domain(drawn)}"
    return f"{passages} of the domain ({sources}) were drawn at random, {of_all}."
