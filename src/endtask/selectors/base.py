"""The contract of selectors: a selector decides which retrieved passages the run trains on, and gives reasons.

A selector is one file with its options (`Config`), its needs, its checks and its method. Most selectors only implement
`rank`; `Selector.select` then fills the budget from the best candidate down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from endtask.config import SelectSettings, Settings, SizeBudget
from endtask.config.data_usage import DataUse
from endtask.config.section import PartConfig
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import (
    Batch,
    SelectionStatistics,
    read_batches,
    read_statistics,
    selection_schema,
    table_rows,
    write_batches,
)
from endtask.io.stage_folder import StageFolder
from endtask.records import Example
from endtask.registry import selectors
from endtask.task import Task

__all__ = ["Candidates", "Order", "PartConfig", "Ranking", "RunContext", "Selected", "Selector", "selectors"]

Order = NDArray[np.int64]
"""Indices of candidates, best first."""

Candidates = SelectionStatistics
"""The table of retrieved passages in columns: `rank`, `score`, `bytes` and `class_ranks`, one entry per candidate."""

Reason = Callable[[Batch, Order], Any]
"""Returns the column of reasons for a batch of selected rows, given their indices in the table of candidates."""

NewValues = Mapping[str, NDArray[Any]]
"""Values that replace a column, one for each row of the table of candidates."""

NO_COMMON_WORD = "the corpus shares no word with the task"


@dataclass(frozen=True)
class RunContext:
    """What a selector may read.

    `retrieved` is the folder of the retrieve stage; `corpus_bytes` is the size of all texts in the corpus, 0 without
    a corpus; `is_contaminated` returns whether a text contains a dev or test text (None: no check); `examples` are the
    train rows; `folder` is the stage's folder, also for scratch files; `device` computes the vectors of a model. A
    selector that trains a model also reads the `task`, all settings of the `run` and the `stage`, whose plan stores
    decisions for a resumed run.
    """

    settings: SelectSettings
    retrieved: Path
    corpus: Corpus | None = None
    corpus_bytes: int = 0
    seed: int = 0
    is_contaminated: Callable[[str], bool] | None = None
    examples: Sequence[Example] = ()
    folder: Path | None = None
    device: str = "auto"
    task: Task | None = None
    run: Settings | None = None
    stage: StageFolder | None = None

    @property
    def table(self) -> Path:
        """The Parquet file of the candidates, with their texts."""
        return self.retrieved / RETRIEVED

    def fill_budget(self, order: Order, sizes: NDArray[np.int64], *, cause: str) -> Order:
        """Return the longest beginning of `order` that fits `select.budget`; `sizes` are bytes per candidate.

        Raise `InputError` if nothing fits: `cause` applies, or the budget is smaller than a passage.
        """
        selected = fill(order, sizes, self.settings.budget, corpus_bytes=self.corpus_bytes)
        if len(selected) == 0:
            hint = f"{cause}, or the budget is smaller than one passage"
            raise InputError("no passage was selected", key="select.budget", hint=hint)
        return selected


@dataclass(frozen=True)
class Selected:
    """The size of a selection: passages, bytes of text, and more counts for the manifest."""

    passages: int
    bytes: int
    counts: dict[str, Any]


@dataclass(frozen=True)
class Ranking:
    """All candidates ranked: `order` holds their indices, best first; `score` has one entry per candidate.

    `reasons` takes indices and returns why each candidate has its rank; `counts` go into the manifest.
    """

    order: Order
    score: NDArray[np.float64]
    reasons: Callable[[Order], list[str]]
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SelectionCost:
    """The cost of a selector that runs a model: seconds, peak memory and peak disk space.

    Fitting ends before the first candidate is scored. `budget_share` limits all seconds to a share of the training
    budget (None: no limit).
    """

    fitting_seconds: float
    scoring_seconds: float
    memory_bytes: float
    disk_bytes: float
    budget_share: float | None = None

    def is_refused(self, allowed: float) -> bool:
        """Return whether fitting alone takes longer than allowed."""
        return self.fitting_seconds > allowed

    def within(self, allowed: float) -> tuple[float, str]:
        """Return the seconds of fitting and scoring under a limit in seconds, and a warning or an empty string.

        >>> SelectionCost(26, 10, 0, 0).within(4)
        (4, 'fitting the scoring models would take about 26 s, more than the 4 s allowed: a run would be refused')
        >>> SelectionCost(26, 10, 0, 0).within(31)
        (31, 'only about 50% of the candidates, the best-ranked, would be scored in the 31 s allowed')
        >>> SelectionCost(26, 10, 0, 0).within(60)
        (36, '')
        """
        if self.is_refused(allowed):
            fitting = f"fitting the scoring models would take about {self.fitting_seconds:.0f} s"
            return allowed, f"{fitting}, more than the {allowed:.0f} s allowed: a run would be refused"
        seconds = self.fitting_seconds + self.scoring_seconds
        if seconds <= allowed:
            return seconds, ""
        share = (allowed - self.fitting_seconds) / self.scoring_seconds
        scored = f"only about {share:.0%} of the candidates, the best-ranked, would be scored"
        return allowed, f"{scored} in the {allowed:.0f} s allowed"


class Selector:
    """Base class of selectors. Class attributes say what a selector needs; subclasses override what differs."""

    name: ClassVar[str]

    Config: ClassVar[type[PartConfig]] = PartConfig
    """The options that a user writes next to `select.name`; selectors with options nest a class of this name."""

    selects: ClassVar[bool] = True
    """False: the run trains without corpus text."""
    reads_candidates: ClassVar[bool] = True
    """Whether the selector reads the passages that BM25 retrieved."""
    requires_corpus: ClassVar[bool] = True
    """Whether a run without a corpus is an error."""
    opens_corpus: ClassVar[bool] = False
    """Whether the selector reads the corpus itself, not only the retrieved passages."""
    runs_model: ClassVar[bool] = False
    """Whether the selector runs or trains a model on the device."""
    filters_contamination: ClassVar[bool] = False
    """Whether the selector drops texts that contain a dev or test text; retrieved passages are filtered already."""
    is_plain_rank: ClassVar[bool] = False
    """Whether the selection is the plain BM25 ranking, the reference of the comparison in `quality`."""
    memory_hint: ClassVar[str | None] = None
    """What a user can change if the selector runs out of memory."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def parts(self) -> tuple[Selector, ...]:
        """Return this selector and the selectors that it combines."""
        return (self,)

    def reads_corpus(self, budget: SizeBudget | None) -> bool:
        """Return whether the selection depends on the corpus under this budget."""
        return self.selects and (self.reads_candidates or self.opens_corpus)

    def external_path(self) -> str | None:
        """Return the file or model that the selector reads in addition to the corpus, as the user wrote it."""
        return None

    def external_digest(self) -> str:
        """Return a hash of the content of `external_path`."""
        raise NotImplementedError

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the dotted keys outside `select` and `seed` that change the selection."""
        return ()

    def inputs_read(self) -> tuple[str, ...]:
        """Return the external inputs of the run that the selector reads: `tokenizer`, `checkpoint`."""
        return ()

    def data_usage(self) -> DataUse | None:
        """Return which labels the selection depends on; None if it depends on none."""
        return None

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` for settings that cannot work with this task and corpus, before anything is spent."""
        if self.requires_corpus and not has_corpus:
            raise InputError(f"{self.name} selects from a corpus", key="corpus.sources", hint="--corpus path/to/text")

    def cost(
        self, task: Task, sample: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
    ) -> SelectionCost | None:
        """Estimate the cost of a selection from `candidates` passages beyond reading them; None if it is small.

        `sample` holds some rows of the task; trials that measure time write to `folder`.
        """
        return None

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return all candidates, best first."""
        raise NotImplementedError

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write the selection to `path`, in the order of the corpus: by default the best-ranked that fit the budget."""
        candidates = read_statistics(run.table)
        ranking = self.rank(candidates, run)
        selected = run.fill_budget(ranking.order, candidates.bytes, cause=NO_COMMON_WORD)

        def reason(batch: Batch, indices: Order) -> Any:
            return with_matched_query([f"{text}; BM25 rank " for text in ranking.reasons(indices)], batch)

        new_values = {"rank": ranks_of(ranking.order), "score": ranking.score}
        written = write_rows(run.table, selected, path, reason, new_values)
        return Selected(written, int(candidates.bytes[selected].sum()), ranking.counts)


