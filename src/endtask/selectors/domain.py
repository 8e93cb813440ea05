"""The domain's text: passages drawn at random from chosen sources, for masked LM on the domain (DAPT)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import DomainSettings, Settings, SizeBudget
from endtask.corpus import Corpus
from endtask.errors import InputError, did_you_mean
from endtask.io.run_layout import DOMAIN
from endtask.io.selection_table import Batch, selection_batch, write_batches
from endtask.progress import bar
from endtask.selectors.base import Order
from endtask.selectors.random import documents_at, random_order
from endtask.selectors.ranking import fill

_ROWS_PER_BATCH = 1000
_SPARE_SHARE, _FEWEST_SPARE = 0.02, 50

Guarded = Callable[[str], bool] | None
"""Tells whether a text holds a dev or test text; None where nobody asks."""


@dataclass(frozen=True)
class _Draw:
    """Passages of the corpus by position: the order they were drawn in, and how many are wanted."""

    order: Order
    wanted: int
    sizes: NDArray[np.int64]


def select_domain(
    settings: DomainSettings, folder: Path, *, corpus: Corpus, train_rows: int, seed: int, is_contaminated: Guarded
) -> dict[str, Any]:
    """Write the drawn passages in the order of the corpus; returns counts for the manifest.

    Those that hold a dev or test text are replaced by the next of the draw.
    """
    domain = domain_corpus(corpus, settings.sources)
    draw = _draw(domain, settings, train_rows, seed)
    with bar("domain", None):
        kept, dropped = _without_contaminated(domain, draw, is_contaminated)
        written = write_batches(folder / DOMAIN, _batches(domain, kept, draw, seed))
    if not written:
        raise InputError("no passage was drawn", key="domain.amount", hint="it is smaller than one passage")
    is_all = written + dropped == len(draw.sizes)
    is_less = is_all and _is_less(draw.sizes[kept], settings.amount.budget(train_rows))
    return {
        "passages": written,
        "bytes": int(draw.sizes[kept].sum()),
        "of_passages": len(draw.sizes),
        "dropped_by_contamination_filter": dropped,
        "sources": [source.name for source in domain.sources],
        **({"less_than_asked": settings.amount.in_words(train_rows)} if is_less else {}),
    }


def check_texts_exist(settings: Settings) -> None:
    """Objectives of pre-training that the user named must have corpus text to read, before any work is done."""
    if settings.skip_pretraining:
        return
    there = {"selection": settings.has_selection, "domain": bool(settings.corpus.sources)}
    for name, one in settings.pretrain.objectives.items():
        if one.weight and not there.get(one.reads, True):
            hint = f"--corpus path/to/text, or leave the objective out: pretrain.objectives.{name}.weight=0"
            raise InputError(f"there is no {one.reads} to read", key=f"pretrain.objectives.{name}.texts", hint=hint)


def check_sources_known(settings: Settings) -> None:
    """The domain is made of sources that the corpus has."""
    if settings.reads_domain and settings.domain.sources:
        domain_corpus(Corpus.read(settings.corpus), settings.domain.sources)


def domain_corpus(corpus: Corpus, names: Sequence[str]) -> Corpus:
    """The chosen sources of a corpus, or all of them; unknown names are refused.

    A passage that stands in several of the corpus's sources counts as one of the first chosen one that has it.
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


def _draw(domain: Corpus, settings: DomainSettings, train_rows: int, seed: int) -> _Draw:
    with bar("domain", domain.files_bytes(), unit="B") as advance:
        sizes = np.asarray([len(document.text.encode()) for document in domain.documents(advance)], dtype=np.int64)
    order = random_order(sizes, seed)
    kept = fill(order, sizes, settings.amount.budget(train_rows), corpus_bytes=int(sizes.sum()))
    return _Draw(order, len(kept), sizes)


def _is_less(kept: NDArray[np.int64], asked: SizeBudget | None) -> bool:
    """Whether kept passages, by their bytes, are fewer than an amount of passages or bytes; of a share none are."""
    if asked is None or asked.unit == "share":
        return False
    return bool((kept.sum() if asked.unit == "bytes" else len(kept)) < asked.amount)


def _without_contaminated(domain: Corpus, draw: _Draw, is_contaminated: Guarded) -> tuple[Order, int]:
    """The positions to keep, in the order of the corpus, and how many the contamination filter kept out."""
    if is_contaminated is None:
        return np.sort(draw.order[: draw.wanted]), 0
    spare = max(_FEWEST_SPARE, int(_SPARE_SHARE * draw.wanted))
    bad = np.zeros(len(draw.sizes), dtype=np.bool_)
    looked_at = clean = draw.order[:0]
    while len(clean) < draw.wanted and len(looked_at) < len(draw.order):
        start = len(looked_at)
        looked_at = draw.order[: start + draw.wanted - len(clean) + spare]
        for position, document in documents_at(domain, np.sort(looked_at[start:])):
            bad[position] = is_contaminated(document.text)
        clean = looked_at[~bad[looked_at]]
        spare *= 4  # every look reads the corpus once more
    return np.sort(clean[: draw.wanted]), int(bad.sum())


def _batches(domain: Corpus, kept: Order, draw: _Draw, seed: int) -> Iterator[Batch]:
    place = np.zeros(len(draw.sizes), dtype=np.int64)
    place[draw.order] = np.arange(1, len(draw.order) + 1)
    drawn = documents_at(domain, kept)
    while chunk := list(islice(drawn, _ROWS_PER_BATCH)):
        positions = np.asarray([position for position, _ in chunk], dtype=np.int64)
        yield selection_batch(
            [document for _, document in chunk],
            position=positions,
            rank=place[positions],
            score=np.zeros(len(chunk)),
            matched_count=np.zeros(len(chunk)),
            matched_queries=[()] * len(chunk),
            reason=[f"domain: draw {number} of seed {seed}" for number in place[positions].tolist()],
        )
