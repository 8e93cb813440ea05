"""What a selector is: which retrieved passages are trained on, and why.

A selector is one file: its options (`Config`), what it needs, what it refuses before anything is spent, and what it
does. Most selectors only implement `rank`; the budget is then filled from the best candidate down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from endtask.config import SelectSettings, Settings, SizeBudget
from endtask.config.data_usage import DataUse
from endtask.config.part_section import PartConfig
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import SelectionStatistics
from endtask.io.stage_folder import StageFolder
from endtask.records import Example
from endtask.registry import selectors
from endtask.task import Task

__all__ = ["Candidates", "Order", "PartConfig", "Ranking", "RunContext", "Selected", "Selector", "selectors"]

Order = NDArray[np.int64]
"""Indices of candidates, best first."""

Candidates = SelectionStatistics
"""The table of retrieved passages in columns: `rank`, `score`, `bytes` and `class_ranks`, one entry per candidate."""


@dataclass(frozen=True)
class RunContext:
    """Everything a selector may read.

    `retrieved` is the folder of the retrieve stage; `corpus_bytes` is the size of all texts in the corpus, 0 without
    one; `labels` are the task's classes; `is_contaminated` tells whether a text contains a dev or test text (None: no
    check); `examples` are the train rows; `folder` is where the stage writes and scratch files may lie; `device` is
    where a model computes vectors. A selector that trains a model also reads the `task`, all settings of the `run` and
    the `stage`, whose plan stores decisions for a resumed run.
    """

    settings: SelectSettings
    retrieved: Path
    corpus: Corpus | None = None
    corpus_bytes: int = 0
    labels: tuple[str, ...] = ()
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


@dataclass(frozen=True)
class Selected:
    """What a selector selected: passages, bytes of text, and more counts for the manifest."""

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


class SelectionCost(Protocol):
    """What a selector that runs a model needs, as `endtask check` prints it."""

    @property
    def memory_bytes(self) -> float:
        """The most memory that is held at a time."""
        ...

    @property
    def disk_bytes(self) -> float:
        """The most disk that is held at a time."""
        ...

    @property
    def budget_share(self) -> float | None:
        """The most that it may cost, as a share of the training budget."""
        ...

    def within(self, allowed: float) -> tuple[float, str]:
        """Return the seconds that it takes where so many are allowed, and a warning or an empty string."""
        ...

    def is_refused(self, allowed: float) -> bool:
        """Whether it cannot start where so many seconds are allowed."""
        ...


class Selector:
    """Base class of selectors. Class attributes say what a selector needs; subclasses override what differs."""

    name: ClassVar[str]

    Config: ClassVar[type[PartConfig]] = PartConfig
    """The options that stand beside `select.name`: a nested class in most selectors."""

    selects: ClassVar[bool] = True
    """False: the run trains without corpus text."""
    reads_candidates: ClassVar[bool] = True
    """Whether the passages that BM25 retrieved are read."""
    requires_corpus: ClassVar[bool] = True
    """Whether a run without a corpus is refused."""
    opens_corpus: ClassVar[bool] = False
    """Whether the corpus itself is opened once more, not only what was retrieved."""
    runs_model: ClassVar[bool] = False
    """Whether a model runs or is trained, so that the device counts."""
    filters_contamination: ClassVar[bool] = False
    """Whether the selector itself drops texts that contain a dev or test text; retrieved ones are filtered already."""
    memory_hint: ClassVar[str | None] = None
    """What to change where the selector runs out of memory."""

    @property
    def is_plain_rank(self) -> bool:
        """Whether the selection is the best BM25 rank itself, which others are compared with."""
        return False

    def __init__(self, config: Any) -> None:
        self.config = config

    def parts(self) -> tuple[Selector, ...]:
        """Return this selector, and those that it combines."""
        return (self,)

    def reads_corpus(self, budget: SizeBudget | None) -> bool:
        """Whether the corpus has a part in the selection under a budget."""
        return self.selects and (self.reads_candidates or self.opens_corpus)

    def external_path(self) -> str | None:
        """Return the file or model that is read beside the corpus, as the user wrote it."""
        return None

    def external_digest(self) -> str:
        """Return what identifies the content of `external_path`."""
        raise NotImplementedError

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the dotted keys that change the selection beside the section `select` and the seed."""
        return ()

    def inputs_read(self) -> tuple[str, ...]:
        """Return the external inputs of the run that are read too: `tokenizer`, `checkpoint`."""
        return ()

    def data_usage(self) -> DataUse | None:
        """Return which labels have a part in the selection, if any have."""
        return None

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
        """Raise `InputError` for settings that cannot work with this task and corpus, before anything is spent."""
        if self.requires_corpus and not has_corpus:
            raise InputError(f"{self.name} selects from a corpus", key="corpus.sources", hint="--corpus path/to/text")

    def cost(
        self, task: Task, sample: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
    ) -> SelectionCost | None:
        """Return what selecting from so many candidates costs beyond reading them; None where that is little.

        `sample` holds some rows of the task, to be timed in `folder`.
        """
        return None

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return the candidates in an order, best first."""
        raise NotImplementedError

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write the selection to `path`, in the order of the corpus: by default the best-ranked that fit the budget."""
        from endtask.selectors.ranking import select_best

        return select_best(self, run, path)


def check_per_class(per_class: bool, labels: tuple[str, ...]) -> None:
    """Raise `InputError` where the budget is to be divided among classes and the task has none."""
    if per_class and not labels:
        message = "the task has no classes to divide the budget among"
        raise InputError(message, key="select.per_class", hint="set it to false")
