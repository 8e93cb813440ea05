"""Replaced-token detection (ELECTRA: Clark et al., 2020): a narrow masked LM fills gaps, the encoder detects errors.

The encoder learns from every token, not only from the masked ones, which pays for small models and short training.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from endtask.encoders.base import Encoder
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.flops import ModelCost
from endtask.encoders.heads import MaskedLMHead
from endtask.encoders.network import GENERATOR, REPLACED, Network
from endtask.objectives.base import BuiltObjective, Loss, Objective, objectives
from endtask.objectives.stream import TextStream
from endtask.seeds import derive

if TYPE_CHECKING:
    from endtask.config import ObjectiveSettings, Settings
    from endtask.objectives.context import BuildContext


_WEIGHT = 50.0
"""Weight of the detection loss against the loss of the generator (ELECTRA, section 2)."""


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

    That is ELECTRA's sum (section 2) divided by its weight. The generator shares no weights with the encoder, so the
    division changes only how much detection counts against other objectives.
    """

    heads: tuple[str, ...] = (GENERATOR, REPLACED)
    passes = 1

    def __init__(self, name: str, stream: TextStream) -> None:
        self.name, self.stream = name, stream

    def batch(self, step: int) -> TextBatch:
        """Return the masked texts of a step."""
        return self.stream.batch(step)

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return both losses; the detection loss does not train the generator, since drawn tokens have no gradient."""
        generator, head = network.heads[GENERATOR], network.heads[REPLACED]
        assert isinstance(generator, Generator)
        mlm, guesses = generator(network, batch)
        filled, replaced = fill_gaps(batch, guesses)
        present = (batch.text_ids < batch.texts).float()  # (N,)
        detection = batch.of_real(head(network(replace(batch, input_ids=filled)), replaced, present))
        return Loss(batch.token_share * (mlm / _WEIGHT + detection), {"mlm": mlm, "replaced": detection})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of encoder, detection head and generator at every token, and of its head at masked ones."""
        generator, head = network.heads[GENERATOR], network.heads[REPLACED]
        assert isinstance(generator, Generator)
        assert isinstance(head, ReplacedHead)
        tokens = batch.real_tokens
        generating = generator.cost.step_flops(
            tokens=tokens, squared_lengths=batch.squared_lengths, masked=batch.masked
        )
        hidden = head.out.in_features
        return network.training_flops(batch) + generating + 6.0 * hidden * (hidden + 1) * tokens


def fill_gaps(batch: TextBatch, guesses: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens with every gap filled, and 1 where the filled token is wrong: (M,) -> (N,), (N,)

    Gaps of padding all point to the first token, which is special, never masked, and not changed.
    """
    positions, targets = batch.masked_positions, batch.masked_targets
    assert positions is not None
    assert targets is not None
    real = targets != IGNORED
    tokens = torch.where(real, guesses, batch.input_ids[positions])
    filled = batch.input_ids.scatter(0, positions, tokens)
    wrong = (real & (guesses != targets)).float()
    return filled, torch.zeros_like(filled, dtype=torch.float32).scatter(0, positions, wrong)


_HEAD_SIZE = 64  # width of an attention head, of the generator too
_WIDTH_SHARE = 0.34
"""Width of the generator as a share of the network's; ELECTRA has a quarter to a half."""


class GuessingHead(MaskedLMHead):
    """A masked-LM head that also draws a token for every gap from its predicted distribution."""

    def forward(  # type: ignore[override]
        self, hidden: Tensor, embeddings: Tensor, positions: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return mean cross-entropy and drawn tokens: (N, hidden), (vocabulary, hidden), (M,), (M,) -> (), (M,)"""
        logits = self.logits(hidden[positions], embeddings).float()
        total = functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        # The largest of probabilities over exponential times is a draw from the distribution.
        times = torch.empty_like(logits).exponential_()
        guesses = (logits.detach().softmax(-1) / times).argmax(-1)
        return total / (targets != IGNORED).sum().clamp(min=1), guesses


class Generator(nn.Module):
    """A masked language model with the network's depth, a share of its width, and its own word embeddings."""

    def __init__(self, architecture: Encoder, config: Any) -> None:
        super().__init__()
        self.config = narrow(config, _WIDTH_SHARE)
        self.encoder = architecture.encoder(self.config)
        self.head = GuessingHead(architecture.masked_lm_transform(self.config), self.config.vocab_size)
        self.cost = ModelCost(
            self.config.hidden_size,
            self.config.num_hidden_layers,
            self.config.intermediate_size,
            gated=architecture.gated,
            vocabulary=self.config.vocab_size,
            classes=0,
        )

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile encoder and head, as those of a network."""
        for part in (self.encoder, self.head):
            part.compile(*args, **options)

    def forward(self, network: Network, batch: TextBatch) -> tuple[Tensor, Tensor]:
        """Return mean cross-entropy at the gaps, and a drawn token for each: (), (M,)"""
        hidden = network.architecture.hidden_states(self.encoder, batch, network.backend, network.dtype)
        embeddings = network.architecture.embeddings(self.encoder).weight
        loss, guesses = self.head(hidden, embeddings, batch.masked_positions, batch.masked_targets)
        return batch.of_masked(loss), guesses


class ReplacedHead(nn.Module):
    """Predicts for every token whether it was replaced: a transform and one logit per token."""

    def __init__(self, architecture: Encoder, config: Any) -> None:
        super().__init__()
        self.transform = architecture.masked_lm_transform(config)
        self.out = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor, replaced: Tensor, present: Tensor) -> Tensor:
        """Return mean binary cross-entropy over tokens without padding: (N, hidden), (N,), (N,) -> ()"""
        logits = self.out(self.transform(hidden)).squeeze(-1).float()  # (N,)
        each = functional.binary_cross_entropy_with_logits(logits, replaced, reduction="none")
        return (each * present).sum() / present.sum().clamp(min=1)


def add_generator(network: Network, seed: int) -> None:
    """Add generator and detection head to the network; neither is exported."""
    network.add_head(GENERATOR, Generator(network.architecture, network.config), seed)
    network.add_head(REPLACED, ReplacedHead(network.architecture, network.config), seed + 1)


def narrow(config: Any, share: float) -> Any:
    """Return the configuration with a share of the width, in whole attention heads.

    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(hidden_size=768, num_attention_heads=12, intermediate_size=2048)
    >>> narrow(config, 1 / 3)
    namespace(hidden_size=256, num_attention_heads=4, intermediate_size=704)
    """
    narrower = copy.deepcopy(config)
    size = min(_HEAD_SIZE, config.hidden_size // config.num_attention_heads)
    heads = max(1, round(share * config.hidden_size / size))
    narrower.num_attention_heads, narrower.hidden_size = heads, heads * size
    unit = min(_HEAD_SIZE, config.intermediate_size)
    exact = config.intermediate_size * narrower.hidden_size / config.hidden_size
    narrower.intermediate_size = unit * -(-int(exact) // unit)
    return narrower
