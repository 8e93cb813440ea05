"""Replaced-token detection (ELECTRA: Clark et al., 2020): a narrow masked LM fills gaps, the encoder finds its errors.

The encoder learns from every token, not only from the masked ones, which pays for small models and short training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.generator import Generator, ReplacedHead, add_generator
from endtask.encoders.network import GENERATOR, REPLACED, Network
from endtask.objectives.base import BuiltObjective, Loss, Objective, objectives
from endtask.objectives.stream import TextStream
from endtask.seeds import derive

if TYPE_CHECKING:
    from endtask.config import ObjectiveSettings, Settings
    from endtask.objectives.context import BuildContext

_WEIGHT = 50.0
"""Of finding replaced tokens against the loss of the generator (ELECTRA, section 2)."""


@objectives.register("replaced")
class ReplacedTokensObjective(Objective):
    """which tokens a narrow masked LM put in (ELECTRA)"""

    masks = True

    def add_heads(self, name: str, network: Network, settings: Settings) -> None:
        """Add the generator and the detection head, which all objectives of this kind share."""
        if GENERATOR not in network.heads:
            add_generator(network, derive(settings.pretrain_seed, "weights", "replaced"))

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return both losses over the section's texts."""
        return ReplacedTokens(name, run.stream(name, section))


class ReplacedTokens:
    """The detection loss of the encoder, and L_mlm of the generator divided by `_WEIGHT`.

    That is ELECTRA's sum (section 2) divided by its weight: the generator has a body of its own here, so the weight
    times the detection loss would only let it count so much more than the objectives beside it.
    """

    heads: tuple[str, ...] = (GENERATOR, REPLACED)
    passes = 1

    def __init__(self, name: str, stream: TextStream) -> None:
        self.name, self.stream = name, stream

    def batch(self, step: int) -> TextBatch:
        """The masked texts of a step."""
        return self.stream.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Both losses; none of the encoder's reaches the generator, for a drawn token has no gradient."""
        generator, head = network.heads[GENERATOR], network.heads[REPLACED]
        assert isinstance(generator, Generator)
        mlm, guesses = generator(network, batch)
        filled, replaced = fill_gaps(batch, guesses)
        present = (batch.text_ids < batch.texts).float()  # (N,)
        detection = head(network(replace(batch, input_ids=filled)), replaced, present)
        return Loss(batch.token_share * (mlm / _WEIGHT + detection), {"mlm": mlm, "replaced": detection})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """The encoder and its head at every token, the generator and its head at the masked ones."""
        generator, head = network.heads[GENERATOR], network.heads[REPLACED]
        assert isinstance(generator, Generator)
        assert isinstance(head, ReplacedHead)
        tokens = batch.real_tokens
        guessing = generator.cost.step_flops(tokens=tokens, squared_lengths=batch.squared_lengths, masked=batch.masked)
        hidden = head.out.in_features
        return network.training_flops(batch) + guessing + 6.0 * hidden * (hidden + 1) * tokens


def fill_gaps(batch: TextBatch, guesses: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens with every gap filled, and 1 where that is not what stood there: (M,) -> (N,), (N,)

    Gaps of padding all point to the first token, which is special and never masked; it stays.
    """
    positions, targets = batch.masked_positions, batch.masked_targets
    assert positions is not None
    assert targets is not None
    real = targets != IGNORED
    tokens = torch.where(real, guesses, batch.input_ids[positions])
    filled = batch.input_ids.scatter(0, positions, tokens)
    wrong = (real & (guesses != targets)).float()
    return filled, torch.zeros_like(filled, dtype=torch.float32).scatter(0, positions, wrong)
