"""Heads on a frozen body: the encoder reads each text once, then all heads of a size learn side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from threading import Event

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from endtask.encoders.batch import IGNORED
from endtask.errors import TrainingError
from endtask.few_examples.bench import Bench, phase_settings
from endtask.few_examples.draws import Numbers
from endtask.few_examples.fused_heads import FusedHead, can_be_fused
from endtask.few_examples.noise import Noise
from endtask.few_examples.plan import Key, Plan
from endtask.few_examples.result import Result, make_result
from endtask.few_examples.stacked_adamw import StackedAdamW
from endtask.few_examples.stacked_heads import Asked, StackedHead, Weights
from endtask.few_examples.threads import in_threads
from endtask.few_examples.units import MOST_SURPRISE

# So many weights of a head side by side stay near the processor; more of them wait for memory.
_WEIGHTS_AT_ONCE = 2_000_000
_FEWEST_AT_ONCE = 4


class Cache:
    """The encoder's vectors of the units of some rows: (units, hidden), found by the units' numbers."""

    def __init__(self, vectors: Tensor, units: Numbers, total: int) -> None:
        self.vectors = vectors
        self._place = np.full(total, -1, dtype=np.int64)
        self._place[units] = np.arange(len(units))

    def __getitem__(self, units: Numbers) -> Tensor:
        """Vectors in the shape of `units`: (..., hidden); units that are not asked for (-1) have any."""
        places = torch.from_numpy(np.where(units < 0, 0, self._place[units])).to(self.vectors.device)
        return self.vectors.index_select(0, places.flatten()).view(*units.shape, -1)


class HeadRuns:
    """Trains heads from first weights, which `first_weights` gives for a seed."""

    def __init__(self, bench: Bench, head: nn.Module, first_weights: Callable[[int], Weights], cache: Cache) -> None:
        self._bench, self._head, self._first_weights, self._cache = bench, head, first_weights, cache

    def train(self, keys: Sequence[Key]) -> Iterator[list[Result]]:
        """The results of all runs, so many at a time as are worth training side by side; those of a size together."""
        first = {seed: self._first_weights(seed) for seed in dict.fromkeys(key.seed for key in keys)}
        fused = can_be_fused(self._head)
        at_once = max(_FEWEST_AT_ONCE, _WEIGHTS_AT_ONCE // sum(weight.numel() for weight in self._head.parameters()))

        def together(some: Sequence[Key], stop: Event) -> list[Result]:
            states = [first[key.seed] for key in some]
            return self._train_together(some, (FusedHead if fused else StackedHead)(self._head, states), stop)

        for labels in dict.fromkeys(key.labels for key in keys):
            # Runs of one seed share their noise, those of one rate their optimizer.
            order = sorted(keys, key=lambda key: (key.seed, key.rate, key.draw))
            alike = [key for key in order if key.labels == labels]
            if fused:
                yield from in_threads(together, even_parts(alike, at_once, torch.get_num_threads()))
            else:
                yield from (together(some, Event()) for some in even_parts(alike, at_once))

    def _train_together(self, keys: Sequence[Key], stacked: StackedHead, stop: Event) -> list[Result]:
        """Runs with one number of labels, side by side, unless nobody waits for them any more."""
        best = _Best(stacked, self._bench.plan, len(keys))
        held_out = self._gathered([self._bench.held_out(key) for key in keys])
        for epoch, _ in enumerate(self._epochs(stacked, keys), start=1):
            best.look(epoch, held_out.mean_loss(stacked.logits(held_out.vectors), most=MOST_SURPRISE))
            if best.all_over or stop.is_set():
                break
        return [self._result(key, number, stacked, best) for number, key in enumerate(keys)]

    def _epochs(self, stacked: StackedHead, keys: Sequence[Key]) -> Iterator[None]:
        """Train epoch by epoch."""
        optimizer = StackedAdamW(stacked.weights, [key.rate for key in keys], phase_settings())
        plans = [self._bench.batches(key) for key in keys]
        learned = [self._bench.learned(key) for key in keys]
        seeds, dropout = [key.seed for key in keys], self._bench.plan.dropout
        per_epoch = plans[0].batches_per_epoch
        for step in range(per_epoch * self._bench.plan.epochs):
            rows = [rows[plan.positions(step)] for rows, plan in zip(learned, plans, strict=True)]
            optimizer.step(stacked.gradients(self._gathered(rows), Noise(seeds, step, dropout)))
            if (step + 1) % per_epoch == 0:
                yield

    def _gathered(self, rows: Sequence[Numbers]) -> Asked:
        units = [self._bench.units.of(some) for some in rows]
        width = max(1, max(len(some) for some in units))
        table = np.stack([np.pad(some, (0, width - len(some)), constant_values=-1) for some in units])
        asked = (table >= 0) & self._bench.units.asked(np.maximum(table, 0))
        classes = np.where(asked, self._bench.units.classes[np.maximum(table, 0)], IGNORED)
        return Asked(self._cache[table], torch.from_numpy(classes).to(self._cache.vectors.device))

    @torch.no_grad()
    def _result(self, key: Key, number: int, stacked: StackedHead, best: _Best) -> Result:
        bench = self._bench
        epoch, loss = int(best.epochs[number]), float(best.losses[number])
        if not np.isfinite(loss):
            raise TrainingError(f"no epoch at the rate {key.rate:g} has a finite loss", hint="lower --rates")
        test = bench.test(key)
        vectors = self._cache[bench.units.of(test)]
        logits = stacked.logits_of(number, best.weights, vectors)
        probabilities: NDArray[np.float32] = logits.float().softmax(-1).cpu().numpy()
        return make_result(key, epoch, float(np.exp(loss)), bench.units, test, probabilities)


def even_parts(keys: Sequence[Key], most: int, threads: int = 1) -> list[Sequence[Key]]:
    """Parts of nearly equal size, none above `most`, so many that every thread has as much to do.

    >>> [len(part) for part in even_parts([Key(50, draw, 0, 1e-3) for draw in range(10)], most=4, threads=2)]
    [2, 3, 2, 3]
    """
    parts = -(-len(keys) // (most * threads)) * threads
    ends = [len(keys) * number // parts for number in range(parts + 1)]
    return [keys[start:end] for start, end in pairwise(ends) if end > start]


class _Best:
    """The weights of each run at the epoch with the lowest loss on held-out rows so far.

    A run that is over stays as it is, though its weights go on being trained while its neighbors need it.
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
