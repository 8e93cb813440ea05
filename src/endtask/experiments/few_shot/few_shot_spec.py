"""The spec of a few-shot experiment: numbers of labels, draws of them, and the weights to train on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from endtask.config.messages import explain
from endtask.config.section import MOST, Fraction, Positive, PositiveNumber, Section, Seed
from endtask.errors import InputError

TrainedPart = Literal["head", "transformer", "all"]
Head = Literal["new", "keep"]
Tasks = Literal["main", "all"]
Labels = Annotated[tuple[Positive, ...], Field(min_length=1)]
LearningRates = Annotated[tuple[PositiveNumber, ...], Field(min_length=1)]

DEFAULT_LABELS = (50, 100, 150, 200, 1000)
_DEFAULT_LEARNING_RATES: dict[TrainedPart, float] = {"head": 1e-3, "transformer": 1e-4, "all": 1e-4}


class FewShotRow(Section):
    """A row of a few-shot table: a pre-trained variant, the weights to train, and the row's training values."""

    variant: str = Field(description="the variant whose pre-trained encoder is trained on few labels")
    title: str | None = Field(None, description="the row's name in the table; unset: made from the values below")
    train: TrainedPart = Field("head", description="head, transformer (head and layers) or all (embeddings too)")
    head: Head = Field("new", description="new: random weights; keep: the head of pre-training")
    tasks: Tasks = Field("main", description="main: the end task only; all: together with the auxiliary tasks")
    learning_rates: LearningRates | None = Field(None, description="unset: the section's")
    epochs: Positive | None = Field(None, description="unset: the section's")
    patience: Positive | None = Field(None, description="unset: the section's")
    contrastive: float | None = Field(None, ge=0, description="unset: the section's")

    @model_validator(mode="after")
    def encoder_is_trained(self) -> FewShotRow:
        if self.contrastive and self.train == "head":
            raise ValueError("contrastive: brings vectors of the encoder together; train transformer or all")
        return self


class FewShotTable(Section):
    """A table of a few-shot study; every row is tested against the first."""

    title: str = Field("", description="the heading of the table")
    rows: Annotated[tuple[FewShotRow, ...], Field(min_length=1)] = Field(description="the rows, in order")
    labels: Labels | None = Field(None, description="numbers of labels; unset: the section's")
    tasks: tuple[str, ...] | None = Field(None, description="the tasks of the study that have the table; unset: all")


