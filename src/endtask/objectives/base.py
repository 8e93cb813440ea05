"""What an objective is: a loss on the shared encoder, through a head, over a stream of batches.

An objective is one file: its options (`Config`), which texts it reads, the heads it adds, what it refuses, and what it
builds for training:

    @objectives.register("mlm")
    class MaskedLMObjective(Objective):
        def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from endtask.config.section import PartConfig
from endtask.registry import objectives
from endtask.seeds import derive

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from endtask.config import ObjectiveSettings, Settings
    from endtask.encoders.network import Network
    from endtask.objectives.context import BuildContext

__all__ = ["Batch", "BuiltObjective", "Loss", "Objective", "PartConfig", "objectives"]

ALL_TEXTS = ("task", "selection", "domain", "aligned")


@dataclass(frozen=True)
class Loss:
    """The value to minimise, and its parts for the curves."""

    total: Tensor
    parts: dict[str, Tensor]


class Batch(Protocol):
    """What the loop uses of a batch, of texts or of anything else; where there is no text, examples count as tokens."""

    @property
    def real_tokens(self) -> int:
        """Tokens without padding."""
        ...

    @property
    def padded_tokens(self) -> int:
        """Tokens that are computed."""
        ...

    def to(self, device: torch.device) -> Self:
        """Return the same batch on another device."""
        ...

    def pin(self) -> Self:
        """Return the same batch in pinned memory, which a GPU copies asynchronously."""
        ...


class BuiltObjective(Protocol):
    """An objective as the training loop uses it; a batch belongs to one objective.

    `batch(step)` is a pure function of the objective's own seed and the step, so that a resumed run, several
    processes and tests all see the same data without replay.

    An objective whose loss depends only on the batch's tensors and the weights, and on no Python number that changes,
    may set `replayable = True`: its kernels are then recorded in a CUDA graph (training/graph_replay.py).
    """

    name: str
    heads: tuple[str, ...]
    """The heads of the network that it trains."""
    passes: int
    """How often the network reads each batch; tokens are counted as often."""

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, on the CPU."""
        ...

    def loss(self, network: Any, batch: Any) -> Loss:
        """Return the loss of a batch, through this objective's head of the network, on the network's device."""
        ...

    def flops(self, network: Any, batch: Any) -> float:
        """Return the cost of training on a batch in matrix products, without padding."""
        ...


class Objective:
    """Base class of objectives; the first line of its docstring says what is learned."""

    name: ClassVar[str]
    texts: ClassVar[tuple[str, ...]] = ALL_TEXTS
    """The texts that it can read."""
    labels: ClassVar[bool] = False
    """Whether it learns from the labels of a task."""
    masks: ClassVar[bool] = False
    """Whether it masks tokens, so that the settings of masking count."""
    reselectable: ClassVar[bool] = False
    """Whether re-selection may change which texts of the selection it reads."""

    class Config(PartConfig):
        """No options."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @classmethod
    def meaning(cls) -> str:
        """Return what is learned, in a line."""
        return (cls.__doc__ or cls.name).strip().splitlines()[0]

    def preflight(self, name: str, settings: Settings) -> None:
        """Raise `InputError` for settings that this objective cannot be trained with."""

    def heads(self, name: str, network: Network, settings: Settings) -> Iterator[tuple[str, nn.Module]]:
        """Yield the heads that this objective adds to the network, by name; `name` is the objective's own."""
        return iter(())

    def add_heads(self, name: str, network: Network, settings: Settings) -> None:
        """Add its heads to the network, with random weights derived from the objective's name."""
        for head, module in self.heads(name, network, settings):
            network.add_head(head, module, derive(settings.pretrain_seed, "weights", name))

    head_is_reused_last: ClassVar[bool] = False
    """Whether a task starts from its head only where no other objective's fits."""

    def reusable_head(self, name: str, settings: Settings) -> tuple[str, tuple[str, ...], bool] | None:
        """Return a head that a task may start from: its name, its classes, and whether it reads tokens or texts."""
        return None

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return the objective for training; `section` holds its settings."""
        raise NotImplementedError
