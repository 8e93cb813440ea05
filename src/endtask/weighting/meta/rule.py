"""Weights learned while training, from a gradient of held-out task loss (META-TARTAN)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from endtask.weighting.base import Rule, ScheduledObjective
from endtask.weighting.meta.part import MetaConfig

_SMALLEST = 1e-30


class MetaGradient(Protocol):
    """The gradient of held-out task loss on the encoder, through a head of its own."""

    @property
    def parts(self) -> Sequence[slice]:
        """The stretches of the encoder's P weights whose gradients are compared."""
        ...

    def __call__(self, step: int) -> Tensor:
        """(P,) in the order of `encoder.parameters()`; zeros are allowed outside of `parts`."""
        ...


class Meta(Rule):
    """softmax(logits), with logits that move by eta times the cosine of an objective's gradient and the held-out one.

    All objectives run at every step. The weights start equal (TARTAN, Algorithm 1) or in proportion to `start`, and as
    there a step is weighed by the logits that its own gradients have moved. A `floor` keeps weights above that share of
    what they start with.

    All numbers stay on the device. The loop hands over gradients at every step, for heads learn by unweighted losses;
    that costs some reading and writing of memory, and every M-th step alone pays for the held-out gradient.

    >>> class Given:
    ...     parts = (slice(0, 2),)
    ...     def __call__(self, step):
    ...         return torch.tensor([2.0, 0.0])
    >>> settings = MetaConfig(every=1, floor=0)
    >>> rule = Meta(["task", "mlm"], Given(), settings=settings, device=torch.device("cpu"))
    >>> weights = rule.weigh(0, {"task": torch.tensor([1.0, 0.0]), "mlm": torch.tensor([0.0, 1.0])})
    >>> rule.after_step(0, torch.tensor(False))
    >>> {name: round(weight.item(), 4) for name, weight in weights.items()}
    {'task': 0.5125, 'mlm': 0.4875}
    """

    def __init__(
        self,
        objectives: Sequence[str],
        gradient: MetaGradient,
        *,
        settings: MetaConfig,
        device: torch.device,
        start: Sequence[float] | None = None,
    ) -> None:
        count = len(objectives)
        if not objectives or len(set(objectives)) != count:
            raise ValueError(f"objectives need names of their own, got {list(objectives)}")
        if start is not None and (len(start) != count or min(start) <= 0):
            raise ValueError(f"{count} objectives need as many weights above 0 to start from, got {list(start)}")
        self._names, self._gradient, self._settings = tuple(objectives), gradient, settings
        given = torch.tensor(start or [1.0] * count, dtype=torch.float64)
        self._smallest = (settings.floor * given / given.sum()).float().to(device)
        self._logits = (1.0 / count + (given / given.mean()).log()).float().to(device)
        self._next_logits = self._logits
        self._cosines = self._not_measured()

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """All objectives; the weights given here are never used."""
        return tuple(ScheduledObjective(name, 1.0 / len(self._names), step) for name in self._names)

    def sees_gradients(self, step: int) -> bool:
        """Always: heads learn by unweighted losses."""
        return True

    @torch.no_grad()
    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of all objectives, by logits that count from now on unless the step is skipped."""
        self._next_logits, self._cosines = self._logits, self._not_measured()
        if step % self._settings.every == 0:
            held_out = self._gradient(step)
            cosines = [self._cosine(held_out, gradients[name]) for name in self._names]
            self._cosines = torch.stack(cosines).to(self._logits.dtype)
            self._next_logits = self._logits + self._settings.learning_rate * self._settings.every * self._cosines
        weights = self._weights(self._next_logits)
        return {name: weights[index] for index, name in enumerate(self._names)}

    @torch.no_grad()
    def after_step(self, step: int, skipped: Tensor) -> None:
        """Keep what `weigh` found, or forget it with a skipped step."""
        self._logits = torch.where(skipped, self._logits, self._next_logits)
        self._cosines = torch.where(skipped, self._not_measured(), self._cosines)

    def values(self) -> dict[str, Tensor]:
        """Weight and cosine of every objective; a cosine that the last step did not measure is not a number."""
        weights = self._weights(self._logits)
        return {f"weight/{name}": weights[index] for index, name in enumerate(self._names)} | {
            f"cosine/{name}": self._cosines[index] for index, name in enumerate(self._names)
        }

    def state(self) -> dict[str, Tensor]:
        """The logits."""
        return {"logits": self._logits}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; the objectives must be as many as they were."""
        if state.keys() != {"logits"} or state["logits"].shape != self._logits.shape:
            raise ValueError(f"{len(self._names)} learned weights do not fit into a state of {sorted(state)}")
        self._logits = state["logits"].to(self._logits.device, copy=True)
        self._next_logits = self._logits

    def _not_measured(self) -> Tensor:
        return torch.full_like(self._logits, torch.nan)

    def _cosine(self, held_out: Tensor, gradient: Tensor) -> Tensor:
        pairs = [(held_out[part], gradient[part]) for part in self._gradient.parts]
        product = torch.stack([torch.dot(one, other) for one, other in pairs]).sum()
        squares = [torch.stack([torch.dot(side, side) for side in sides]).sum() for sides in zip(*pairs, strict=True)]
        return product / (squares[0].sqrt() * squares[1].sqrt()).clamp(min=_SMALLEST)

    def _weights(self, logits: Tensor) -> Tensor:
        """All weights, the floor included; they add up to one."""
        return self._smallest + (1.0 - self._settings.floor) * logits.softmax(0)