def ranks_of(order: Order) -> Order:
    """Return the rank of each candidate, from 1.

    >>> ranks_of(np.array([2, 0, 1])).tolist()
    [2, 3, 1]
    """
    ranks = np.empty_like(order)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def by_score(score: NDArray[np.float64], candidates: Candidates) -> Order:
    """Sort by falling score; ties go to the better BM25 rank, then to the earlier passage."""
    return np.lexsort((np.arange(len(score)), -candidates.score, candidates.rank, -score))


def by_bm25_rank(candidates: Candidates) -> Order:
    """Sort by BM25 rank; ties go to the higher score, then to the earlier passage."""
    return np.lexsort((np.arange(len(candidates.rank)), -candidates.score, candidates.rank))


def fill(order: Order, sizes: NDArray[np.int64], budget: SizeBudget | None, *, corpus_bytes: int) -> Order:
    """Return the longest beginning of `order` that fits the budget; `sizes` are the bytes of every candidate.

    >>> fill(np.array([2, 0, 1]), np.array([10, 20, 30]), SizeBudget.parse("41B"), corpus_bytes=60)
    array([2, 0])
    """
    if budget is None:
        return order
    if budget.unit == "passages":
        return order[: int(budget.amount)]
    assert budget.unit != "retrieved", "budget_in_bytes converts it"
    limit = budget.bytes_of(corpus_bytes)
    # 29% of 100 bytes is 28.999999999999996 in floating point; a passage of 29 bytes fits all the same.
    return order[: int(np.searchsorted(np.cumsum(sizes[order]), np.floor(limit + 1e-6), side="right"))]


