"""Masked LM whose texts count by how much a step on each would lower held-out task loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from endtask.gradients.arithmetic import sums_by_owner
from endtask.gradients.engine import GradientEngine
from endtask.gradients.layers import choose_weights
from endtask.gradients.losses import masked_lm_losses
from endtask.models.batch import IGNORED, TextBatch
from endtask.models.flops import training_flops
from endtask.models.network import Network
from endtask.models.place import Place
from endtask.objectives.base import Loss, Objective
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.own_dropout import OwnDropout
from endtask.objectives.stream import TextStream
from endtask.train.loop import Phase
from endtask.train.phase_run import Memory
from endtask.train.plan import StepCost, parameters_of, whole_periods
from endtask.train.prefetch import batches_of
from endtask.train.reselect_cost import reading_share
from endtask.weighting.direction import Direction

_LAYERS = ("last",)
_SMALLEST = 1e-30
_SAMPLED_STEPS = 8


class WeighedMaskedLM(MaskedLM):
    """`MaskedLM` with a weight for each text, from its own gradient and the held-out one of the last layer.

    The weight is softplus(product / root mean square of the batch's products), over the mean at the batch's masked
    tokens: all are 1 where nothing is known yet. The body reads each batch once more for that, without dropout.
    """

    replayable = False  # how many texts a batch has is a number of Python's here

    def __init__(self, name: str, stream: TextStream, network: Network, direction: Direction) -> None:
        super().__init__(name, stream)
        self.direction, self._network = direction, network

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Weighted mean cross-entropy over the masked positions."""
        value = network.masked_lm_loss(network(batch), batch, self.token_weights(batch))
        return Loss(batch.token_share * value, {"mlm": value})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Training, and the reading that weighs."""
        return (1 + reading_share(network)) * super().flops(network, batch)

    def token_weights(self, batch: TextBatch) -> Tensor:
        """The weight of each masked position's text; the mean over the real ones is 1: (M,)."""
        assert batch.masked_positions is not None
        assert batch.masked_targets is not None
        products = self.products(batch)
        usual = (products.square().sum() / max(1, batch.texts)).sqrt().clamp(min=_SMALLEST)
        weights = functional.softplus(products / usual)[batch.text_ids[batch.masked_positions]]
        counts = batch.masked_targets != IGNORED
        mean = (weights * counts).sum() / counts.sum().clamp(min=1)
        return torch.where(counts, weights / mean.clamp(min=_SMALLEST), 0)

    def products(self, batch: TextBatch) -> Tensor:
        """Each text's gradient times the held-out one; 0 for texts of padding: (S,)."""
        texts = len(batch.offsets) - 1
        blocks = self._engine.gradients(batch, masked_lm_losses).blocks
        ((rows,),) = blocks.values()
        with torch.autocast(rows.right.device.type, enabled=False):
            each = ((rows.left @ self.direction.value.to(rows.left.dtype)) * rows.right).sum(1)  # type: ignore[attr-defined]
            return sums_by_owner(each[:, None], rows.owners, texts)[:, 0]

    @cached_property
    def _engine(self) -> GradientEngine:
        network = self._network
        device, in_half = network.embeddings.device, network.dtype == torch.bfloat16
        place = Place(device, torch.bfloat16) if in_half else Place(device)
        return GradientEngine(network, _LAYERS, place, compiled=network.fixed_shapes)


def direction_for(network: Network) -> Direction:
    """No direction yet, of the weight by whose gradients texts are weighed."""
    ((path, weight),) = choose_weights(network, _LAYERS).items()
    before = 0
    for name, other in network.body.named_parameters():
        if name == f"{path}.weight":
            break
        before += other.numel() if other.requires_grad else 0
    return Direction(slice(before, before + weight.numel()), torch.zeros_like(weight))


def direction_of(objectives: Mapping[str, Objective]) -> Direction | None:
    """The direction that the objectives share, where some weigh their texts."""
    found = [one.direction for one in map(_itself, objectives.values()) if isinstance(one, WeighedMaskedLM)]
    return found[0] if found else None


def with_weighing(cost: StepCost, phase: Phase) -> StepCost:
    """The cost of a step with the readings that weigh; a time was measured with them."""
    weighed = _weighed(phase.objectives)
    if not weighed:
        return cost
    sampled = whole_periods(_SAMPLED_STEPS, phase)
    read = [one for step in range(sampled) for one in batches_of(phase, step) if one.turn.objective in weighed]
    tokens = reading_share(phase.network) * sum(one.tokens for one in read) / sampled
    return replace(cost, flops=cost.flops + training_flops(parameters_of(phase), tokens))


def weighing_tokens(memory: Memory, objectives: Mapping[str, Objective], network: Network) -> float:
    """The tokens of training that would have cost as much as the readings that weigh."""
    weighed, counts = _weighed(objectives), memory.get("objectives", {})
    return reading_share(network) * float(sum(counts[name]["tokens"] for name in weighed if name in counts))


def _weighed(objectives: Mapping[str, Objective]) -> list[str]:
    return [name for name, one in objectives.items() if isinstance(_itself(one), WeighedMaskedLM)]


def _itself(objective: Objective) -> Objective:
    return objective.objective if isinstance(objective, OwnDropout) else objective
