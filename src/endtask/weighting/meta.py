"""Weights learned while training, from a gradient of held-out task loss (META-TARTAN)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from endtask.settings.meta import MetaSettings
from endtask.weighting.base import Turn, Weighting
from endtask.weighting.direction import Direction
from endtask.weighting.subset import Subset

_SMALLEST = 1e-30


class MetaGradient(Protocol):
    """The gradient of held-out task loss on the body, through a head of its own."""

    @property
    def parts(self) -> Sequence[slice]:
        """The stretches of the body's P weights whose gradients are compared."""
        ...

    def __call__(self, step: int) -> Tensor:
        """(P,) in the order of `body.parameters()`; zeros are allowed outside of `parts`."""
        ...


class Meta(Weighting):
    """softmax(logits), with logits that move by eta times the cosine of an objective's gradient and the held-out one.

    The first of the objectives is the end task, which runs at every step; of the others `sample` run from one look to
    the next, and then count as much more as they run less often. The weights start equal (TARTAN, Algorithm 1) or in
    proportion to `start`, and as there a step is weighed by the logits that its own gradients have moved. A `floor`
    keeps weights above that share of what they start with.

    A `direction`, where given, is kept at that of the last held-out gradient.

    All numbers stay on the device. The loop hands over gradients at every step, for heads learn by unweighted losses;
    that costs some reading and writing of memory, and every M-th step alone pays for the held-out gradient.

    >>> class Given:
    ...     parts = (slice(0, 2),)
    ...     def __call__(self, step):
    ...         return torch.tensor([2.0, 0.0])
    >>> settings = MetaSettings(every=1, floor=0)
    >>> rule = Meta(["task", "mlm"], Given(), settings=settings, device=torch.device("cpu"), seed=0)
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
        settings: MetaSettings,
        device: torch.device,
        seed: int,
        start: Sequence[float] | None = None,
        direction: Direction | None = None,
    ) -> None:
        count = len(objectives)
        if not objectives or len(set(objectives)) != count:
            raise ValueError(f"objectives need names of their own, got {list(objectives)}")
        if start is not None and (len(start) != count or min(start) <= 0):
            raise ValueError(f"{count} objectives need as many weights above 0 to start from, got {list(start)}")
        self._names, self._gradient, self._settings = tuple(objectives), gradient, settings
        others = self._names[1:]
        self._subset = Subset(others, settings.sample or len(others), seed)
        # Who runs at every third step counts three times when it does, and moves as far.
        self._scales = torch.tensor([1.0] + [1.0 / self._subset.share] * len(others), device=device)
        given = torch.tensor(start or [1.0] * count, dtype=torch.float64)
        self._smallest = (settings.floor * given / given.sum()).float().to(device)
        self._logits = (1.0 / count + (given / given.mean()).log()).float().to(device)
        self._similarities = torch.zeros(count, device=device)  # moving averages, the newest where there is none
        self._looks = torch.zeros(count, device=device)  # how many similarities have gone into each
        self._seen = torch.zeros(count, device=device)  # whose similarity is of the last step
        self._next = (self._logits, self._similarities, self._looks)
        self._direction = direction
        self._next_direction: Tensor | None = None
        if direction is not None:
            direction.value = torch.zeros_like(direction.value)

    def turns(self, step: int) -> tuple[Turn, ...]:
        """The end task, and the others whose turn it is; the weights given here are never used.

        Turns change with the looks: were they drawn by the step, those that run at looks would be a random few, and the
        weights would learn who was seen how often. All count the steps of the training, not turns of their own: the
        part of train that is held out at a step is then the same for all.
        """
        running = (self._names[0], *self._subset.at(step // self._settings.every))
        return tuple(Turn(name, 1.0 / len(self._names), step) for name in running)

    @property
    def period(self) -> int:
        """A round of those that take turns, which change with the looks."""
        return self._subset.round * self._settings.every if self._subset.round > 1 else 1

    def sees_gradients(self, step: int) -> bool:
        """Always: heads learn by unweighted losses."""
        return True

    @torch.no_grad()
    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of all objectives, by logits that count from now on unless the step is skipped."""
        self._next, self._seen = (self._logits, self._similarities, self._looks), torch.zeros_like(self._logits)
        if step % self._settings.every == 0:
            similarities, self._seen = self._measured(step, gradients)
            self._next = self._moved(similarities, self._seen)
        weights = self._scales * self._weights(self._next[0])
        return {name: weights[place] for place, name in enumerate(self._names)}

    @torch.no_grad()
    def after_step(self, step: int, skipped: Tensor) -> None:
        """Keep what `weigh` found, or forget it with a skipped step."""
        before = (self._logits, self._similarities, self._looks)
        self._logits, self._similarities, self._looks = (
            torch.where(skipped, old, new) for old, new in zip(before, self._next, strict=True)
        )
        self._seen = torch.where(skipped, torch.zeros_like(self._seen), self._seen)
        if self._direction is not None and self._next_direction is not None:
            self._direction.value = torch.where(skipped, self._direction.value, self._next_direction)
        self._next_direction = None

    def values(self) -> dict[str, Tensor]:
        """Weight and similarity of every objective; a similarity that the last step did not look at is no number."""
        weights = self._weights(self._logits)
        similarities = self._similarities.where(self._seen > 0, torch.nan)
        kind = self._settings.similarity
        return {f"weight/{name}": weights[place] for place, name in enumerate(self._names)} | {
            f"{kind}/{name}": similarities[place] for place, name in enumerate(self._names)
        }

    def state(self) -> dict[str, Tensor]:
        """Logits, the averages of similarities, and the direction by which texts are weighed, if they are."""
        own = {"logits": self._logits, "similarities": self._similarities, "looks": self._looks}
        return own if self._direction is None else {**own, "direction": self._direction.value}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; the objectives must be as many as they were."""
        own = self.state()
        if own.keys() != state.keys() or any(value.shape != state[name].shape for name, value in own.items()):
            raise ValueError(f"{len(self._names)} learned weights do not fit into a state of {sorted(state)}")
        taken = {name: state[name].to(value.device, copy=True) for name, value in own.items()}
        self._logits, self._similarities, self._looks = (taken[name] for name in ("logits", "similarities", "looks"))
        if self._direction is not None:
            self._direction.value = taken["direction"]
        self._next = (self._logits, self._similarities, self._looks)

    def _places(self, gradients: Mapping[str, Tensor]) -> dict[str, int]:
        return {name: place for place, name in enumerate(self._names) if name in gradients}

    def _measured(self, step: int, gradients: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Similarities of those that ran, zeros for the others, and which ran."""
        held_out = self._gradient(step)
        if self._direction is not None:
            self._next_direction = self._direction.of(held_out)
        similarities, ran = torch.zeros_like(self._logits), torch.zeros_like(self._logits)
        for name, place in self._places(gradients).items():
            similarities[place] = self._similarity(held_out, gradients[name])
            ran[place] = 1.0
        return similarities, ran

    def _similarity(self, held_out: Tensor, gradient: Tensor) -> Tensor:
        pairs = [(held_out[part], gradient[part]) for part in self._gradient.parts]
        product = torch.stack([torch.dot(one, other) for one, other in pairs]).sum()
        if self._settings.similarity == "dot":
            return product
        squares = [torch.stack([torch.dot(side, side) for side in sides]).sum() for sides in zip(*pairs, strict=True)]
        return product / (squares[0].sqrt() * squares[1].sqrt()).clamp(min=_SMALLEST)

    def _moved(self, newest: Tensor, ran: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and averages after a look; of the objectives that did not run nothing changes."""
        keep, looks = self._settings.average, self._looks + ran
        # As Adam's: an average of few looks is that of these few, not one with the zero it started from.
        total = self._similarities * (1.0 - keep**self._looks)
        averaged = (keep * total + (1.0 - keep) * newest) / (1.0 - keep**looks).clamp(min=_SMALLEST)
        similarities = torch.where(ran > 0, averaged, self._similarities)
        pace = self._settings.learning_rate * self._settings.every
        return self._logits + pace * self._scales * ran * similarities, similarities, looks

    def _weights(self, logits: Tensor) -> Tensor:
        """All weights, the floor included; they add up to one."""
        return self._smallest + (1.0 - self._settings.floor) * logits.softmax(0)
