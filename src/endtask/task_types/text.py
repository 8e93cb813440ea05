"""One class for each text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.baselines import BaselineModel, logistic_regression, tfidf_models
from endtask.records import Label
from endtask.task.columns import WrongCell, as_class, is_missing
from endtask.task_types.base import Answers, Prediction, TaskType, task_types

if TYPE_CHECKING:
    from endtask.evaluation.metrics.base import Form
    from endtask.objectives.task_losses import TaskObjective
    from endtask.task import Task
    from endtask.task.columns import Columns
    from endtask.task.table import Table


@task_types.register("text")
class Text(TaskType):
    """One class for each text: cross-entropy."""

    aliases: ClassVar[tuple[str, ...]] = ("classification", "text_classification")
    form: ClassVar[Form] = "classes"
    one_label = True
    labels_of_train_only = True
    preferred_metrics: ClassVar[tuple[str, ...]] = (
        "macro_f1",
        "micro_f1",
        "accuracy",
        "matthews",
        "f1",
        "accuracy_f1",
    )
    card_title = "A text classifier"

    detection_order = 4

    def detect(self, columns: Columns, train: Table, labels: dict[int, Any], delimiter: str | None) -> bool:
        return True

    def as_label(self, value: Any) -> Label:
        if is_missing(value):
            raise WrongCell("the label is missing")
        if not isinstance(value, str | bool | int | float):
            raise WrongCell(f"the label is of type {type(value).__name__}, not one class", "see task.columns.label")
        return as_class(value)

    def to_array(self, answers: Sequence[Any], labels: Sequence[str]) -> Answers:
        number = {label: index for index, label in enumerate(labels)}
        return np.asarray([number[str(answer)] for answer in answers], dtype=np.int64)

    def to_names(self, answers: Answers, labels: Sequence[str]) -> list[Any]:
        return [labels[int(number)] for number in answers]

    def objective_class(self) -> type[TaskObjective]:
        from endtask.objectives.task_losses import Classification

        return Classification

    def decode(self, task: Task, split: str, outputs: NDArray[np.float32], threshold: float) -> Answers:
        best: Answers = outputs.argmax(axis=-1)
        return best

    def prediction(self, outputs: list[float], labels: Sequence[str], threshold: float) -> Any:
        best = max(range(len(outputs)), key=outputs.__getitem__)
        return Prediction(labels[best], outputs[best], dict(zip(labels, outputs, strict=True)))

    def linear_models(self, task: Task) -> Iterator[BaselineModel]:
        classes = len({example.label for example in task.train})
        models = (logistic_regression(strength, classes) for strength in (1.0, 10.0, 100.0))
        return tfidf_models(task, models, lambda predicted: predicted.astype(np.int64))


@task_types.register("pair")
class Pair(Text):
    """One class for each pair of texts, which the encoder reads together."""

    aliases: ClassVar[tuple[str, ...]] = ("sentence_pair",)
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")
    second_text: ClassVar[Literal["never", "optional", "always"]] = "always"
    card_title = "A classifier of text pairs"
    detection_order = 3

    def detect(self, columns: Columns, train: Table, labels: dict[int, Any], delimiter: str | None) -> bool:
        return columns.text_pair is not None
