"""Trials that train only the head: the encoder reads each text once, then all heads of a size are trained together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from endtask.encoders.batch import IGNORED
from endtask.errors import TrainingError
from endtask.experiments.few_shot.features import FeatureCache
from endtask.experiments.few_shot.few_shot_results import FewShotResult, make_result
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.label_draws import Indices
from endtask.experiments.few_shot.prediction_units import LARGEST_LOSS
from endtask.experiments.few_shot.stacked_adamw import StackedAdamW
from endtask.experiments.few_shot.stacked_heads import StackedBatch, StackedHead, StepDropout, Weights
from endtask.experiments.few_shot.trial_rows import TrialRows, phase_settings

# Larger stacks amortise the cost of each operation; much larger ones leave the processor's cache.
_WEIGHTS_AT_ONCE = 4_000_000
_FEWEST_AT_ONCE = 4

Part = TypeVar("Part")
Result = TypeVar("Result")


class HeadTrials:
    """Trains heads from first weights, which `first_weights` returns for a seed."""

    def __init__(
        self, rows: TrialRows, head: nn.Module, first_weights: Callable[[int], Weights], cache: FeatureCache
    ) -> None:
        self._rows, self._head, self._first_weights, self._cache = rows, head, first_weights, cache

    def train(self, trials: Sequence[FewShotTrial]) -> Iterator[list[FewShotResult]]:
        """Yield the results of all trials, a stack at a time; stacks hold trials with one number of labels."""
        first = {seed: self._first_weights(seed) for seed in dict.fromkeys(trial.seed for trial in trials)}
        at_once = max(_FEWEST_AT_ONCE, _WEIGHTS_AT_ONCE // sum(weight.numel() for weight in self._head.parameters()))
        on_cpu = self._cache.vectors.device.type == "cpu"

        def train_stack(some: Sequence[FewShotTrial], stop: Event) -> list[FewShotResult]:
            return self._train_stack(some, StackedHead(self._head, [first[trial.seed] for trial in some]), stop)

        for labels in dict.fromkeys(trial.labels for trial in trials):
            # Trials of one seed share their dropout, those of one learning rate their optimizer.
            order = sorted(trials, key=lambda trial: (trial.seed, trial.learning_rate, trial.draw))
            alike = [trial for trial in order if trial.labels == labels]
            if on_cpu:
                yield from in_threads(train_stack, even_parts(alike, at_once, torch.get_num_threads()))
            else:
                yield from (train_stack(some, Event()) for some in even_parts(alike, at_once))

    def _train_stack(self, trials: Sequence[FewShotTrial], stacked: StackedHead, stop: Event) -> list[FewShotResult]:
        """Return the results of trials with one number of labels, trained together until all end or `stop` is set."""
        best = _BestEpochs(stacked, self._rows.spec, len(trials))
        held_out = self._batch([self._rows.held_out(trial) for trial in trials])
        for epoch, _ in enumerate(self._epochs(stacked, trials), start=1):
            best.update(epoch, held_out.mean_loss(stacked.logits(held_out.vectors), largest=LARGEST_LOSS))
            if best.all_ended or stop.is_set():
                break
        return [self._result(trial, number, stacked, best) for number, trial in enumerate(trials)]

    def _epochs(self, stacked: StackedHead, trials: Sequence[FewShotTrial]) -> Iterator[None]:
        """Train epoch by epoch."""
        optimizer = StackedAdamW(stacked.weights, [trial.learning_rate for trial in trials], phase_settings())
        plans = [self._rows.batches(trial) for trial in trials]
        train = [self._rows.train(trial) for trial in trials]
        seeds, dropout = [trial.seed for trial in trials], self._rows.spec.dropout
        per_epoch = plans[0].batches_per_epoch
        for step in range(per_epoch * self._rows.spec.epochs):
            rows = [rows[plan.positions(step)] for rows, plan in zip(train, plans, strict=True)]
            optimizer.step(stacked.gradients(self._batch(rows), StepDropout(seeds, step, dropout)))
            if (step + 1) % per_epoch == 0:
                yield

    def _batch(self, rows: Sequence[Indices]) -> StackedBatch:
        """Return the units of each trial's rows, padded to one length."""
        units = [self._rows.units.of(some) for some in rows]
        width = max(1, max(len(some) for some in units))
        table = np.stack([np.pad(some, (0, width - len(some)), constant_values=-1) for some in units])
        counted = (table >= 0) & self._rows.units.has_target(np.maximum(table, 0))
        classes = np.where(counted, self._rows.units.classes[np.maximum(table, 0)], IGNORED)
        return StackedBatch(self._cache[table], torch.from_numpy(classes).to(self._cache.vectors.device))

    @torch.no_grad()
    def _result(self, trial: FewShotTrial, number: int, stacked: StackedHead, best: _BestEpochs) -> FewShotResult:
        epoch, loss = int(best.epochs[number]), float(best.losses[number])
        if not np.isfinite(loss):
            raise not_finite(trial)
        test, units = self._rows.test(trial), self._rows.units
        logits = stacked.logits_of(number, best.weights, self._cache[units.of(test)])
        probabilities: NDArray[np.float32] = logits.float().softmax(-1).cpu().numpy()
        return make_result(trial, epoch, float(np.exp(loss)), units, test, probabilities)


