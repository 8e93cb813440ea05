"""The contract of a task type: its columns and labels, targets, head, loss, answers and defaults.

A type registers itself under the name that `task.type` takes. Other folders ask `task_types.get(task.type)()`. These
modules import torch inside methods only, since tasks are read and checked without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.baselines import BaselineModel
from endtask.records import Example, Label
from endtask.registry import task_types
from endtask.task.columns import WrongCell
from endtask.task.targets import Answers, targets

if TYPE_CHECKING:
    from torch import Tensor, nn

    from endtask.encoders.base import Encoder
    from endtask.encoders.batch import TextBatch
    from endtask.evaluation.metrics.base import Form
    from endtask.objectives.stream import TextStream
    from endtask.objectives.task_losses import TaskObjective
    from endtask.task import Task
    from endtask.task.columns import Columns
    from endtask.task.table import Table


__all__ = ["Answers", "TaskType", "task_types"]


class TaskType:
    """Base class of all task types. Objects have no state."""

    name: ClassVar[str]
    """Set by the registry."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names for it; messages name the right one."""
    form: ClassVar[Form]
    """What an answer is."""
    columns: ClassVar[tuple[str, ...]] = ("text", "label")
    """The roles of columns that its files must have."""
    second_text: ClassVar[Literal["never", "optional", "always"]] = "never"
    per_token: ClassVar[bool] = False
    """Whether the head reads every token, and words have answers; else texts have."""
    one_label: ClassVar[bool] = False
    """Whether each text or word has exactly one of the labels."""
    labels_of_train_only: ClassVar[bool] = False
    """Whether dev and test may only have labels that train has."""
    has_threshold: ClassVar[bool] = False
    """Whether a label is predicted where its probability reaches a threshold."""
    splits_cells: ClassVar[bool] = False
    """Whether `task.label_delimiter` separates labels in a cell."""
    label_noun: ClassVar[str] = "class"
    answer_phrase: ClassVar[str] = "one class for a text"
    """What a model answers, for messages."""
    problem_type: ClassVar[str | None] = None
    """What Hugging Face's sequence classifiers call it; None: one class for each text."""
    dtype: ClassVar[type] = np.int64
    dimensions: ClassVar[int] = 1
    """Of an array of answers."""
    preferred_metrics: ClassVar[tuple[str, ...]] = ()
    """The metrics of the reports in order; the first that fits the labels is the default."""
    card_title: ClassVar[str]
    card_pipeline: ClassVar[str] = "text-classification"
    card_call: ClassVar[str] = 'classify = pipeline("text-classification", "path/to/this/folder", truncation=True)'
    """The lines of a model card: what the model is, its pipeline on the hub, and how to call it."""

    detection_order: ClassVar[int] = 100
    """Of several types that fit a table, `task.type: auto` takes the one with the lowest number."""

    detection_note: ClassVar[str | None] = None
    """A note for the user where the type was detected."""

    # Reading

    def detect(self, columns: Columns, train: Table, labels: dict[int, Any], delimiter: str | None) -> bool:
        """Return whether a train table, whose labels are given by row, looks like a task of this type."""
        return False

    def label_cell(self, row: Any, columns: Columns, delimiter: str | None) -> Any:
        """Return the value of a row's label cell."""
        return row.get(str(columns.label))

    def words(self, row: Any, columns: Columns) -> tuple[str, ...] | None:
        """Return the words of a row, where the type reads words; else None."""
        return None

    def check_example(self, example: Example, label: Label | None) -> None:
        """Raise `WrongCell` where an example lacks something; called before and after its label is known."""
        if self.second_text == "always" and example.text_pair is None:
            raise WrongCell("the second text is missing")

    def as_label(self, value: Any) -> Label:
        """Return a label as this type writes it; raises `WrongCell`."""
        raise NotImplementedError

    def label_names(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """Return the sorted names of all labels of some examples."""
        return tuple(sorted({example.label for example in examples if isinstance(example.label, str)}))

    def label_values(self, examples: Sequence[Example]) -> set[Any]:
        """Return the different labels of some examples, of which a task needs at least two."""
        return set(self.label_names(examples))

    # Answers as arrays

    def to_array(self, answers: Sequence[Any], labels: Sequence[str]) -> Answers:
        """Return answers by name as one array of label numbers; an unknown name is a `KeyError`."""
        raise NotImplementedError

    def to_names(self, answers: Answers, labels: Sequence[str]) -> list[Any]:
        """Return the answers of an array by name, as a file holds them."""
        raise NotImplementedError

    def to_lists(self, answers: Answers) -> list[Any]:
        """Return answers as plain lists for JSON."""
        lists: list[Any] = answers.tolist()
        return lists

    def from_lists(self, rows: Sequence[Any]) -> Answers:
        """Return what `to_lists` wrote as an array again."""
        return np.asarray(rows, dtype=self.dtype)

    # Network

    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the head's outputs."""
        return labels

    def head(self, encoder: Encoder, config: Any) -> nn.Module:
        """Return a head with as many outputs as the configuration has labels."""
        return encoder.token_head(config) if self.per_token else encoder.task_head(config)

    def rows_read(self, batch: TextBatch) -> int:
        """Return how many vectors of a batch the head reads."""
        return batch.real_tokens if self.per_token else batch.texts

    def objective_class(self) -> type[TaskObjective]:
        """Return the class of the objective that learns such a task."""
        raise NotImplementedError

    def losses(self, logits: Tensor, batch: TextBatch) -> Tensor:
        """Return the loss of each answer: (S, outputs) -> (S,), of words (N, outputs) -> (N,)."""
        return self.objective_class().losses(logits, batch)

    def activation(self, logits: Tensor) -> Tensor:
        """Return what is averaged over windows and shown: probabilities, or numbers as they are."""
        return logits.softmax(-1)

    def objective(self, task: Task, name: str, stream: TextStream, *, head: str, split: str) -> TaskObjective:
        """Return the objective that learns a split, whose packed texts the stream reads."""
        texts, objective_class = stream.texts, cast(Any, self.objective_class())
        weights = (1.0 / texts.windows[texts.examples]).astype(np.float32)  # the windows of one long text count as one
        answers = self.learned_answers(task, split)[texts.examples]
        objective: TaskObjective = objective_class(name, stream, answers, head=head, text_weights=weights)
        return objective

    def learned_answers(self, task: Task, split: str) -> Answers:
        """Return the answers of a split as targets of the loss."""
        return targets(task, split)

    # Predictions

    def decode(self, task: Task, split: str, outputs: NDArray[np.float32], threshold: float) -> Answers:
        """Return the answers for activated outputs (rows or words, outputs), as an array like the targets."""
        raise NotImplementedError

    def prediction(self, outputs: list[float], labels: Sequence[str], threshold: float) -> Any:
        """Return the prediction for one text from the activated outputs."""
        raise NotImplementedError

    # Baselines

    def commonest(self, task: Task) -> BaselineModel:
        """Return the model that gives the commonest answer of train; the first in alphabetical order of several."""
        counts = Counter(example.label for example in task.train)
        commonest = min(counts, key=lambda label: (-counts[label], label))
        answer = self.to_array([commonest], task.all_labels)
        return BaselineModel(lambda rows: np.repeat(answer, len(rows), axis=0), self.commonest_phrase(commonest))

    def commonest_phrase(self, answer: Any) -> str:
        """Return the name in reports of the model that always gives this answer."""
        return f"majority class ({answer!r})"

    def linear_models(self, task: Task) -> Iterator[BaselineModel]:
        """Return linear models of different strengths, of which dev chooses one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Prediction:
    """The most probable label, and the probability of every label."""

    label: str
    probability: float
    probabilities: dict[str, float]

    @property
    def value(self) -> str:
        """The label."""
        return self.label

    def __str__(self) -> str:
        return f"{self.label}\t{self.probability:.4f}"

    def columns(self) -> dict[str, Any]:
        """Return the cells of a table with predictions, by column."""
        return {"label": self.label, **_probability_columns(self.probabilities)}


@dataclass(frozen=True)
class Score:
    """A number on the scale of the training data."""

    score: float

    @property
    def value(self) -> float:
        """The number."""
        return self.score

    def __str__(self) -> str:
        return f"{self.score:.4f}"

    def columns(self) -> dict[str, Any]:
        """Return the cells of a table with predictions, by column."""
        return {"score": self.score}


@dataclass(frozen=True)
class LabelSet:
    """All labels that are probable enough, and the probability of every label."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]

    @property
    def value(self) -> list[str]:
        """The labels."""
        return list(self.labels)

    def __str__(self) -> str:
        return ", ".join(self.labels)

    def columns(self) -> dict[str, Any]:
        """Return the cells of a table with predictions, by column."""
        return {"labels": list(self.labels), **_probability_columns(self.probabilities)}


@dataclass(frozen=True)
class Tagged:
    """A tag for each word, its probability (0 for a word that was cut off), and the spans that the tags make."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    spans: tuple[dict[str, Any], ...]

    @property
    def value(self) -> list[str]:
        """The tags."""
        return list(self.tags)

    def __str__(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def columns(self) -> dict[str, Any]:
        """Return the cells of a table with predictions, by column."""
        return {"tags": list(self.tags), "tag_probabilities": list(self.probabilities)}


def _probability_columns(probabilities: Mapping[str, float]) -> dict[str, Any]:
    return {f"probability_{label}": value for label, value in probabilities.items()}


Answer = Prediction | Score | LabelSet | Tagged
