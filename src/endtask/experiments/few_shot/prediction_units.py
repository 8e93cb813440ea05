"""What predictions are made for: the rows of a task, or for tags the words of each row that a token stands for."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.experiments.few_shot.label_draws import Indices, TaskRows
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, numbered
from endtask.task_types.token_classification import default_tag
from endtask.tokenization.packed_texts import PackedTexts, WordStarts, runs

_SMALLEST = 1e-7  # a probability of 0 would make the perplexity of all infinite
LARGEST_LOSS = -math.log(_SMALLEST)
"""The highest cross-entropy that a single prediction counts with."""


class PredictionUnits:
    """The rows' units one after the other: row r has `offsets[r]` up to `offsets[r + 1]`; `classes` are the targets.

    A class that no row of train has cannot be predicted; its units count for nothing.
    """

    def __init__(self, task: Task, rows: TaskRows, texts: PackedTexts) -> None:
        self._task, self.type, self.per_token = task, task.type, task.task_type.per_token
        self.known = len(task.labels)
        self.truth: Answers = numbered([example.label for example in rows.examples], task.type, task.all_labels)
        if not self.per_token:
            self.offsets = np.arange(len(rows.examples) + 1)
            self.words = np.arange(len(rows.examples))
            self.classes: Indices = self.truth
            return
        words = WordStarts(texts)
        everything = np.arange(len(texts))
        self.words, _ = words.gather(everything, np.zeros(len(texts), dtype=np.int64))
        ends = np.cumsum(words.words)
        self.offsets = np.searchsorted(self.words, np.concatenate([[0], ends]))
        self.classes = self.truth[self.truth != NO_WORD][self.words]

    def of(self, rows: Indices) -> Indices:
        """Return the units of some rows, row after row."""
        return runs(self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows])

    def has_target(self, units: Indices) -> NDArray[np.bool_]:
        """Return which units count."""
        return np.asarray(self.classes[units] < self.known)

    def predictions(self, rows: Indices, probabilities: NDArray[np.float32]) -> Answers:
        """Return the predictions of some rows in the form of `truth`; words without a token get the usual tag."""
        best = probabilities.argmax(axis=-1)
        if not self.per_token:
            return np.asarray(best, dtype=np.int64)
        table = np.where(self.truth == NO_WORD, NO_WORD, self._usual_tag)
        flat = table[self.truth != NO_WORD]
        flat[self.words[self.of(rows)]] = best
        table[self.truth != NO_WORD] = flat
        return table[rows]

    @cached_property
    def _usual_tag(self) -> int:
        return self._task.labels.index(default_tag(self._task))

    def losses(self, rows: Indices, probabilities: NDArray[np.float32]) -> tuple[NDArray[np.float64], Indices]:
        """Return the cross-entropy of each row, summed over its units, and the number of these units."""
        units = self.of(rows)
        counted = self.has_target(units)
        targets = np.where(counted, self.classes[units], 0)
        likelihood = probabilities[np.arange(len(units)), targets].astype(np.float64)
        each = np.where(counted, -np.log(np.maximum(likelihood, _SMALLEST)), 0.0)
        owner = np.repeat(np.arange(len(rows)), self.offsets[rows + 1] - self.offsets[rows])
        sums = np.bincount(owner, weights=each, minlength=len(rows)).astype(np.float64)
        return sums, np.bincount(owner, weights=counted, minlength=len(rows)).astype(np.int64)


def pack_rows(rows: TaskRows, tokenizer_folder: Path, max_length: int, folder: Path) -> PackedTexts:
    """Return all rows tokenised as one set of texts, by the tokenizer of a run."""
    from endtask.tokenization.packing import pack_task_texts
    from endtask.tokenization.tokenizer import load_tokenizer

    return pack_task_texts(rows.examples, load_tokenizer(tokenizer_folder), max_length, folder)
