"""Draw the domain's text: random passages from chosen sources, for masked LM on the domain (DAPT)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import DomainSettings, Settings, SizeBudget
from endtask.corpus import Corpus
from endtask.errors import InputError, did_you_mean
from endtask.io.run_layout import DOMAIN
from endtask.io.selection_table import write_batches
from endtask.progress import bar, warn
from endtask.selectors.base import Order, fill
from endtask.selectors.random import documents_at, drawn_batches, random_order

_SPARE_SHARE, _FEWEST_SPARE = 0.02, 50

ContaminationCheck = Callable[[str], bool] | None
"""Returns whether a text contains a dev or test text; None: no check."""


def select_domain(
    settings: DomainSettings,
    folder: Path,
    *,
    corpus: Corpus,
    train_rows: int,
    seed: int,
    is_contaminated: ContaminationCheck,
) -> dict[str, Any]:
    """Write the drawn passages in the order of the corpus and return counts for the manifest.

    The next passage of the draw replaces a passage that contains a dev or test text.
    """
    domain = domain_corpus(corpus, settings.sources)
    with bar("domain", domain.files_bytes(), unit="B") as advance:
        sizes = np.asarray([len(document.text.encode()) for document in domain.documents(advance)], dtype=np.int64)
    skipped = domain.statistics.skipped_lines()
    for line in skipped:
        warn(line)
    order = random_order(sizes, seed)
    requested = settings.amount.budget(train_rows)
    needed = len(fill(order, sizes, requested, corpus_bytes=int(sizes.sum())))
    with bar("domain", None):
        selected, dropped = _without_contaminated(domain, order, needed, is_contaminated)
        draw = np.zeros(len(sizes), dtype=np.int64)
        draw[order] = np.arange(1, len(order) + 1)
        draw[np.isin(np.arange(len(sizes)), selected, invert=True)] = 0
        written = write_batches(folder / DOMAIN, drawn_batches("domain", domain, draw, sizes, seed))
    if not written:
        raise InputError("no passage was drawn", key="domain.amount", hint="it is smaller than one passage")
    is_short = written + dropped == len(sizes) and _is_short(sizes[selected], requested)
    return {
        "passages": written,
        "bytes": int(sizes[selected].sum()),
        "of_passages": len(sizes),
        "dropped_by_contamination_filter": dropped,
        "sources": [source.name for source in domain.sources],
        "notes": [*domain.unread_lines(), *skipped],
        **({"less_than_requested": settings.amount.in_words(train_rows)} if is_short else {}),
    }


def check_sources_known(settings: Settings) -> None:
    """Raise `InputError` for a source of the domain that the corpus lacks."""
    if settings.reads_domain and settings.domain.sources:
        domain_corpus(Corpus.read(settings.corpus), settings.domain.sources)


def domain_corpus(corpus: Corpus, names: Sequence[str]) -> Corpus:
    """Return a corpus of the named sources, or of all; raise `InputError` for unknown names.

    A passage in several sources belongs to the first chosen source that has it.
    """
    known = {source.name: source for source in corpus.sources}
    for name in names:
        if name not in known:
            raise InputError(f"the corpus has no source {name!r}", key="domain.sources", hint=did_you_mean(name, known))
    chosen = [source for source in corpus.sources if source.name in names] if names else corpus.sources
    return Corpus(
        chosen,
        passage_characters=corpus.passage_characters,
        deduplicate=corpus.deduplicate,
        exclude=corpus.exclude,
    )


def _is_short(sizes: NDArray[np.int64], requested: SizeBudget | None) -> bool:
    """Return whether passages of these bytes are less than the requested bytes or passages; False for a share."""
    if requested is None or requested.unit == "share":
        return False
    return bool((sizes.sum() if requested.unit == "bytes" else len(sizes)) < requested.amount)


def _without_contaminated(
    domain: Corpus, order: Order, needed: int, is_contaminated: ContaminationCheck
) -> tuple[Order, int]:
    """Return the positions to select, in the order of the corpus, and how many the contamination filter dropped."""
    if is_contaminated is None:
        return np.sort(order[:needed]), 0
    spare = max(_FEWEST_SPARE, int(_SPARE_SHARE * needed))
    contaminated: set[int] = set()
    checked = clean = order[:0]
    while len(clean) < needed and len(checked) < len(order):
        start = len(checked)
        checked = order[: start + needed - len(clean) + spare]
        for position, document in documents_at(domain, np.sort(checked[start:])):
            if is_contaminated(document.text):
                contaminated.add(position)
        clean = checked[~np.isin(checked, list(contaminated))]
        spare *= 4  # every round reads the corpus once more
    return np.sort(clean[:needed]), len(contaminated)
