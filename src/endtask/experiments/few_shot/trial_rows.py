"""The rows and batches of trials, the units (texts or words) that they predict, and the vectors of units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.config import BatchSize
from endtask.encoders.batch import TextBatch, batch_shape_for, lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM, Draw, Indices, TaskRows, held_out_of
from endtask.objectives.stream import TextStream
from endtask.seeds import derive
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, numbered
from endtask.task_types.token_classification import default_tag
from endtask.tokenization.packed_texts import PackedTexts, WordStarts, runs
from endtask.tokenization.sampling import BatchPlan

_SMALLEST_PROBABILITY = 1e-7  # a probability of 0 would make the perplexity infinite
_TEXTS_PER_BATCH = 64


class PredictionUnits:
    """The units of all rows: row r has those from `offsets[r]` to `offsets[r + 1]`; `classes` are their targets.

    A unit is a text, or a word of a tagging task. Units with a class that is not in train are not counted.
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
        self.words, _ = words.gather(np.arange(len(texts)), np.zeros(len(texts), dtype=np.int64))
        ends = np.cumsum(words.words)
        self.offsets = np.searchsorted(self.words, np.concatenate([[0], ends]))
        self.classes = self.truth[self.truth != NO_WORD][self.words]

    def of(self, rows: Indices) -> Indices:
        """Return the units of rows, row after row."""
        return runs(self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows])

    def has_target(self, units: Indices) -> NDArray[np.bool_]:
        """Return which units have a class of train."""
        return np.asarray(self.classes[units] < self.known)

    def predictions(self, rows: Indices, probabilities: NDArray[np.float32]) -> Answers:
        """Return the predictions of rows in the form of `truth`; words without a token get the default tag."""
        best = probabilities.argmax(axis=-1)
        if not self.per_token:
            return np.asarray(best, dtype=np.int64)
        table = np.where(self.truth == NO_WORD, NO_WORD, self._default_tag)
        flat = table[self.truth != NO_WORD]
        flat[self.words[self.of(rows)]] = best
        table[self.truth != NO_WORD] = flat
        return table[rows]

    @cached_property
    def _default_tag(self) -> int:
        return self._task.labels.index(default_tag(self._task))

    def losses(self, rows: Indices, probabilities: NDArray[np.float32]) -> tuple[NDArray[np.float64], Indices]:
        """Return the cross-entropy of each row, summed over its units, and the number of these units."""
        units = self.of(rows)
        counted = self.has_target(units)
        targets = np.where(counted, self.classes[units], 0)
        likelihood = probabilities[np.arange(len(units)), targets].astype(np.float64)
        losses = np.where(counted, -np.log(np.maximum(likelihood, _SMALLEST_PROBABILITY)), 0.0)
        owners = np.repeat(np.arange(len(rows)), self.offsets[rows + 1] - self.offsets[rows])
        sums = np.bincount(owners, weights=losses, minlength=len(rows)).astype(np.float64)
        return sums, np.bincount(owners, weights=counted, minlength=len(rows)).astype(np.int64)


def pack_rows(rows: TaskRows, tokenizer_folder: Path, max_length: int, folder: Path) -> PackedTexts:
    """Return the texts of all rows, tokenised by the tokenizer of a run."""
    from endtask.tokenization.packing import pack_task_texts
    from endtask.tokenization.tokenizer import load_tokenizer

    return pack_task_texts(rows.examples, load_tokenizer(tokenizer_folder), max_length, folder)


@torch.no_grad()
def unit_vectors(
    network: Network, texts: PackedTexts, units: PredictionUnits, rows: Indices, context: DeviceContext
) -> Tensor:
    """Return the vectors of the rows' units, row after row, without dropout, (units of the rows, hidden)."""
    network.eval()
    words = WordStarts(texts) if network.task_type.per_token else None
    counts = units.offsets[rows + 1] - units.offsets[rows]
    starts = np.cumsum(counts) - counts
    vectors = torch.zeros(int(counts.sum()), network.config.hidden_size, device=context.device)
    order = np.argsort(texts.lengths[rows], kind="stable")  # texts of similar length need less padding
    with context.autocast(), network.uncompiled():
        layout = network.layout(int(texts.lengths.max()))
        for start in range(0, len(order), _TEXTS_PER_BATCH):
            indices = order[start : start + _TEXTS_PER_BATCH]
            batch = lay_out(texts, rows[indices], layout).to(context.device)
            inputs = _head_inputs(network, network(batch), batch, words, rows[indices])
            positions = np.concatenate([np.arange(starts[n], starts[n] + counts[n]) for n in indices])
            vectors[torch.from_numpy(positions).to(context.device)] = inputs.float()
    return vectors


