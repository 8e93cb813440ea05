"""What a weighting is: the rule that says which objectives run at a step, and with which weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ScheduledObjective:
    """One objective's part in a step; `step` counts this objective's own turns, so it reads its data in order."""

    objective: str
    weight: float
    step: int


class Weighting:
    """A rule over named objectives. Most rules only say whose turn it is.

    A rule that learns its weights asks for gradients: the loop then hands it each objective's own gradient on the
    shared encoder, flat, and takes the weights that it answers. It keeps what it has learned in `state`, which travels
    in the checkpoint.
    """

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """The objectives that run at this step; a pure function of the step."""
        raise NotImplementedError

    def sees_gradients(self, step: int) -> bool:
        """Whether `weigh` is to be called at this step."""
        return False

    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Weights of all objectives, on the device, from the gradients (P,) of those that ran on the encoder's P weights.

        The P weights stand in the order of `encoder.parameters()`, in memory that the next step uses again. A rule that
        needs more than these, such as the network for a gradient of its own, is given it when it is made; gradients
        that it leaves in the encoder are overwritten. Learn in `after_step`: the step may yet be skipped.
        """
        raise NotImplementedError

    def after_step(self, step: int, skipped: Tensor) -> None:
        """Learn from the step; `skipped`, on the device, says whether its gradient was not finite."""

    def values(self) -> dict[str, Tensor]:
        """What the curves show, such as `weight/OBJECTIVE`; tensors that nobody changes later."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """What a resumed run must know."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} has no state, got {sorted(state)}")
