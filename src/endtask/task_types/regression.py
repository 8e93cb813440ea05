"""A number for each text or pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.evaluation.baselines import BaselineModel, tfidf_models
from endtask.records import Example, Label
from endtask.task.columns import WrongCell, as_number, is_missing
from endtask.task.targets import score_scale, targets
from endtask.task_types.base import Answers, Score, TaskType, task_types

if TYPE_CHECKING:
    from torch import Tensor

    from endtask.evaluation.metrics.base import Form
    from endtask.objectives.task_losses import TaskObjective
    from endtask.task import Task
    from endtask.task.columns import Columns
    from endtask.task.table import Table

SCORE = "score"
"""The name of the only output."""


@task_types.register("regression")
class Regression(TaskType):
    """A number for each text: squared error of standardised scores."""

    aliases: ClassVar[tuple[str, ...]] = ("score",)
    form: ClassVar[Form] = "numbers"
    second_text: ClassVar[Literal["never", "optional", "always"]] = "optional"
    label_noun = "score"
    answer_phrase = "a score for a text"
    problem_type = "regression"
    dtype = np.float64
    preferred_metrics: ClassVar[tuple[str, ...]] = ("pearson", "spearman", "pearson_spearman", "r2")
    card_title = "A model that gives texts a score"
    card_call = (
        'score = pipeline("text-classification", "path/to/this/folder", truncation=True, function_to_apply="none")'
    )

    detection_order = 2
    detection_note = "type regression: every label is a number, some have a fractional part (else set task.type)"

    def detect(self, columns: Columns, train: Table, labels: dict[int, Any], delimiter: str | None) -> bool:
        return _are_scores(labels, train.path)

    def as_label(self, value: Any) -> Label:
        if is_missing(value):
            raise WrongCell("the label is missing")
        number = as_number(value)
        if number is None:
            raise WrongCell(f"the label {value!r} is not a number", "type 'regression' needs numbers; see task.type")
        return number

    def label_values(self, examples: Sequence[Example]) -> set[Any]:
        return {example.label for example in examples}

    def to_array(self, answers: Sequence[Any], labels: Sequence[str]) -> Answers:
        return np.asarray(answers, dtype=np.float64)

    def to_names(self, answers: Answers, labels: Sequence[str]) -> list[Any]:
        return [float(value) for value in answers]

    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        return (SCORE,)

    def objective_class(self) -> type[TaskObjective]:
        from endtask.objectives import task_losses

        return task_losses.Regression

    def activation(self, logits: Tensor) -> Tensor:
        return logits

    def learned_answers(self, task: Task, split: str) -> Answers:
        mean, deviation = score_scale(task)
        return (super().learned_answers(task, split) - mean) / deviation

    def decode(self, task: Task, split: str, outputs: NDArray[np.float32], threshold: float) -> Answers:
        mean, deviation = score_scale(task)
        return mean + deviation * outputs[:, 0].astype(np.float64)

    def prediction(self, outputs: list[float], labels: Sequence[str], threshold: float) -> Any:
        return Score(outputs[0])

    def commonest(self, task: Task) -> BaselineModel:
        mean = float(np.mean(targets(task, "train")))
        return BaselineModel(lambda examples: np.full(len(examples), mean), f"the mean of train ({mean:.3g})")

    def linear_models(self, task: Task) -> Iterator[BaselineModel]:
        from sklearn.linear_model import Ridge

        models = ((Ridge(alpha=penalty), f"ridge regression (alpha={penalty:g})") for penalty in (0.1, 1.0, 10.0))
        return tfidf_models(task, models, lambda predicted: predicted.astype(np.float64))


def _are_scores(labels: dict[int, Any], path: str) -> bool:
    """Return whether labels, by row, are numbers with fractions; raises for a word among such numbers."""
    numbers = {row: as_number(label) for row, label in labels.items()}
    if not any(number % 1 for number in numbers.values() if number):
        return False
    words = [row for row, number in numbers.items() if number is None]
    if 2 * len(words) >= len(numbers):
        return False
    if words:
        message = f"the label {labels[words[0]]!r} is not a number, as {len(numbers) - len(words):,} others are"
        raise InputError(message, path=path, row=words[0], hint="set task.type=text or pair if these are classes")
    return True
