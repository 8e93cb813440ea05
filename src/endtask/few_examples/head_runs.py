"""Heads on a frozen body: the body reads each text once, then all heads of a size learn side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from endtask.errors import TrainingError
from endtask.few_examples.bench import Bench, phase_settings
from endtask.few_examples.draws import Numbers
from endtask.few_examples.noise import stacked_factors
from endtask.few_examples.plan import Key, Plan
from endtask.few_examples.result import Result, make_result
from endtask.few_examples.stacked_adamw import StackedAdamW
from endtask.few_examples.stacked_heads import StackedHead, Weights
from endtask.few_examples.units import MOST_SURPRISE
from endtask.models.batch import IGNORED

# So many weights of a head side by side stay near the processor; more of them wait for memory.
_WEIGHTS_AT_ONCE = 2_000_000
_FEWEST_AT_ONCE = 4


class Cache:
    """The body's vectors of the units of some rows: (units, hidden), found by the units' numbers."""

    def __init__(self, vectors: Tensor, units: Numbers, total: int) -> None:
        self.vectors = vectors
        self._place = np.full(total, -1, dtype=np.int64)
        self._place[units] = np.arange(len(units))

    def __getitem__(self, units: Numbers) -> Tensor:
        """Vectors in the shape of `units`: (..., hidden); units that are not asked for (-1) have any."""
        return self.vectors[torch.from_numpy(self._place[np.maximum(units, 0)]).to(self.vectors.device)]


class HeadRuns:
    """Trains heads from first weights, which `first_weights` gives for a seed."""

    def __init__(self, bench: Bench, head: nn.Module, first_weights: Callable[[int], Weights], cache: Cache) -> None:
        self._bench, self._head, self._first_weights, self._cache = bench, head, first_weights, cache

    def train(self, keys: Sequence[Key]) -> Iterator[list[Result]]:
        """The results of all runs, so many at a time as are worth training side by side; those of a size together."""
        size = sum(weight.numel() for weight in self._head.parameters())
        at_once = max(_FEWEST_AT_ONCE, _WEIGHTS_AT_ONCE // size)
        for labels in dict.fromkeys(key.labels for key in keys):
            alike = [key for key in keys if key.labels == labels]
            for start in range(0, len(alike), at_once):
                yield self.train_together(alike[start : start + at_once])

    def train_together(self, keys: Sequence[Key]) -> list[Result]:
        """Runs with one number of labels, side by side."""
        stacked = StackedHead(self._head, [self._first_weights(key.seed) for key in keys])
        best = _Best(stacked, self._bench.plan, len(keys))
        held_out = self._gathered([self._bench.held_out(key) for key in keys])
        for epoch, _ in enumerate(self._epochs(stacked, keys), start=1):
            best.look(epoch, held_out.mean_loss(stacked.logits, most=MOST_SURPRISE))
            if best.all_over:
                break
        return [self._result(key, number, stacked, best) for number, key in enumerate(keys)]

    def _epochs(self, stacked: StackedHead, keys: Sequence[Key]) -> Iterator[None]:
        """Train epoch by epoch."""
        optimizer = StackedAdamW(stacked.weights, [key.rate for key in keys], phase_settings())
        plans = [self._bench.batches(key) for key in keys]
        learned = [self._bench.learned(key) for key in keys]
        per_epoch = plans[0].batches_per_epoch
        for step in range(per_epoch * self._bench.plan.epochs):
            rows = [rows[plan.positions(step)] for rows, plan in zip(learned, plans, strict=True)]
            self._step(stacked, optimizer, self._gathered(rows), [key.seed for key in keys], step)
            if (step + 1) % per_epoch == 0:
                yield

    def _step(
        self, stacked: StackedHead, optimizer: StackedAdamW, batch: _Gathered, seeds: Sequence[int], step: int
    ) -> None:
        rows, width = batch.vectors.shape[1:]
        noise = stacked_factors(seeds, step, stacked.dropouts, rows, width, self._bench.plan.dropout)
        factors = {name: values.to(batch.vectors.device) for name, values in noise.items()}
        weights = list(stacked.weights.values())
        for weight in weights:
            weight.requires_grad_(True)
        loss = batch.mean_loss(lambda vectors: stacked.logits(vectors, factors)).sum()
        gradients = torch.autograd.grad(loss, weights)
        for weight in weights:
            weight.requires_grad_(False)
        optimizer.step(dict(zip(stacked.weights, gradients, strict=True)))

    def _gathered(self, rows: Sequence[Numbers]) -> _Gathered:
        units = [self._bench.units.of(some) for some in rows]
        width = max(1, max(len(some) for some in units))
        table = np.stack([np.pad(some, (0, width - len(some)), constant_values=-1) for some in units])
        asked = (table >= 0) & self._bench.units.asked(np.maximum(table, 0))
        classes = np.where(asked, self._bench.units.classes[np.maximum(table, 0)], IGNORED)
        return _Gathered(self._cache[table], torch.from_numpy(classes).to(self._cache.vectors.device))

    @torch.no_grad()
    def _result(self, key: Key, number: int, stacked: StackedHead, best: _Best) -> Result:
        bench = self._bench
        epoch, loss = int(best.epochs[number]), float(best.losses[number])
        if not np.isfinite(loss):
            raise TrainingError(f"no epoch at the rate {key.rate:g} has a finite loss", hint="lower --rates")
        test = bench.test(key)
        vectors = self._cache[bench.units.of(test)]
        logits = stacked.logits_of(stacked.state(number, best.weights), vectors)
        probabilities: NDArray[np.float32] = logits.float().softmax(-1).cpu().numpy()
        return make_result(key, epoch, float(np.exp(loss)), bench.units, test, probabilities)


@dataclass(frozen=True)
class _Gathered:
    """Vectors (R, U, hidden) of R runs and the classes (R, U) they ask for; `IGNORED` where nothing is asked."""

    vectors: Tensor
    classes: Tensor

    def mean_loss(self, logits_of: Callable[[Tensor], Tensor], *, most: float | None = None) -> Tensor:
        """The mean cross-entropy of each run over what it asks, of each answer no more than `most`: (R,)."""
        logits = logits_of(self.vectors).float()
        each = functional.cross_entropy(
            logits.flatten(0, 1), self.classes.flatten(), ignore_index=IGNORED, reduction="none"
        ).view_as(self.classes)
        each = each if most is None else each.clamp(max=most)
        return each.sum(1) / (self.classes != IGNORED).sum(1).clamp(min=1)


class _Best:
    """The weights of each run at the epoch with the lowest loss on held-out rows so far.

    A run that is over stays as it is, though its weights go on being trained while its neighbours need it.
    """

    def __init__(self, stacked: StackedHead, plan: Plan, runs: int) -> None:
        self._stacked, self._plan = stacked, plan
        self.weights = {name: value.clone() for name, value in stacked.weights.items()}
        self.losses = np.full(runs, np.inf)
        self.epochs = np.zeros(runs, dtype=np.int64)
        self._over = np.zeros(runs, dtype=bool)

    @property
    def all_over(self) -> bool:
        """Whether nothing can get better any more."""
        return bool(self._over.all())

    @torch.no_grad()
    def look(self, epoch: int, losses: Tensor) -> None:
        """Keep the weights of the runs that are better than ever; of equals the earlier epoch stays."""
        found = losses.detach().cpu().numpy().astype(np.float64)
        better = (found < self.losses) & ~self._over
        self.losses, self.epochs = np.where(better, found, self.losses), np.where(better, epoch, self.epochs)
        self._over |= np.asarray([self._plan.is_over(epoch, int(best)) for best in self.epochs])
        chosen = torch.from_numpy(np.flatnonzero(better))
        for name, value in self._stacked.weights.items():
            where = chosen.to(value.device)
            self.weights[name][where] = value[where]