class FewShotSpec(Section):
    """Numbers of labels x draws x seeds x learning rates, for each combination of trained part, head and tasks."""

    labels: Labels | None = Field(
        None, description="numbers of labels to train on; unset: 50, 100, 150, 200 and 1000 if there are enough rows"
    )
    samples: Positive = Field(5, description="draws of labels from train, each scored on test")
    folds: int | None = Field(
        None, ge=2, le=MOST, description="instead of samples: the number of folds of a cross-validation over all rows"
    )
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = Field(
        (0, 1), description="seeds of heads, batches and dropout, for each draw"
    )
    train: Annotated[tuple[TrainedPart, ...], Field(min_length=1)] = Field(
        ("head",), description="weights to train: head, transformer (head and layers) or all (embeddings too)"
    )
    head: Annotated[tuple[Head, ...], Field(min_length=1)] = Field(
        ("new",), description="new: random weights; keep: the head of pre-training's aligned objective or task"
    )
    tasks: Annotated[tuple[Tasks, ...], Field(min_length=1)] = Field(
        ("main",), description="main: the end task only; all: alternating with as many labels of each auxiliary task"
    )
    learning_rates: LearningRates | None = Field(
        None, description="the best on held-out rows is scored; unset: 1e-3 for heads, else 1e-4"
    )
    epochs: Positive = Field(50, description="maximum; the epoch with the best held-out perplexity is scored")
    patience: Positive | None = Field(
        10, description="number of epochs without improvement after which a trial stops; null: never"
    )
    batch_size: Positive = Field(64, description="texts in a batch")
    dropout: Fraction = Field(0.1, description="before the last layer; everywhere if the encoder is trained")
    contrastive: float = Field(
        0.0, ge=0, description="weight of the contrastive loss of `finetune.contrastive`, where the encoder is trained"
    )
    held_out: Annotated[float, Field(gt=0, le=1)] | Literal["dev"] = Field(
        0.25, description="rows that choose the epoch: a share of the labels, drawn in addition; dev: the dev split"
    )
    seed: Seed = Field(0, description="seed of the draws")
    tables: dict[str, FewShotTable] = Field({}, description="name: a table of a study")

    @field_validator("labels", "seeds", "train", "head", "tasks", "learning_rates")
    @classmethod
    def values_are_unique(cls, values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        repeated = next((value for value, count in Counter(values or ()).items() if count > 1), None)
        if repeated is not None:
            raise ValueError(f"{repeated} is listed twice")
        return values

    @model_validator(mode="after")
    def values_fit_together(self) -> FewShotSpec:
        if self.folds is not None and self.held_out == "dev":
            raise ValueError("held_out: dev: with folds, the rows of dev are scored as well; give a share")
        if self.contrastive and self.train == ("head",):
            raise ValueError("contrastive: brings vectors of the encoder together; train transformer or all")
        if "head" in self.train and "main" not in self.tasks:
            raise ValueError("tasks: all: a head alone learns nothing from other tasks; train transformer or all")
        return self

    def combinations(self, variant: str) -> Iterator[FewShotRow]:
        """Yield a row for every combination, except heads with other tasks, from which a head learns nothing.

        >>> rows = FewShotSpec(train=("head", "all"), tasks=("main", "all")).combinations("a")
        >>> [(row.train, row.head, row.tasks) for row in rows]
        [('head', 'new', 'main'), ('all', 'new', 'main'), ('all', 'new', 'all')]
        """
        for train, head, tasks in product(self.train, self.head, self.tasks):
            if (train, tasks) != ("head", "all"):
                yield FewShotRow(variant=variant, train=train, head=head, tasks=tasks)

    def learning_rates_of(self, train: TrainedPart) -> tuple[float, ...]:
        """Return the learning rates to try.

        >>> FewShotSpec().learning_rates_of("head")
        (0.001,)
        """
        return self.learning_rates or (_DEFAULT_LEARNING_RATES[train],)

    def stops_after(self, epoch: int, best: int) -> bool:
        """Return whether a trial stops after an epoch; `best` is its best epoch so far, or 0.

        >>> spec = FewShotSpec(patience=3)
        >>> spec.stops_after(7, best=4), spec.stops_after(6, best=4), FewShotSpec(patience=None).stops_after(9, 1)
        (True, False, False)
        """
        return epoch == self.epochs or (self.patience is not None and epoch - best >= self.patience)

    def held_out_rows(self, labels: int) -> int:
        """Return the number of rows that choose the epoch, at least two, for a number of labels.

        >>> FewShotSpec().held_out_rows(200)
        50
        """
        assert self.held_out != "dev"
        return max(2, round(self.held_out * labels))

    def trials(self, labels: tuple[int, ...], train: TrainedPart) -> Iterator[FewShotTrial]:
        """Yield every trial, ordered by the number of labels."""
        for number in labels:
            for rate in self.learning_rates_of(train):
                for draw in range(self.folds or self.samples):
                    yield from (FewShotTrial(number, draw, seed, rate) for seed in self.seeds)


@dataclass(frozen=True, order=True)
class FewShotTrial:
    """A trial: its number of labels, their draw, its seed and its learning rate."""

    labels: int
    draw: int
    seed: int
    learning_rate: float

    @property
    def file_name(self) -> str:
        """The name of the trial's result file.

        >>> FewShotTrial(200, 0, 1, 1e-3).file_name
        'labels-200-draw-0-seed-1-lr-0.001.json'
        """
        return f"labels-{self.labels}-draw-{self.draw}-seed-{self.seed}-lr-{self.learning_rate:g}.json"


def check_few_shot(tree: Mapping[str, Any]) -> FewShotSpec:
    """Return the spec with the values of flags. Raise `InputError` for a wrong value.

    >>> check_few_shot({"train": ["heads"]})
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: key 'train': must be 'head', 'transformer' or 'all', got 'heads' (did you mean 'head'?)
    """
    try:
        return FewShotSpec.model_validate(dict(tree))
    except ValidationError as error:
        message = str(explain(error, None, root=FewShotSpec))
        raise InputError(re.sub(r"^(key '\w+)\.\d+'", r"\1'", message)) from None  # a flag lists its values
