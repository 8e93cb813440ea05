"""Any number of labels for each text or pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.baselines import BaselineModel, tfidf_models
from endtask.records import Example, Label
from endtask.task.columns import WrongCell, as_class, is_list, is_missing, split_cell
from endtask.task_types.base import Answers, LabelSet, TaskType, task_types

if TYPE_CHECKING:
    from torch import Tensor

    from endtask.evaluation.metrics.base import Form
    from endtask.objectives.task_losses import TaskObjective
    from endtask.task import Task
    from endtask.task.columns import Columns
    from endtask.task.table import Table


@task_types.register("multilabel")
class MultiLabel(TaskType):
    """Any number of labels for each text: binary cross-entropy of each."""

    aliases: ClassVar[tuple[str, ...]] = ("labels", "multi_label", "multi_label_classification")
    form: ClassVar[Form] = "label_sets"
    second_text: ClassVar[Literal["never", "optional", "always"]] = "optional"
    has_threshold = True
    splits_cells = True
    label_noun = "label"
    answer_phrase = "labels for a text"
    problem_type = "multi_label_classification"
    dimensions = 2
    preferred_metrics: ClassVar[tuple[str, ...]] = ("micro_f1", "macro_f1", "accuracy")
    card_title = "A classifier that gives texts any number of labels"
    card_call = 'label = pipeline("text-classification", "path/to/this/folder", truncation=True, top_k=None)'

    detection_order = 1

    def detect(self, columns: Columns, train: Table, labels: dict[int, Any], delimiter: str | None) -> bool:
        # A few other cells are mistakes in their rows, which the reader names, and no sign of another task type.
        return delimiter is not None or 2 * sum(map(is_list, labels.values())) > len(labels)

    def label_cell(self, row: Any, columns: Columns, delimiter: str | None) -> Any:
        cell = row.get(str(columns.label))
        if not isinstance(cell, str):
            return cell
        if cell.startswith("[") and cell.endswith("]"):
            return split_cell(cell, "labels")
        if not delimiter:
            hint = "name the delimiter of the labels in a cell: task.label_delimiter=';'"
            raise WrongCell(f"the labels are one string, {cell!r}", hint)
        return [name.strip() for name in cell.split(delimiter) if name.strip()]

    def as_label(self, value: Any) -> Label:
        """Return all labels that hold, each once and sorted; a row without any must have an empty list."""
        if value is None or not isinstance(value, list | tuple):
            problem = "missing" if value is None else f"of type {type(value).__name__}, not a list"
            raise WrongCell(f"the labels are {problem}", "type 'multilabel' needs a list in each row; [] if none holds")
        for index, name in enumerate(value, start=1):
            if is_missing(name) or not isinstance(name, str | bool | int | float):
                raise WrongCell(f"number {index} of the labels is {name!r}, not a name")
        return tuple(sorted({as_class(name) for name in value}))

    def label_names(self, examples: Sequence[Example]) -> tuple[str, ...]:
        return names_in_lists(examples)

    def to_array(self, answers: Sequence[Any], labels: Sequence[str]) -> Answers:
        number = {label: index for index, label in enumerate(labels)}
        table = np.zeros((len(answers), len(labels)), dtype=np.int64)
        for row, names in enumerate(answers):
            table[row, [number[name] for name in names]] = 1
        return table

    def to_names(self, answers: Answers, labels: Sequence[str]) -> list[Any]:
        return [[labels[index] for index in np.flatnonzero(row).tolist()] for row in answers]

    def objective_class(self) -> type[TaskObjective]:
        from endtask.objectives import task_losses

        return task_losses.MultiLabel

    def activation(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def learned_answers(self, task: Task, split: str) -> Answers:
        return super().learned_answers(task, split)[:, : len(task.labels)]

    def decode(self, task: Task, split: str, outputs: NDArray[np.float32], threshold: float) -> Answers:
        return _with_unknown(task, outputs >= threshold)

    def prediction(self, outputs: list[float], labels: Sequence[str], threshold: float) -> Any:
        by_label = dict(zip(labels, outputs, strict=True))
        return LabelSet(tuple(label for label, value in by_label.items() if value >= threshold), by_label)

    def commonest_phrase(self, answer: Any) -> str:
        return f"commonest labels ({', '.join(answer) or 'none'})"

    def linear_models(self, task: Task) -> Iterator[BaselineModel]:
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        models = (
            (
                OneVsRestClassifier(LogisticRegression(C=strength, max_iter=2000)),
                f"logistic regression per label (C={strength:g})",
            )
            for strength in (1.0, 10.0, 100.0)
        )
        return tfidf_models(task, models, lambda predicted: _with_unknown(task, predicted))


def names_in_lists(examples: Sequence[Example]) -> tuple[str, ...]:
    """Return the sorted names in the lists of labels or tags of some examples."""
    lists = (example.label for example in examples if isinstance(example.label, tuple))
    return tuple(sorted({name for names in lists for name in names}))


def _with_unknown(task: Task, table: NDArray[Any]) -> Answers:
    """Return 0 or 1 for each known label, followed by 0 for those that only dev or test have."""
    unknown = len(task.all_labels) - len(task.labels)
    return np.pad(table.astype(np.int64), ((0, 0), (0, unknown)))
