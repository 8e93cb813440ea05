"""A user's objective with a head of its own, in one file: find the span of shuffled tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from endtask.config import ObjectiveSettings, Settings
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import Network
from endtask.objectives.base import Loss, Objective, PartConfig, objectives
from endtask.objectives.context import BuildContext
from endtask.objectives.stream import TextStream
from endtask.seeds import generator


@objectives.register("shuffled_span")
class ShuffledSpan(Objective):
    """which tokens stand in a span whose order was changed"""

    class Config(PartConfig):
        """How much is shuffled."""

        share: float = Field(0.5, gt=0, lt=1, description="tokens of a text in the span")

    def heads(self, name: str, network: Network, settings: Settings) -> Iterator[tuple[str, nn.Module]]:
        """Yield a head with two classes for every token."""
        yield _head_of(name), nn.Linear(network.config.hidden_size, 2)

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> ShuffledSpans:
        """Return the loss over the section's texts."""
        return ShuffledSpans(name, run.stream(name, section, masked=False), self.config.share, run.seed)


class ShuffledSpans:
    """A class for every token: 1 in the shuffled span of its text, else 0."""

    passes = 1

    def __init__(self, name: str, stream: TextStream, share: float, seed: int) -> None:
        self.name = name
        self.heads: tuple[str, ...] = (_head_of(name),)
        self._stream, self._share, self._seed = stream, share, seed

    def batch(self, step: int) -> TextBatch:
        """Return the texts of a step with a shuffled span each; a pure function of the step."""
        batch, random = self._stream.batch(step), generator(self._seed, "shuffle", self.name, step)
        ids = batch.input_ids.numpy().copy()
        labels = torch.full((len(ids),), IGNORED)
        ends = batch.offsets[: batch.texts + 1].tolist()
        for first, last in pairwise(ends):
            size = max(1, int(self._share * (last - first)))
            start = first + int(random.integers(last - first - size + 1))
            ids[start : start + size] = random.permutation(ids[start : start + size])
            labels[first:last] = 0
            labels[start : start + size] = 1
        return replace(batch, input_ids=torch.from_numpy(ids), token_labels=labels)

    def loss(self, network: Any, batch: TextBatch) -> Loss:
        """Return the mean cross-entropy over all tokens."""
        logits = network.heads[self.heads[0]](network(batch))
        assert batch.token_labels is not None
        value = functional.cross_entropy(logits, batch.token_labels, ignore_index=IGNORED)
        return Loss(value, {"span": value})

    def flops(self, network: Any, batch: TextBatch) -> float:
        """Return the cost of the encoder; the head is tiny."""
        return float(network.training_flops(batch))


def _head_of(name: str) -> str:
    return f"shuffled_{name}"
