"""The gradient of held-out task loss on the encoder, through a head fitted in each step (TARTAN, Eq. 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from endtask.encoders.batch_parts import own_part
from endtask.encoders.device_context import DeviceContext
from endtask.objectives.base import Batch
from endtask.seeds import derive
from endtask.weighting.gradients import FlatGradient
from endtask.weighting.meta.config import MetaConfig
from endtask.weighting.meta.head import HeadTask, fit_head

_Batches = tuple[Batch | None, Batch]


class HeldOut(Protocol):
    """Batches of the end task as pure functions of the step, and the features that a head reads from them."""

    head_task: HeadTask

    def fit_batch(self, step: int) -> Batch:
        """Return the examples that the head is fitted to."""
        ...

    def gradient_batch(self, step: int) -> Batch:
        """Return examples that neither the head nor, at this step, an objective reads."""
        ...

    def features(self, network: Any, batch: Any) -> Tensor:
        """Return the features that a task head reads: (n, H)."""
        ...

    def task_outputs(self, network: Any, batch: Any) -> Tensor:
        """Return the outputs of the end task's head: (n, C)."""
        ...

    def targets(self, batch: Any) -> Tensor:
        """Return the right answers of the n rows."""
        ...


class HeldOutGradient:
    """A `MetaGradient` of any network with an encoder: two forward passes and one backward pass, without dropout.

    With `head: task` the loss is that of the task's head, and no head is fitted.
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
        compared = counted_weights(network.encoder, settings)
        trained = [(name, weight) for name, weight in network.encoder.named_parameters() if weight.requires_grad]
        self._weights = {weight: name in compared for name, weight in trained}  # -> whether its gradient is compared
        self.parts = tuple(_slices([(is_compared, weight.numel()) for weight, is_compared in self._weights.items()]))
        self._buffer: FlatGradient | None = None
        # The prefetcher has no reference to this object, so its thread ends when this object is freed.
        self._prefetcher = _Prefetcher(
            partial(_batches, held_out, settings.head == "task", context.pins_memory), settings.every
        )

    def __call__(self, step: int) -> Tensor:
        """Return the gradient (P,), zeros where gradients are not compared; the next call overwrites it."""
        if self._buffer is None:
            self._buffer = FlatGradient(list(self._weights))
        with _without_dropout(self._network), torch.enable_grad():
            loss = self._loss(step)
        compared = [weight for weight, is_compared in self._weights.items() if is_compared]
        gradients = dict(zip(compared, torch.autograd.grad(loss, compared, allow_unused=True), strict=True))
        self._buffer.take([gradients.get(weight) for weight in self._weights])
        return self._context.processes.add(self._buffer.flat)

    def _loss(self, step: int) -> Tensor:
        fit, batch = self._prefetcher.at(step)
        held_out, device, head_task = self._held_out, self._context.device, self._held_out.head_task
        batch, share = self._own_part(batch)
        batch = batch.to(device)
        if fit is None:
            with self._context.autocast():
                outputs = held_out.task_outputs(self._network, batch)
            return share * head_task.loss(outputs.float(), held_out.targets(batch))
        fit = fit.to(device)
        with torch.no_grad():
            features = self._features(fit)
        head_seed = derive(self._seed, "meta head", step)
        head = fit_head(features, held_out.targets(fit), head_task, self._settings, head_seed)
        return share * head_task.loss(head(self._features(batch)), held_out.targets(batch))

    def _own_part(self, batch: Any) -> tuple[Any, float]:
        """Return this process's part of the held-out rows, and their share; each fits the head to all of them."""
        processes, rows = self._context.processes, self._held_out.head_task.rows
        if processes.count == 1:
            return batch, 1.0
        part = own_part(batch, self._network, processes)
        some, of = (float(rows(self._held_out.targets(each))[1].sum()) for each in (part, batch))
        return part, some / max(1.0, of)

    def _features(self, batch: Any) -> Tensor:
        """Return the features, in an autocast of their own: torch before 2.11 caches casts without gradients."""
        with self._context.autocast():
            return self._held_out.features(self._network, batch)


def counted_weights(encoder: nn.Module, settings: MetaConfig) -> frozenset[str]:
    """Return the names of the encoder's weights whose gradients are compared.

    >>> encoder = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 2))
    >>> sorted(counted_weights(encoder, MetaConfig()))
    ['1.bias', '1.weight']
    """
    names = [name for name, _ in encoder.named_parameters()]
    if settings.parameters == "all":
        return frozenset(names)
    tables = {f"{name}.weight" for name, part in encoder.named_modules() if isinstance(part, nn.Embedding)}
    return frozenset(name for name in names if name not in tables and not name.startswith("embeddings."))


def _batches(held_out: HeldOut, by_task_head: bool, pins_memory: bool, step: int) -> _Batches:
    """Return both batches of a step, on the CPU; without a fitted head only the second."""
    fit = None if by_task_head else held_out.fit_batch(step)
    batch = held_out.gradient_batch(step)
    if not pins_memory:
        return fit, batch
    return None if fit is None else fit.pin(), batch.pin()


class _Prefetcher:
    """Prepares the next batches while the device computes the current ones."""

    def __init__(self, make: Callable[[int], _Batches], every: int) -> None:
        self._make, self._every = make, every
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="held out")
        self._next: tuple[int, Future[_Batches]] | None = None

    def at(self, step: int) -> _Batches:
        batches = self._next[1].result() if self._next is not None and self._next[0] == step else self._make(step)
        self._next = (step + self._every, self._executor.submit(self._make, step + self._every))
        return batches


@contextmanager
def _without_dropout(network: nn.Module) -> Iterator[None]:
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


def _slices(weights: Sequence[tuple[bool, int]]) -> Iterator[slice]:
    """Yield slices of the flat gradient for runs of weights that are compared."""
    start = end = 0
    for is_compared, size in weights:
        if is_compared:
            end += size
            continue
        if end > start:
            yield slice(start, end)
        start = end = end + size
    if end > start:
        yield slice(start, end)
