"""What an objective is: a loss on the shared encoder, through a head, over a stream of batches.

An objective is one file: its options (`Config`), the texts that it reads, the heads that it adds, its checks, and the
object that it builds for training:

    @objectives.register("mlm")
    class MaskedLMObjective(Objective):
        def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from endtask.config.section import PartConfig
from endtask.objectives.built import Batch, BuiltObjective, Loss
from endtask.registry import objectives
from endtask.seeds import derive

if TYPE_CHECKING:
    from torch import nn

    from endtask.config import ObjectiveSettings, Settings
    from endtask.encoders.network import Network
    from endtask.objectives.context import BuildContext

__all__ = ["Batch", "BuiltObjective", "Loss", "Objective", "PartConfig", "objectives"]

ALL_TEXTS = ("task", "selection", "domain", "aligned")


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
