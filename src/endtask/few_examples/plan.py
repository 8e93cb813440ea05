"""What is asked of few-example learning: how many labels, which draws of them, and what learns from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from endtask.config.messages import explain
from endtask.config.section import Fraction, Positive, PositiveNumber, Section
from endtask.errors import InputError

Trained = Literal["head", "transformer", "all"]
Head = Literal["new", "keep"]
Tasks = Literal["main", "all"]
USUAL_LABELS = (50, 100, 150, 200, 1000)
_USUAL_RATES: dict[Trained, float] = {"head": 1e-3, "transformer": 1e-4, "all": 1e-4}


class Plan(Section):
    """Numbers of labels x draws x seeds x rates, for each line: what is trained, from which head, with which tasks."""

    labels: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = Field(
        None, description="how many labels are learned from; unset: 50, 100, 150, 200 and 1000 as far as there are any"
    )
    samples: Positive = Field(5, description="draws of labels from train, each scored on test")
    folds: int | None = Field(
        None, ge=2, description="instead: all rows in so many parts, each scored by what learned from the others"
    )
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = Field(
        (0, 1), description="of heads, batches and dropout, for each draw"
    )
    train: Annotated[tuple[Trained, ...], Field(min_length=1)] = Field(
        ("head",), description="what learns: the prediction layers alone, the transformer too, the embeddings too"
    )
    head: Annotated[tuple[Head, ...], Field(min_length=1)] = Field(
        ("new",),
        description="new: random weights; keep: those of pre-training's aligned objective, or of its task head",
    )
    tasks: Annotated[tuple[Tasks, ...], Field(min_length=1)] = Field(
        ("main",), description="main: the end task learns alone; all: as many labels of each auxiliary task beside it"
    )
    learning_rates: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] | None = Field(
        None, description="of several, the best on held-out rows counts; unset: 1e-3 for heads, else 1e-4"
    )
    epochs: Positive = Field(50, description="at most: the one with the best perplexity on held-out rows counts")
    patience: Positive | None = Field(
        10, description="a run ends after so many epochs without a better one; null: after all of them"
    )
    batch_size: Positive = Field(64, description="texts in a batch")
    dropout: Fraction = Field(0.1, description="before the last layer; of a body that learns, everywhere")
    held_out: Annotated[float, Field(gt=0, le=1)] | Literal["dev"] = Field(
        0.25, description="rows that choose the epoch, as a share of the labels and beside them; dev: the dev split"
    )
    seed: int = Field(0, ge=0, description="of the draws")

    @field_validator("labels", "seeds", "train", "head", "tasks", "learning_rates")
    @classmethod
    def values_differ(cls, values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        twice = next((value for value, number in Counter(values or ()).items() if number > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} stands twice")
        return values

    @model_validator(mode="after")
    def parts_fit(self) -> Plan:
        if self.folds is not None and self.held_out == "dev":
            raise ValueError("held_out: dev: with folds, the rows of dev are scored as well; give a share")
        if "head" in self.train and "main" not in self.tasks:
            raise ValueError("tasks: all: a head alone learns nothing from other tasks; train transformer or all")
        return self

    def lines(self) -> Iterator[tuple[Trained, Head, Tasks]]:
        """The lines of a run; heads alone learn nothing from other tasks, so they have none with all of them.

        >>> list(Plan(train=("head", "all"), tasks=("main", "all")).lines())
        [('head', 'new', 'main'), ('all', 'new', 'main'), ('all', 'new', 'all')]
        """
        for train in self.train:
            for head in self.head:
                yield from ((train, head, tasks) for tasks in self.tasks if (train, tasks) != ("head", "all"))

    def rates(self, train: Trained) -> tuple[float, ...]:
        """The learning rates to try.

        >>> Plan().rates("head")
        (0.001,)
        """
        return self.learning_rates or (_USUAL_RATES[train],)

    def is_over(self, epoch: int, best: int) -> bool:
        """Whether a run ends after an epoch, given its best so far (0: none yet).

        >>> Plan(patience=3).is_over(7, best=4), Plan(patience=3).is_over(6, best=4), Plan(patience=None).is_over(9, 1)
        (True, False, False)
        """
        return epoch == self.epochs or (self.patience is not None and epoch - best >= self.patience)

    def held_out_rows(self, labels: int) -> int:
        """How many rows choose the epoch beside so many labels, at least two.

        >>> Plan().held_out_rows(200)
        50
        """
        assert self.held_out != "dev"
        return max(2, round(self.held_out * labels))

    def keys(self, labels: tuple[int, ...], train: Trained) -> Iterator[Key]:
        """Every run that is asked for, those of like size behind each other."""
        draws = self.folds or self.samples
        for number in labels:
            for rate in self.rates(train):
                for draw in range(draws):
                    yield from (Key(number, draw, seed, rate) for seed in self.seeds)


@dataclass(frozen=True, order=True)
class Key:
    """One run: how many labels it learns from, of which draw, by which seed and at which rate."""

    labels: int
    draw: int
    seed: int
    rate: float

    @property
    def file_name(self) -> str:
        """Where its result stands.

        >>> Key(200, 0, 1, 1e-3).file_name
        'labels-200-draw-0-seed-1-rate-0.001.json'
        """
        return f"labels-{self.labels}-draw-{self.draw}-seed-{self.seed}-rate-{self.rate:g}.json"


def check_plan(tree: Mapping[str, Any]) -> Plan:
    """Check what flags say.

    >>> check_plan({"train": ["heads"]})
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: key 'pretrain': must be 'head', 'transformer' or 'all', got 'heads' (did you mean 'head'?)
    """
    try:
        return Plan.model_validate(dict(tree))
    except ValidationError as error:
        told = explain(error, None, root=Plan)
        raise InputError(re.sub(r"^(key '\w+)\.\d+'", r"\1'", str(told))) from None  # a flag lists its values
