"""The contract of selectors: a selector decides which retrieved passages the run trains on, and gives reasons.

A selector is one file: its options (`Config`), what it needs, what it rejects before anything is spent, and what it
does. Most selectors only implement `rank`; the budget is then filled from the best candidate down.
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


@dataclass(frozen=True)
class RunContext:
    """What a selector may read.

    `retrieved` is the folder of the retrieve stage; `corpus_bytes` is the size of all texts in the corpus, 0 without
    a corpus; `is_contaminated` returns whether a text contains a dev or test text (None: no check); `examples` are the
    train rows; `folder` is the stage's folder, also for scratch files; `device` is where a model computes vectors. A
    selector that trains a model also reads the `task`, all settings of the `run` and
    the `stage`, whose plan stores decisions for a resumed run.
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

    def fill_budget(self, order: Order, sizes: NDArray[np.int64], *, otherwise: str) -> Order:
        """Return the longest beginning of `order` that fits `select.budget`; `sizes` are bytes per candidate.

        Raises `InputError` where nothing fits; `otherwise` names the other possible cause.
        """
        selected = fill(order, sizes, self.settings.budget, corpus_bytes=self.corpus_bytes)
        if len(selected) == 0:
            hint = f"{otherwise}, or the budget is smaller than one passage"
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
    """All candidates in an order: `order` holds their indices, best first; `score` has one entry per candidate.

    `reasons` returns, for some indices, why each candidate has its rank; `counts` go into the manifest.
    """

    order: Order
    score: NDArray[np.float64]
    reasons: Callable[[Order], list[str]]
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SelectionCost:
    """The cost of a selector that runs a model, as `endtask check` prints it: seconds, and peak memory and disk.

    `fitting_seconds` are spent before the first candidate is scored; `budget_share` is the limit of all seconds, as a
    share of the training budget (None: no limit).
    """

    fitting_seconds: float
    scoring_seconds: float
    memory_bytes: float
    disk_bytes: float
    budget_share: float | None = None

    def is_refused(self, allowed: float) -> bool:
        """Return whether fitting alone takes more than the seconds allowed."""
        return self.fitting_seconds > allowed

    def within(self, allowed: float) -> tuple[float, str]:
        """Return the seconds of both under a limit in seconds, and a warning or an empty string.

        >>> SelectionCost(26, 10, 0, 0).within(4)
        (4, 'fitting the scoring models would take about 26 s, more than the 4 s that it may: a run would be refused')
        >>> SelectionCost(26, 10, 0, 0).within(31)
        (31, 'of the candidates, only about 50% would be scored, the best-ranked, in the 31 s that it may take')
        >>> SelectionCost(26, 10, 0, 0).within(60)
        (36, '')
        """
        if self.is_refused(allowed):
            fitting = f"fitting the scoring models would take about {self.fitting_seconds:.0f} s"
            return allowed, f"{fitting}, more than the {allowed:.0f} s that it may: a run would be refused"
        seconds = self.fitting_seconds + self.scoring_seconds
        if seconds <= allowed:
            return seconds, ""
        share = (allowed - self.fitting_seconds) / self.scoring_seconds
        few = f"of the candidates, only about {share:.0%} would be scored, the best-ranked"
        return allowed, f"{few}, in the {allowed:.0f} s that it may take"


class Selector:
    """Base class of selectors. Class attributes say what a selector needs; subclasses override what differs."""

    name: ClassVar[str]

    Config: ClassVar[type[PartConfig]] = PartConfig
    """The options that a user writes next to `select.name`; most selectors nest the class."""

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
    """Whether the selection is the plain BM25 ranking, with which others are compared."""
    memory_hint: ClassVar[str | None] = None
    """What a user can change where the selector runs out of memory."""

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
        """Return which labels the selection depends on; None: no labels."""
        return None

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` for settings that cannot work with this task and corpus, before anything is spent."""
        if self.requires_corpus and not has_corpus:
            raise InputError(f"{self.name} selects from a corpus", key="corpus.sources", hint="--corpus path/to/text")

    def cost(
        self, task: Task, sample: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
    ) -> SelectionCost | None:
        """Return what selecting from `candidates` passages costs beyond reading them; None where that is little.

        `sample` holds some rows of the task; trials that measure time write to `folder`.
        """
        return None

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return the candidates in an order, best first."""
        raise NotImplementedError

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write the selection to `path`, in the order of the corpus: by default the best-ranked that fit the budget."""
        candidates = read_statistics(run.table)
        ranking = self.rank(candidates, run)
        otherwise = "the corpus shares no word with the task"
        selected = run.fill_budget(ranking.order, candidates.bytes, otherwise=otherwise)

        def reason(batch: Batch, indices: Order) -> Any:
            return with_matched_query(ranking.reasons(indices), batch)

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
    """Return the highest score first; ties go to the better BM25 rank, then to the earlier passage."""
    return np.lexsort((np.arange(len(score)), -candidates.score, candidates.rank, -score))


def by_bm25_rank(candidates: Candidates) -> Order:
    """Return the best BM25 rank first; ties go to the higher score, then to the earlier passage."""
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
    limit = budget.amount if budget.unit == "bytes" else budget.amount * corpus_bytes
    # 29% of 100 bytes is 28.999999999999996 in floating point; a passage of 29 bytes fits all the same.
    return order[: int(np.searchsorted(np.cumsum(sizes[order]), np.floor(limit + 1e-6), side="right"))]


def budget_in_bytes(settings: SelectSettings, table: Path) -> SelectSettings:
    """Return the settings with a budget that is a share of the retrieved text converted to bytes."""
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
    is_selected = np.zeros(table_rows(candidates), dtype=bool)
    is_selected[selected] = True
    return write_batches(path, _selected_batches(candidates, is_selected, reason, new_values or {}))


def _selected_batches(
    candidates: Path, is_selected: NDArray[np.bool_], reason: Reason | None, new_values: NewValues
) -> Iterator[Batch]:
    import pyarrow as arrow

    schema = selection_schema()
    indices = np.flatnonzero(is_selected)
    start = 0
    for batch in read_batches(candidates, is_selected, schema.names):
        columns = [batch.column(name) for name in schema.names]
        here = indices[start : start + len(batch)]
        if reason is not None:
            columns[schema.get_field_index("reason")] = reason(batch, here)
        for name, values in new_values.items():
            columns[schema.get_field_index(name)] = arrow.array(values[here], schema.field(name).type)
        start += len(batch)
        yield arrow.RecordBatch.from_arrays(columns, schema=schema)


def with_matched_query(reasons: list[str], batch: Batch) -> Any:
    """Return the column of reasons, each followed by the passage's BM25 rank and the query that gave it."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    texts = arrow.array(reasons, arrow.string())
    return compute.binary_join_element_wise(texts, "; BM25 rank ", rank, " for ", matched_query, "")


def overlap(first: NDArray[Any], second: NDArray[Any]) -> dict[str, float]:
    """Return the passages in both as a share of `first` and of all in either (Jaccard); ids must not repeat.

    >>> overlap(np.array([1, 2]), np.array([2, 3, 4]))
    {'share': 0.5, 'jaccard': 0.25}
    """
    both = len(np.intersect1d(first, second, assume_unique=True))
    either = len(first) + len(second) - both
    return {"share": round(both / max(len(first), 1), 6), "jaccard": round(both / max(either, 1), 6)}
