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
from endtask.config.objectives import is_tlm
from endtask.corpus import Corpus
from endtask.errors import InputError, did_you_mean
from endtask.io.run_layout import DOMAIN
from endtask.io.selection_table import Batch, selection_batch, write_batches
from endtask.progress import bar
from endtask.selectors.base import Order, fill
from endtask.selectors.random import documents_at, random_order

_ROWS_PER_BATCH = 1000
_SPARE_SHARE, _FEWEST_SPARE = 0.02, 50

ContaminationCheck = Callable[[str], bool] | None
"""Returns whether a text contains a dev or test text; None: no check."""


@dataclass(frozen=True)
class _Draw:
    """Passages of the corpus by position: the order in which they were drawn, and how many are needed."""

    order: Order
    needed: int
    sizes: NDArray[np.int64]


def select_domain(
    settings: DomainSettings,
    folder: Path,
    *,
    corpus: Corpus,
    train_rows: int,
    seed: int,
    is_contaminated: ContaminationCheck,
) -> dict[str, Any]:
    """Write the drawn passages in the order of the corpus; returns counts for the manifest.

    The next of the draw replaces a passage that contains a dev or test text.
    """
    domain = domain_corpus(corpus, settings.sources)
    draw = _draw(domain, settings, train_rows, seed)
    with bar("domain", None):
        selected, dropped = _without_contaminated(domain, draw, is_contaminated)
        written = write_batches(folder / DOMAIN, _batches(domain, selected, draw, seed))
    if not written:
        raise InputError("no passage was drawn", key="domain.amount", hint="it is smaller than one passage")
    is_all = written + dropped == len(draw.sizes)
    is_less = is_all and _is_less(draw.sizes[selected], settings.amount.budget(train_rows))
    return {
        "passages": written,
        "bytes": int(draw.sizes[selected].sum()),
        "of_passages": len(draw.sizes),
        "dropped_by_contamination_filter": dropped,
        "sources": [source.name for source in domain.sources],
        **({"less_than_requested": settings.amount.in_words(train_rows)} if is_less else {}),
    }


def check_texts_exist(settings: Settings) -> None:
    """Raise `InputError` for an objective of pre-training that has no text to read."""
    if settings.skip_pretraining or is_tlm(settings.pretrain.objectives):  # TLM's objectives without text are left out
        return
    available = {"selection": settings.has_selection, "domain": bool(settings.corpus.sources)}
    for name, objective in settings.pretrain.objectives.items():
        if objective.weight and not available.get(objective.reads, True):
            hint = f"--corpus path/to/text, or leave the objective out: pretrain.objectives.{name}.weight=0"
            raise InputError(
                f"there is no {objective.reads} to read", key=f"pretrain.objectives.{name}.texts", hint=hint
            )


def check_sources_known(settings: Settings) -> None:
    """Raise `InputError` for a source of the domain that the corpus lacks."""
    if settings.reads_domain and settings.domain.sources:
        domain_corpus(Corpus.read(settings.corpus), settings.domain.sources)


def domain_corpus(corpus: Corpus, names: Sequence[str]) -> Corpus:
    """Return the chosen sources of a corpus, or all of them; raises `InputError` for unknown names.

    A passage that is in several sources counts for the first chosen source that has it.
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
    selected = fill(order, sizes, settings.amount.budget(train_rows), corpus_bytes=int(sizes.sum()))
    return _Draw(order, len(selected), sizes)


def _is_less(sizes: NDArray[np.int64], requested: SizeBudget | None) -> bool:
    """Return whether passages of these bytes are fewer than the requested amount; never less than a share."""
    if requested is None or requested.unit == "share":
        return False
    return bool((sizes.sum() if requested.unit == "bytes" else len(sizes)) < requested.amount)


def _without_contaminated(domain: Corpus, draw: _Draw, is_contaminated: ContaminationCheck) -> tuple[Order, int]:
    """Return the positions to select, in the order of the corpus, and how many the contamination filter dropped."""
    if is_contaminated is None:
        return np.sort(draw.order[: draw.needed]), 0
    spare = max(_FEWEST_SPARE, int(_SPARE_SHARE * draw.needed))
    bad = np.zeros(len(draw.sizes), dtype=np.bool_)
    checked = clean = draw.order[:0]
    while len(clean) < draw.needed and len(checked) < len(draw.order):
        start = len(checked)
        checked = draw.order[: start + draw.needed - len(clean) + spare]
        for position, document in documents_at(domain, np.sort(checked[start:])):
            bad[position] = is_contaminated(document.text)
        clean = checked[~bad[checked]]
        spare *= 4  # every round reads the corpus once more
    return np.sort(clean[: draw.needed]), int(bad.sum())


def _batches(domain: Corpus, selected: Order, draw: _Draw, seed: int) -> Iterator[Batch]:
    draw_number = np.zeros(len(draw.sizes), dtype=np.int64)
    draw_number[draw.order] = np.arange(1, len(draw.order) + 1)
    drawn = documents_at(domain, selected)
    while chunk := list(islice(drawn, _ROWS_PER_BATCH)):
        positions = np.asarray([position for position, _ in chunk], dtype=np.int64)
        yield selection_batch(
            [document for _, document in chunk],
            position=positions,
            rank=draw_number[positions],
            score=np.zeros(len(chunk)),
            matched_count=np.zeros(len(chunk)),
            matched_queries=[()] * len(chunk),
            reason=[f"domain: draw {number} of seed {seed}" for number in draw_number[positions].tolist()],
        )
