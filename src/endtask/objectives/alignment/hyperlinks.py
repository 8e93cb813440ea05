"""Where spans such as hyperlinks start and end: a class for every word (objective alignment, section 3.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from endtask.config import BatchSize
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import Network
from endtask.objectives.alignment.pairs import AlignedObjective, AlignedStream
from endtask.objectives.base import BuiltObjective, Loss, PartConfig, objectives
from endtask.objectives.task_losses import cross_entropy
from endtask.tokenization.aligned_texts import AlignedTexts
from endtask.tokenization.packed_texts import Ragged

if TYPE_CHECKING:
    from endtask.objectives.context import BuildContext

Indices = NDArray[np.int64]
Scheme = Literal["boundaries", "bio"]
CLASSES: dict[str, tuple[str, ...]] = {"boundaries": ("none", "start", "end", "both"), "bio": ("O", "B", "I")}
"""The classes of each scheme in the order of their numbers."""


@objectives.register("hyperlinks")
class HyperlinksObjective(AlignedObjective):
    """which words start and end a link"""

    per_token = True
    hint = "rows need a column `links`: [[start, end], ...]"

    class Config(PartConfig):
        """The labels of the words of a link."""

        span_labels: Scheme = Field("boundaries", description="classes of words: start, end, both, none; or B, I, O")

    config: Config

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the scheme."""
        return CLASSES[self.config.span_labels]

    def make(self, name: str, texts: AlignedTexts, run: BuildContext, common: dict[str, Any]) -> BuiltObjective:
        """Return the objective."""
        return SpanBoundaries(name, texts, texts.links, run.network, scheme=self.config.span_labels, **common)


class SpanBoundaries:
    """Predict for every word whether it starts a span, ends a span, does both or neither; or B, I, O.

    Words of spans that were cut, or that start or end inside a word, have no class and are left out of the loss.
    """

    passes = 1
    replayable = True

    def __init__(
        self,
        name: str,
        texts: AlignedTexts,
        spans: Ragged,
        network: Network,
        *,
        batch_size: BatchSize,
        seed: int,
        head: str,
        scheme: Scheme = "boundaries",
    ) -> None:
        chosen = texts_with_spans(texts, spans)
        self.name = name
        lengths = texts.lengths[chosen]
        self.stream = AlignedStream(name, chosen, lengths, network, needs="span", batch_size=batch_size, seed=seed)
        self.heads: tuple[str, ...] = (head,)
        self._texts, self._spans, self._head = texts, spans, head
        self._scheme: Scheme = scheme

    def batch(self, step: int) -> TextBatch:
        """Return the texts of a step with the classes of their tokens."""
        positions = self.stream.positions(step)
        batch = self.stream.with_shares(self.stream.lay_out_texts(self._texts, positions), step)
        labels = np.full(len(batch.input_ids), IGNORED, dtype=np.int64)
        starts = batch.offsets.numpy()
        for start, position in zip(starts, positions, strict=False):
            text_labels = self.labels(int(position))
            labels[start : start + len(text_labels)] = text_labels
        has_class = labels != IGNORED
        weights = has_class.astype(np.float32) / max(1, int(has_class.sum()))
        return replace(batch, labels=torch.from_numpy(labels), weights=torch.from_numpy(weights))

    def labels(self, position: int) -> Indices:
        """Return the class of every token of a text; [CLS], [SEP] and tokens inside words have none."""
        length = int(self._texts.offsets[position + 1] - self._texts.offsets[position])
        spans = self._spans[position].astype(np.int64)
        words = self._texts.words[position][:, :2].astype(np.int64)
        labels = np.full(length, IGNORED, dtype=np.int64)
        labels[words[:, 0]] = word_classes(words, spans, self._scheme)
        return labels

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return the mean cross-entropy over the tokens that have a class, in proportion to the number of tokens."""
        value = cross_entropy(network.heads[self._head](network(batch)), batch)
        return Loss(batch.token_share * value, {"spans": value})

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of the encoder, and of the head once per token."""
        return network.training_flops(batch, texts=batch.real_tokens)


def texts_with_spans(texts: AlignedTexts, spans: Ragged) -> Indices:
    """Return all texts of documents with a span; documents without spans may just not be annotated."""
    has_spans = np.zeros(int(texts.documents.max(initial=-1)) + 1, dtype=np.bool_)
    has_spans[texts.documents[spans.lengths > 0]] = True
    return np.flatnonzero(has_spans[texts.documents])


def word_classes(words: Indices, spans: Indices, scheme: Scheme) -> Indices:
    """Return the class of each word (first token, end token) for spans (first token, end token, whether complete).

    >>> words = np.array([[1, 2], [2, 4], [4, 5], [5, 6]])
    >>> word_classes(words, np.array([[2, 5, 1], [5, 6, 1]]), "boundaries").tolist()
    [0, 1, 2, 3]
    >>> word_classes(words, np.array([[2, 5, 1]]), "bio").tolist()
    [0, 1, 2, 0]
    """
    classes = np.zeros(len(words), dtype=np.int64)
    for start, end, is_complete in spans:
        inside = np.flatnonzero((words[:, 0] < end) & (words[:, 1] > start))
        if len(inside) == 0:
            continue
        if not is_complete or words[inside[0], 0] != start or words[inside[-1], 1] != end:
            classes[inside] = IGNORED
        elif scheme == "bio":
            classes[inside] = 2
            classes[inside[0]] = 1
        else:
            classes[inside[0]] = 1
            classes[inside[-1]] += 2  # a span of one word starts and ends with it
    return classes