def not_finite(trial: FewShotTrial) -> TrainingError:
    """Return the error of a trial without a finite loss."""
    message = f"no epoch at the learning rate {trial.learning_rate:g} has a finite loss"
    return TrainingError(message, hint="lower --learning-rates")


def even_parts(trials: Sequence[FewShotTrial], most: int, threads: int = 1) -> list[Sequence[FewShotTrial]]:
    """Return parts of nearly equal size, none above `most`, as many for each thread.

    >>> trials = [FewShotTrial(50, draw, 0, 1e-3) for draw in range(10)]
    >>> [len(part) for part in even_parts(trials, most=4, threads=2)]
    [2, 3, 2, 3]
    """
    parts = -(-len(trials) // (most * threads)) * threads
    ends = [len(trials) * number // parts for number in range(parts + 1)]
    return [trials[start:end] for start, end in pairwise(ends) if end > start]


def in_threads(make: Callable[[Part, Event], Result], parts: Sequence[Part]) -> Iterator[Result]:
    """Yield the result of each part in order, from as many threads as torch uses, each with one torch thread.

    Threads over whole stacks are several times as fast as torch's threads within small operations. The event is set
    when nobody waits for results any more, such as after an error.

    >>> list(in_threads(lambda part, stop: abs(part), [-1, 2, -3]))
    [1, 2, 3]
    """
    threads, stop = torch.get_num_threads(), Event()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(lambda part: make(part, stop), parts)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # torch gives new threads the number that any thread set last


class _BestEpochs:
    """The weights of each trial at the epoch with the lowest held-out loss so far.

    The best weights of an ended trial stay, though training continues while other trials of the stack need it.
    """

    def __init__(self, stacked: StackedHead, spec: FewShotSpec, trials: int) -> None:
        self._stacked, self._spec = stacked, spec
        self.weights = {name: value.clone() for name, value in stacked.weights.items()}
        self.losses = np.full(trials, np.inf)
        self.epochs = np.zeros(trials, dtype=np.int64)
        self._ended = np.zeros(trials, dtype=bool)

    @property
    def all_ended(self) -> bool:
        """Whether no trial continues."""
        return bool(self._ended.all())

    @torch.no_grad()
    def update(self, epoch: int, losses: Tensor) -> None:
        """Store the weights of trials that improved; of equal epochs the earlier one stays."""
        found = losses.detach().cpu().numpy().astype(np.float64)
        better = (found < self.losses) & ~self._ended
        self.losses, self.epochs = np.where(better, found, self.losses), np.where(better, epoch, self.epochs)
        self._ended |= np.asarray([self._spec.stops_after(epoch, int(best)) for best in self.epochs])
        chosen = torch.from_numpy(np.flatnonzero(better))
        for name, value in self._stacked.weights.items():
            where = chosen.to(value.device)
            self.weights[name][where] = value[where]
