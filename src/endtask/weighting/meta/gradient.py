"""The gradient of held-out task loss on the encoder, through a head fitted for this step alone (TARTAN, Eq. 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from endtask.encoders.device_context import DeviceContext
from endtask.objectives.base import Batch
from endtask.seeds import derive
from endtask.weighting.gradients import FlatGradient
from endtask.weighting.meta.config import MetaConfig
from endtask.weighting.meta.head import HeadTask, fit_head

_Batches = tuple[Batch | None, Batch]


class HeldOut(Protocol):
    """Batches of the end task for a step, pure functions of it, and what a head reads of them."""

    head_task: HeadTask

    def fit_batch(self, step: int) -> Batch:
        """Examples to fit the head to."""
        ...

    def gradient_batch(self, step: int) -> Batch:
        """Other examples, which neither the head nor, at this step, the end task's objective has seen."""
        ...

    def features(self, network: Any, batch: Any) -> Tensor:
        """What a task head reads: (n, H)."""
        ...

    def own_outputs(self, network: Any, batch: Any) -> Tensor:
        """What the end task's own head says: (n, C)."""
        ...

    def targets(self, batch: Any) -> Tensor:
        """The right answers of the n rows."""
        ...


class HeldOutGradient:
    """A `MetaGradient` over any network with an encoder: two readings of it, one of them without a backward pass.

    Dropout is off in both. With `head: task` the task's own head gives the loss, and nothing is fitted.
    """

    def __init__(
        self,
        network: Any,
        held_out: HeldOut,
        *,
        settings: MetaConfig,
        context: DeviceContext,
        seed: int,
    ) -> None:
        self._network, self._held_out = network, held_out
        self._settings, self._context, self._seed = settings, context, seed
        counted = counted_weights(network.encoder, settings)
        named = [(name, weight) for name, weight in network.encoder.named_parameters() if weight.requires_grad]
        self._weights = {weight: name in counted for name, weight in named}  # and whether its gradient is compared
        self.parts = tuple(_stretches([(counts, weight.numel()) for weight, counts in self._weights.items()]))
        self._buffer: FlatGradient | None = None
        # Nothing in there knows this object: its thread ends as soon as nobody holds it.
        self._prefetcher = _Prefetcher(
            partial(_batches, held_out, settings.head == "task", context.pins_memory), settings.every
        )

    def __call__(self, step: int) -> Tensor:
        """(P,), zeros where gradients are not compared; good until the next call."""
        if self._buffer is None:
            self._buffer = FlatGradient(list(self._weights))
        with _reading(self._network), torch.enable_grad():
            loss = self._loss(step)
        compared = [weight for weight, counts in self._weights.items() if counts]
        found = dict(zip(compared, torch.autograd.grad(loss, compared, allow_unused=True), strict=True))
        self._buffer.take([found.get(weight) for weight in self._weights])
        return self._buffer.flat

    def _loss(self, step: int) -> Tensor:
        fit, batch = self._prefetcher.at(step)
        given = batch.to(self._context.device)
        head_task = self._held_out.head_task
        if fit is None:
            with self._context.autocast():
                outputs = self._held_out.own_outputs(self._network, given)
            return head_task.loss(outputs.float(), self._held_out.targets(given))
        known = fit.to(self._context.device)
        with torch.no_grad():
            features = self._features(known)
        targets = self._held_out.targets(known)
        head = fit_head(features, targets, head_task, self._settings, derive(self._seed, "meta head", step))
        return head_task.loss(head(self._features(given)), self._held_out.targets(given))

    def _features(self, batch: Any) -> Tensor:
        """Each reading in an autocast of its own: torch before 2.11 keeps what it cast, here without a gradient."""
        with self._context.autocast():
            return self._held_out.features(self._network, batch)


def counted_weights(encoder: nn.Module, settings: MetaConfig) -> frozenset[str]:
    """Names of the encoder's weights whose gradients are compared.

    >>> encoder = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 2))
    >>> sorted(counted_weights(encoder, MetaConfig()))
    ['1.bias', '1.weight']
    """
    names = [name for name, _ in encoder.named_parameters()]
    if settings.parameters == "all":
        return frozenset(names)
    tables = {f"{name}.weight" for name, part in encoder.named_modules() if isinstance(part, nn.Embedding)}
    return frozenset(name for name in names if name not in tables and not name.startswith("embeddings."))


def _batches(held_out: HeldOut, own_head: bool, pins_memory: bool, step: int) -> _Batches:
    """Both batches of a step, on the CPU."""
    fit = None if own_head else held_out.fit_batch(step)
    batch = held_out.gradient_batch(step)
    if not pins_memory:
        return fit, batch
    return None if fit is None else fit.pin(), batch.pin()


class _Prefetcher:
    """Makes the next batches while the device works on these."""

    def __init__(self, make: Callable[[int], _Batches], every: int) -> None:
        self._make, self._every = make, every
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="held out")
        self._next: tuple[int, Future[_Batches]] | None = None

    def at(self, step: int) -> _Batches:
        made = self._next[1].result() if self._next is not None and self._next[0] == step else self._make(step)
        self._next = (step + self._every, self._maker.submit(self._make, step + self._every))
        return made


@contextmanager
def _reading(network: nn.Module) -> Iterator[None]:
    """Dropout off, and on again if it was."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


def _stretches(weights: Sequence[tuple[bool, int]]) -> Iterator[slice]:
    """Neighbouring weights that count, as stretches of the flat gradient."""
    start = end = 0
    for counted, size in weights:
        if counted:
            end += size
            continue
        if end > start:
            yield slice(start, end)
        start = end = end + size
    if end > start:
        yield slice(start, end)
