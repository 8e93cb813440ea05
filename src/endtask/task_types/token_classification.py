"""A tag for each word of a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.baselines import BaselineModel, word_models
from endtask.evaluation.metrics.spans import scheme_of
from endtask.records import Example, Label
from endtask.task.columns import WrongCell, as_class, split_cell
from endtask.task.targets import NO_WORD, padded, ragged, targets
from endtask.task_types.base import Answers, TaskType, task_types
from endtask.task_types.multilabel import names_in_lists

if TYPE_CHECKING:
    from endtask.evaluation.metrics.base import Form
    from endtask.objectives.stream import TextStream
    from endtask.objectives.task_losses import TaskObjective
    from endtask.task import Task
    from endtask.task.columns import Columns
    from endtask.task.table import Table


@task_types.register("token_classification")
class TokenClassification(TaskType):
    """A tag for each word: cross-entropy at the first token of every word."""

    aliases: ClassVar[tuple[str, ...]] = ("ner", "tagging", "tags")
    form: ClassVar[Form] = "tags"
    columns: ClassVar[tuple[str, ...]] = ("tokens", "tags")
    per_token = True
    one_label = True
    label_noun = "tag"
    dimensions = 2
    preferred_metrics: ClassVar[tuple[str, ...]] = ("span_f1", "accuracy", "exact_match")
    card_title = "A tagger of words"
    card_pipeline = "token-classification"
    card_call = 'tag = pipeline("token-classification", "path/to/this/folder", aggregation_strategy="first")'

    detection_order = 0

    def detect(self, columns: Columns, train: Table, labels: dict[int, Any], delimiter: str | None) -> bool:
        """Return whether the tags column holds tags; `labels` next to `tokens` may hold one class a row."""
        first = train.rows[0][1] if train.rows else {}
        if not (columns.tokens and columns.tags):
            return False
        return isinstance(first.get(columns.tags), list) or isinstance(first.get(columns.tokens), str)

    def label_cell(self, row: Any, columns: Columns, delimiter: str | None) -> Any:
        return row.get(str(columns.tags))

    def words(self, row: Any, columns: Columns) -> tuple[str, ...] | None:
        return as_words(row.get(str(columns.tokens)), "tokens")

    def check_example(self, example: Example, label: Label | None) -> None:
        if example.tokens is None:
            raise WrongCell("the tokens are missing")
        if isinstance(label, tuple) and len(label) != len(example.tokens):
            raise WrongCell(f"{len(example.tokens)} tokens but {len(label)} tags", "one tag for each token")

    def as_label(self, value: Any) -> Label:
        return as_words(value, "tags")

    def label_names(self, examples: Sequence[Example]) -> tuple[str, ...]:
        return names_in_lists(examples)

    def to_array(self, answers: Sequence[Any], labels: Sequence[str]) -> Answers:
        number = {label: index for index, label in enumerate(labels)}
        return padded([[number[tag] for tag in tags] for tags in answers])

    def to_names(self, answers: Answers, labels: Sequence[str]) -> list[Any]:
        return [[labels[number] for number in row] for row in self.to_lists(answers)]

    def to_lists(self, answers: Answers) -> list[Any]:
        """Return the tags of each row, without padding."""
        return ragged(answers)

    def from_lists(self, rows: Sequence[Any]) -> Answers:
        return padded(rows)

    def objective_class(self) -> type[TaskObjective]:
        from endtask.objectives.task_losses import Tagging

        return Tagging

    def objective(self, task: Task, name: str, stream: TextStream, *, head: str, split: str) -> TaskObjective:
        from endtask.encoders.batch import IGNORED
        from endtask.objectives.task_losses import Tagging
        from endtask.tokenization.packed_texts import WordStarts

        answers = targets(task, split)
        tags = answers[answers != NO_WORD]
        tags = np.where(tags < len(task.labels), tags, IGNORED)  # the head has no outputs for tags that train lacks
        return Tagging(name, stream, WordStarts(stream.texts), tags, head=head)

    def decode(self, task: Task, split: str, outputs: NDArray[np.float32], threshold: float) -> Answers:
        """Return the best tags; a word that was cut off gets the tag of words outside spans, or train's commonest."""
        best = np.where(outputs.any(axis=-1), outputs.argmax(axis=-1), task.labels.index(default_tag(task)))
        table = targets(task, split)
        table[table != NO_WORD] = best
        return table

    def commonest(self, task: Task) -> BaselineModel:
        """Return each word's commonest tag; a word that train does not have gets the tag of words outside spans."""
        number = {tag: index for index, tag in enumerate(task.labels)}
        counts: dict[str, Counter[int]] = {}
        for example in task.train:
            assert isinstance(example.label, tuple)
            for word, tag in zip(example.tokens or (), example.label, strict=True):
                counts.setdefault(word.lower(), Counter())[number[tag]] += 1
        best = {word: min(tags, key=lambda tag: (-tags[tag], tag)) for word, tags in counts.items()}
        default = number[default_tag(task)]

        def predict(examples: Sequence[Example]) -> Answers:
            return padded([[best.get(word.lower(), default) for word in example.tokens or ()] for example in examples])

        return BaselineModel(predict, "each word's commonest tag in train")

    def linear_models(self, task: Task) -> Iterator[BaselineModel]:
        return word_models(task)


def as_words(value: Any, column: str) -> tuple[str, ...]:
    """Return the strings of a list, or of a CSV cell with a JSON list or words between blanks; tags may be integers."""
    if isinstance(value, str):
        value = split_cell(value, column)
    if not isinstance(value, list | tuple):
        problem = "missing" if value is None else f"of type {type(value).__name__}, not a list"
        raise WrongCell(f"the {column} are {problem}")
    if column == "tags":
        value = [as_class(tag) if isinstance(tag, int) else tag for tag in value]
    for index, word in enumerate(value, start=1):
        if not isinstance(word, str) or not word.strip():
            raise WrongCell(f"number {index} of the {column} is {word!r}, not a word")
    return tuple(value)


def default_tag(task: Task) -> str:
    """Return the tag for words that no model has seen: that of words outside spans, or train's commonest."""

    counts = Counter(tag for example in task.train if isinstance(example.label, tuple) for tag in example.label)
    outside = {"bio": "O", "ends": "none"}.get(scheme_of(task.labels), "")
    return next(
        (tag for tag in task.labels if tag.lower() == outside.lower()), max(counts, key=lambda tag: counts[tag])
    )