def _head_inputs(network: Network, hidden: Tensor, batch: TextBatch, words: WordStarts | None, rows: Indices) -> Tensor:
    """Return the inputs of the task head: the vector of each text, or of each word's first token."""
    if words is None:
        return network.pooled(hidden, batch)
    _, tokens = words.gather(rows, batch.offsets[:-1].cpu().numpy().astype(np.int64))
    return hidden[torch.from_numpy(tokens).to(hidden.device)]


class FeatureCache:
    """The encoder's vectors of some units, indexed by the numbers of the units."""

    def __init__(self, vectors: Tensor, units: Indices, total: int) -> None:
        self._vectors = vectors
        self._index = np.full(total, -1, dtype=np.int64)
        self._index[units] = np.arange(len(units))

    def __getitem__(self, units: Indices) -> Tensor:
        """Return the vectors of units: (units, hidden)."""
        return self._vectors[torch.from_numpy(self._index[units]).to(self._vectors.device)]


@dataclass(frozen=True)
class TrialRows:
    """The rows of all trials of a variant, from the spec, the numbers of labels, the draws and the units."""

    spec: FewShotSpec
    labels: tuple[int, ...]
    draws: Sequence[Draw]
    units: PredictionUnits

    def train(self, trial: FewShotTrial) -> Indices:
        """Return the rows that a trial trains on."""
        return self.draws[trial.draw].train(trial.labels)

    def held_out(self, trial: FewShotTrial) -> Indices:
        """Return the rows that choose a trial's epoch."""
        return held_out_of(self.draws[trial.draw], trial.labels, self.spec)

    def test(self, trial: FewShotTrial) -> Indices:
        """Return the rows that a trial is scored on."""
        return self.draws[trial.draw].test

    def batches(self, trial: FewShotTrial) -> BatchPlan:
        """Return the plan of batches of a trial's training rows."""
        return batches_of(self.spec, trial)

    def all_rows(self) -> Indices:
        """Return all rows that trials read."""
        trials = [FewShotTrial(labels, draw, 0, 0.0) for labels in self.labels for draw in range(len(self.draws))]
        parts = [part for trial in trials for part in (self.train(trial), self.held_out(trial), self.test(trial))]
        return np.unique(np.concatenate(parts))


def batches_of(spec: FewShotSpec, trial: FewShotTrial, task: str = RANDOM_STREAM) -> BatchPlan:
    """Return the plan of batches of as many rows as a trial has labels; the order differs by task."""
    seed = derive(spec.seed, RANDOM_STREAM, "batches", trial.seed, trial.draw)
    return BatchPlan(np.ones(trial.labels, dtype=np.int64), BatchSize(spec.batch_size, "texts"), seed, task)


class SelectedTexts(TextStream):
    """Batches of selected texts, by a plan over these texts."""

    def __init__(
        self, name: str, texts: PackedTexts, network: Network, rows: Indices, plan: BatchPlan, size: int
    ) -> None:
        super().__init__(name, texts, network, batch_size=BatchSize(size, "texts"), seed=0)
        self._rows, self.plan = rows, plan
        if network.fixed_shapes:  # the shape for batches of all texts may be too small for the selected texts
            longest = np.sort(texts.lengths[rows])[-size:]
            self._fixed_shape = batch_shape_for(int(longest.sum()), len(longest), 0.0, self._layout)
            self._layout = replace(self._layout, fixed_shape=self._fixed_shape)

    def positions(self, step: int) -> Indices:
        """Return the texts of a step's batch."""
        return self._rows[self.plan.positions(step)]
