"""What answers are given to: the rows of a task, or for tags the words of each row that a token stands for."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.few_examples.draws import Numbers, Rows
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, numbered
from endtask.task_types.token_classification import default_tag
from endtask.tokenization.packed_texts import PackedTexts, runs
from endtask.tokenization.word_alignment import WordStarts

_SMALLEST = 1e-7  # an impossible answer would make the perplexity of all infinite
MOST_SURPRISE = -math.log(_SMALLEST)
"""The highest cross-entropy that a single answer counts with."""


class Units:
    """The rows' units end to end: those of row r are `offsets[r]` up to `offsets[r + 1]`; `classes` are the right ones.

    A class that no row of train has cannot be answered; its units ask nothing.
    """

    def __init__(self, task: Task, rows: Rows, texts: PackedTexts) -> None:
        self._task, self.type, self.per_token = task, task.type, task.task_type.per_token
        self.known = len(task.labels)
        self.truth: Answers = numbered([example.label for example in rows.examples], task.type, task.all_labels)
        if not self.per_token:
            self.offsets = np.arange(len(rows.examples) + 1)
            self.places = np.arange(len(rows.examples))
            self.classes: Numbers = self.truth
            return
        words = WordStarts(texts)
        everything = np.arange(len(texts))
        self.places, _ = words.gather(everything, np.zeros(len(texts), dtype=np.int64))
        ends = np.cumsum(words.words)
        self.offsets = np.searchsorted(self.places, np.concatenate([[0], ends]))
        self.classes = self.truth[self.truth != NO_WORD][self.places]

    def of(self, rows: Numbers) -> Numbers:
        """The units of some rows, row after row."""
        return runs(self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows])

    def asked(self, units: Numbers) -> NDArray[np.bool_]:
        """Which units ask something."""
        return np.asarray(self.classes[units] < self.known)

    def answers(self, rows: Numbers, probabilities: NDArray[np.float32]) -> Answers:
        """The answers of some rows in the form of `truth`; words without a token get the tag of words outside spans."""
        best = probabilities.argmax(axis=-1)
        if not self.per_token:
            return np.asarray(best, dtype=np.int64)
        whole = np.where(self.truth == NO_WORD, NO_WORD, self._usual)
        everywhere = whole[self.truth != NO_WORD]
        everywhere[self.places[self.of(rows)]] = best
        whole[self.truth != NO_WORD] = everywhere
        return whole[rows]

    @cached_property
    def _usual(self) -> int:
        return self._task.labels.index(default_tag(self._task))

    def surprise(self, rows: Numbers, probabilities: NDArray[np.float32]) -> tuple[NDArray[np.float64], Numbers]:
        """The cross-entropy of each row, summed over its units, and how many units that is."""
        units = self.of(rows)
        asked = self.asked(units)
        right = np.where(asked, self.classes[units], 0)
        chances = probabilities[np.arange(len(units)), right].astype(np.float64)
        each = np.where(asked, -np.log(np.maximum(chances, _SMALLEST)), 0.0)
        owner = np.repeat(np.arange(len(rows)), self.offsets[rows + 1] - self.offsets[rows])
        sums = np.bincount(owner, weights=each, minlength=len(rows)).astype(np.float64)
        return sums, np.bincount(owner, weights=asked, minlength=len(rows)).astype(np.int64)


def packed_rows(rows: Rows, tokenizer_folder: Path, max_length: int, folder: Path) -> PackedTexts:
    """All rows tokenised as one set of texts, by the tokenizer of a run."""
    from endtask.tokenization.packing import pack_task_texts
    from endtask.tokenization.tokenizer import load_tokenizer

    return pack_task_texts(rows.examples, load_tokenizer(tokenizer_folder), max_length, folder)
