"""Shared parts of aligned objectives: inputs made from aligned texts, and heads like the task's."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from endtask.config import BatchSize, ObjectiveSettings, Settings
from endtask.encoders.batch import TextBatch, batch_shape_for, lay_out, lay_out_tokens
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.base import BuiltObjective, Loss, Objective
from endtask.objectives.task_losses import cross_entropy, with_answers
from endtask.seeds import generator
from endtask.tokenization.aligned_texts import AlignedTexts
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.sampling import BatchPlan
from endtask.tokenization.special_tokens import PairTemplate
from endtask.tokenization.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from endtask.objectives.context import BuildContext


Tokens = NDArray[np.int64]

PAIR_CLASSES = ("no", "yes")


class AlignedObjective(Objective):
    """Base class of the objectives that are made from the texts of `aligned.sources`, each with a head of its own."""

    texts = ("aligned",)
    per_token: ClassVar[bool] = False
    """Whether the head reads tokens; else it reads texts."""
    hint: ClassVar[str | None] = None
    """The hint of the error for texts without anything to learn from."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return PAIR_CLASSES

    def make(self, name: str, texts: AlignedTexts, run: BuildContext, common: dict[str, Any]) -> BuiltObjective:
        """Return the objective; raises `NoUsableTexts`. `common` holds batch size, seed and the name of the head."""
        raise NotImplementedError

    def heads(self, name: str, network: Network, settings: Settings) -> Iterator[tuple[str, nn.Module]]:
        """Yield the architecture's head for tokens or texts, with the objective's classes."""
        head = network.architecture.token_head if self.per_token else network.architecture.task_head
        yield aligned_head(name), head(with_classes(network, self.classes))

    def reusable_head(self, name: str, settings: Settings) -> tuple[str, tuple[str, ...], bool]:
        """Return its head, its classes, and whether it reads tokens."""
        return aligned_head(name), self.classes, self.per_token

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return the objective over the aligned texts; raises `InputError` where no inputs can be made from them."""
        batch_size = section.batch_size or run.settings.pretrain.batch_size
        common = {"batch_size": batch_size, "seed": run.seed, "head": aligned_head(name)}
        try:
            return self.make(name, AlignedTexts(run.packed / "aligned"), run, common)
        except NoUsableTexts as error:
            raise InputError(f"{name}: {error}", key="aligned.sources", hint=self.hint) from None


def aligned_head(name: str) -> str:
    """Return the name of the head of an aligned objective."""
    return f"aligned_{name}"


def with_classes(network: Network, classes: Sequence[str]) -> Any:
    """Return the network's configuration with other classes."""
    config = copy.deepcopy(network.config)
    config.id2label = dict(enumerate(classes))
    return config


def tokenizer_of(run: BuildContext) -> PreTrainedTokenizerFast:
    """Return the tokenizer of the packed texts."""
    return load_tokenizer(run.packed / "tokenizer")


@dataclass(frozen=True)
class PairInput:
    """The tokens of an input, and the index at which its second text starts; without a second text, its length."""

    tokens: Tokens
    second: int


class NoUsableTexts(ValueError):
    """No inputs can be made from the texts."""