def budget_in_bytes(settings: SelectSettings, table: Path) -> SelectSettings:
    """Return the settings with a budget in bytes instead of a share of the retrieved text; other budgets stay."""
    budget = settings.budget
    if budget is None or budget.unit != "retrieved":
        return settings
    # As in `fill`: 29% of 100 bytes are 29 bytes.
    allowed = int(budget.amount * int(read_statistics(table).bytes.sum()) + 1e-6)
    return settings.model_copy(update={"budget": SizeBudget(allowed, "bytes", f"{allowed}B")})


def write_rows(
    candidates: Path, selected: Order, path: Path, reason: Reason | None = None, new_values: NewValues | None = None
) -> int:
    """Write the selected rows of a table in the table's order and return their number.

    `reason` and `new_values` replace columns.
    """
    is_selected = mask_of(selected, table_rows(candidates))
    return write_batches(path, _selected_batches(candidates, is_selected, reason, new_values or {}))


def mask_of(indices: Order, size: int) -> NDArray[np.bool_]:
    """Return a mask of `size` entries that is true at `indices`."""
    mask = np.zeros(size, dtype=bool)
    mask[indices] = True
    return mask


def values_at(table: Path, column: str, indices: Order) -> dict[int, str]:
    """Return the values of a column of a selection table at some indices, by index."""
    mask = mask_of(indices, table_rows(table))
    values = [value for batch in read_batches(table, mask, [column]) for value in batch.column(0).to_pylist()]
    return dict(zip(np.flatnonzero(mask).tolist(), values, strict=True))


def _selected_batches(
    candidates: Path, is_selected: NDArray[np.bool_], reason: Reason | None, new_values: NewValues
) -> Iterator[Batch]:
    import pyarrow as arrow

    schema = selection_schema()
    indices = np.flatnonzero(is_selected)
    start = 0
    for batch in read_batches(candidates, is_selected, schema.names):
        columns = [batch.column(name) for name in schema.names]
        batch_indices = indices[start : start + len(batch)]
        if reason is not None:
            columns[schema.get_field_index("reason")] = reason(batch, batch_indices)
        for name, values in new_values.items():
            columns[schema.get_field_index(name)] = arrow.array(values[batch_indices], schema.field(name).type)
        start += len(batch)
        yield arrow.RecordBatch.from_arrays(columns, schema=schema)


def with_matched_query(texts: list[str], batch: Batch) -> Any:
    """Return the texts as a column, each followed by the passage's BM25 rank and the query that gave it."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    return compute.binary_join_element_wise(arrow.array(texts, arrow.string()), rank, " for ", matched_query, "")


def overlap(first: NDArray[Any], second: NDArray[Any]) -> dict[str, float]:
    """Return the number of shared passages as a share of `first` and of the union (Jaccard); ids must be unique.

    >>> overlap(np.array([1, 2]), np.array([2, 3, 4]))
    {'share': 0.5, 'jaccard': 0.25}
    """
    both = len(np.intersect1d(first, second, assume_unique=True))
    either = len(first) + len(second) - both
    return {"share": round(both / max(len(first), 1), 6), "jaccard": round(both / max(either, 1), 6)}
