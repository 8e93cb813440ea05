"""The rows of dev and test with their predictions as a Parquet table; docs/reference/predictions.md has the columns.

The predicted answer follows from the mean of the seeds' probabilities; the votes are the answers of each seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.outputs import Outputs, answers_of
from endtask.io.atomic import atomic_file
from endtask.records import Example
from endtask.task import Task, leaked_ids
from endtask.task.targets import NO_WORD, Answers, targets

if TYPE_CHECKING:
    from endtask.evaluation.vectors import TrainVectors, Vectors

FORMAT = 1
NEIGHBORS = 3
"""Nearest train rows that are stored for each row."""
METADATA = b"endtask"
"""The key of the JSON object in the table's metadata: format, task, type, labels, seeds, metric."""
_ROWS_PER_GROUP = 2_000
Row = dict[str, Any]


@dataclass(frozen=True)
class SplitPredictions:
    """The answers and outputs of every seed for a split, by seed; `vectors` are those of the saved seed, if known."""

    split: str
    answers: Mapping[int, Answers]
    outputs: Mapping[int, Outputs]
    threshold: float = 0.5
    vectors: Vectors | None = None


def prediction_schema(form: str, metadata: Mapping[str, Any]) -> Any:
    """Return the Arrow schema for answers of a form: classes, numbers, label_sets or tags."""
    import pyarrow as arrow

    text, number = arrow.string(), arrow.float32()
    answer = {"classes": text, "numbers": arrow.float64()}.get(form, arrow.list_(text))
    probabilities = arrow.list_(arrow.list_(number)) if form == "tags" else arrow.list_(number)
    columns = [
        ("split", text),
        ("id", text),
        ("text", text),
        ("text_pair", text),
        ("tokens", arrow.list_(text)),
        ("test_set", text),
        ("words", arrow.int32()),
        ("leaked", arrow.bool_()),
        ("label", answer),
        ("predicted", answer),
        ("right", arrow.bool_()),
        ("confidence", number),
        ("probabilities", probabilities),
        ("votes", arrow.list_(arrow.struct([("seed", arrow.int32()), ("answer", answer)]))),
        ("neighbors", arrow.list_(arrow.struct([("id", text), ("similarity", number)]))),
    ]
    return arrow.schema(columns, metadata={METADATA: json.dumps(metadata, ensure_ascii=False)})


def write_prediction_table(
    path: Path, task: Task, splits: Sequence[SplitPredictions], metric: str, train: TrainVectors | None = None
) -> int:
    """Write the rows of some splits, a group of rows at a time. Return their number."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    metadata = {
        "format": FORMAT,
        "task": task.name,
        "type": task.type,
        "labels": list(task.labels),
        "seeds": list(splits[0].answers),
        "metric": metric,
    }
    schema, count = prediction_schema(task.task_type.form, metadata), 0
    with atomic_file(path) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for found in splits:
            rows, pending = _rows(task, found, train), []
            for row in rows:
                pending.append(row)
                if len(pending) == _ROWS_PER_GROUP:
                    writer.write_table(arrow.Table.from_pylist(pending, schema=schema))
                    pending = []
                count += 1
            if pending:
                writer.write_table(arrow.Table.from_pylist(pending, schema=schema))
    return count


def _rows(task: Task, found: SplitPredictions, train: TrainVectors | None) -> Iterator[Row]:
    """Yield the rows of a split as plain values."""
    examples, task_type = task.splits[found.split], task.task_type
    mean = mean_outputs(found.outputs)
    predicted = answers_of(task, found.split, mean, threshold=found.threshold)
    names = task_type.to_names(predicted, task.all_labels)
    votes = {seed: task_type.to_names(answers, task.all_labels) for seed, answers in found.answers.items()}
    leaked = leaked_ids(task, found.split)
    probabilities = _probabilities(task, found.split, mean)
    confidences = _confidences(task, found.split, mean, predicted)
    near = _neighbors(task, found.vectors, train)
    for index, example in enumerate(examples):
        yield {
            **_text_columns(example),
            "split": found.split,
            "leaked": example.id in leaked,
            "label": example.label,
            "predicted": names[index],
            "right": None if task_type.form == "numbers" else _plain(names[index]) == _plain(example.label),
            "confidence": next(confidences),
            "probabilities": next(probabilities),
            "votes": [{"seed": seed, "answer": answers[index]} for seed, answers in votes.items()],
            "neighbors": next(near),
        }


def mean_outputs(outputs: Mapping[int, Outputs]) -> Outputs:
    """Return the mean over the seeds, without a copy of all of them at once."""
    total = np.zeros_like(next(iter(outputs.values())))
    for one in outputs.values():
        total += one
    mean: Outputs = total / np.float32(len(outputs))
    return mean


def _text_columns(example: Example) -> Row:
    return {
        "id": example.id,
        "text": example.text,
        "text_pair": example.text_pair,
        "tokens": example.tokens,
        "test_set": example.part,
        "words": len(f"{example.text} {example.text_pair or ''}".split()),
    }


def _plain(answer: Any) -> Any:
    return list(answer) if isinstance(answer, tuple) else answer


def _words_of_rows(task: Task, split: str) -> NDArray[np.int64]:
    """Return the number of words of each tagged row."""
    counts: NDArray[np.int64] = (targets(task, split) != NO_WORD).sum(axis=1)
    return counts


def _probabilities(task: Task, split: str, outputs: Outputs) -> Iterator[Any]:
    """Yield the probabilities of each row: one for each label, for each word of tagged rows; None for numbers."""
    if task.task_type.form == "tags":
        ends = np.cumsum(_words_of_rows(task, split))
        yield from (
            outputs[end - size : end].tolist() for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)
        )
    elif task.task_type.form == "numbers":
        yield from (None for _ in outputs)
    else:
        yield from (row.tolist() for row in outputs)


def _confidences(task: Task, split: str, outputs: Outputs, predicted: Answers) -> Iterator[float | None]:
    """Yield the probability of each predicted answer; of rows with several answers the lowest."""
    form = task.task_type.form
    if form == "numbers":
        yield from (None for _ in outputs)
    elif form == "classes":
        yield from map(float, outputs.max(axis=1))
    elif form == "label_sets":
        chosen = predicted[:, : outputs.shape[1]].astype(bool)
        yield from map(float, np.where(chosen, outputs, 1.0 - outputs).min(axis=1, initial=1.0))
    else:
        best, ends = outputs.max(axis=1), np.cumsum(_words_of_rows(task, split))
        for end, size in zip(ends, np.diff(ends, prepend=0), strict=True):
            yield float(best[end - size : end].min(initial=1.0))


def _neighbors(task: Task, vectors: Vectors | None, train: TrainVectors | None) -> Iterator[list[Row] | None]:
    """Yield the nearest train rows of each row; None where vectors are not known."""
    if vectors is None or train is None:
        while True:
            yield None
    for near in train.nearest(vectors, NEIGHBORS):
        yield [{"id": task.train[index].id, "similarity": similarity} for index, similarity in near]