class AlignedStream:
    """The texts of each step, the random generator to make inputs from them, and their layout.

    `chosen` are the texts from which inputs can be made, and `lengths` the most tokens of the input of each. Raises
    `NoUsableTexts`, which names what the texts `needs`, where there are none.
    """

    def __init__(
        self,
        name: str,
        chosen: NDArray[np.int64],
        lengths: NDArray[np.int64],
        network: Network,
        *,
        needs: str,
        batch_size: BatchSize,
        seed: int,
    ) -> None:
        if len(chosen) == 0:
            raise NoUsableTexts(f"there is no {needs}")
        self._name, self._seed, self._chosen = name, seed, chosen
        layout = network.layout(int(lengths.max()))
        grouped = layout.grid and not network.fixed_shapes
        self.plan = BatchPlan(lengths, batch_size, seed, name, group_by_length=grouped)
        fixed_shape = batch_shape_for(*self.plan.most, 0.0, layout) if network.fixed_shapes else None
        self._layout = replace(layout, fixed_shape=fixed_shape)

    def positions(self, step: int) -> NDArray[np.int64]:
        """Return the texts of a step's batch."""
        return self._chosen[self.plan.positions(step)]

    def random(self, step: int) -> np.random.Generator:
        """Return the random generator of a step."""
        return generator(self._seed, "make", self._name, step)

    def with_shares(self, batch: TextBatch, step: int) -> TextBatch:
        """Return the batch of a step with its texts and tokens relative to the mean batch, as in `TextStream`."""
        text_share, token_share = self.plan.shares(step)
        return replace(batch, text_share=text_share, token_share=token_share)

    def lay_out_texts(self, texts: PackedTexts, positions: NDArray[np.int64]) -> TextBatch:
        """Return the batch of packed texts as they are."""
        return lay_out(texts, positions, self._layout)

    def lay_out(self, inputs: Sequence[PairInput]) -> TextBatch:
        """Return the batch of some inputs."""
        lengths = np.array([len(pair.tokens) for pair in inputs], dtype=np.int64)
        second = np.array([pair.second for pair in inputs], dtype=np.int64)
        return lay_out_tokens(np.concatenate([pair.tokens for pair in inputs]), lengths, second, self._layout)


def half_of(count: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of `count` inputs are positive: a random half of them, of odd numbers rounded up or down at random.

    >>> int(half_of(8, np.random.default_rng(0)).sum())
    4
    """
    positive = np.arange(count) < (count + int(random.integers(2))) // 2
    return random.permutation(positive)


LabelledPairs = tuple[list[PairInput], NDArray[np.int64]]
"""Inputs and their classes."""


class PairClassification(ABC):
    """Predict whether two texts belong together (class 1) or not (class 0): `[CLS] first [SEP] second [SEP]`."""

    passes = 1
    replayable = True
    needs: ClassVar[str]
    """What texts need so that pairs can be made from them, for the error message."""

    def __init__(
        self,
        name: str,
        texts: AlignedTexts,
        tokenizer: PreTrainedTokenizerFast,
        network: Network,
        *,
        batch_size: BatchSize,
        seed: int,
        head: str,
    ) -> None:
        self.name, self._seed = name, seed
        self._texts, self._tokenizer, self._template = texts, tokenizer, PairTemplate.of(tokenizer)
        self._chosen, lengths = self.choose(texts)
        self.stream = AlignedStream(
            name, self._chosen, lengths, network, needs=self.needs, batch_size=batch_size, seed=seed
        )
        self.heads: tuple[str, ...] = self.heads_of(head)
        self._head = head

    def heads_of(self, head: str) -> tuple[str, ...]:
        """Return the names of the trained heads: `head` for pairs, and others."""
        return (head,)

    @abstractmethod
    def choose(self, texts: AlignedTexts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the texts or segments, by number, from which pairs can be made, and the most tokens of each pair."""

    @abstractmethod
    def make(self, step: int) -> LabelledPairs:
        """Return the inputs of a step and their classes; a pure function of seed and step."""

    def join(self, first: Tokens, second: Tokens) -> PairInput:
        """Return the input of two texts without special tokens."""
        return PairInput(*self._template.join(first, second))

    def batch(self, step: int) -> TextBatch:
        """Return the labelled inputs of a step."""
        return self.stream.with_shares(self.lay_out(*self.make(step)), step)

    def lay_out(self, inputs: list[PairInput], classes: NDArray[np.int64]) -> TextBatch:
        """Return the batch of inputs with their classes."""
        return with_answers(self.stream.lay_out(inputs), classes, 1 / len(classes))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Return the mean cross-entropy of both classes, in proportion to the number of inputs."""
        value = self.match_loss(network, network(batch), batch)
        return Loss(batch.text_share * value, {"match": value})

    def match_loss(self, network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
        """Return the mean cross-entropy of both classes from the encoder's vectors (N, hidden)."""
        return cross_entropy(network.heads[self._head](network.pooled(hidden, batch)), batch)

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Return the cost of the encoder, and of the head once per input."""
        return network.training_flops(batch, texts=batch.texts)
