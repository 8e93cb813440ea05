"""What aligned objectives have in common: inputs made from aligned texts, and heads like the task's."""

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
    """What the rows need, where nothing can be made from them."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return PAIR_CLASSES

    def make(self, name: str, texts: AlignedTexts, run: BuildContext, common: dict[str, Any]) -> BuiltObjective:
        """Return the objective; raises `NothingToMake`. `common` holds batch size, seed and the name of the head."""
        raise NotImplementedError

    def heads(self, name: str, network: Network, settings: Settings) -> Iterator[tuple[str, nn.Module]]:
        """Yield the architecture's own head for tokens or texts, with the classes that are learned."""
        head = network.architecture.token_head if self.per_token else network.architecture.task_head
        yield aligned_head(name), head(with_classes(network, self.classes))

    def reusable_head(self, name: str, settings: Settings) -> tuple[str, tuple[str, ...], bool]:
        """Return its head, its classes, and whether it reads tokens."""
        return aligned_head(name), self.classes, self.per_token

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return the objective over the aligned texts; raises `InputError` where they hold nothing to learn from."""
        batch_size = section.batch_size or run.settings.pretrain.batch_size
        common = {"batch_size": batch_size, "seed": run.seed, "head": aligned_head(name)}
        try:
            return self.make(name, AlignedTexts(run.packed / "aligned"), run, common)
        except NothingToMake as error:
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
class MadeInput:
    """The tokens of one input, and where its second text starts: its length if there is none."""

    tokens: Tokens
    second: int


class NothingToMake(ValueError):
    """The texts hold nothing that inputs could be made of."""


class MadeStream:
    """Which texts a step makes inputs of, the chance to make them by, and their layout.

    `chosen` are the texts that inputs can be made of, those that have what an input `needs`; `lengths`, one for each,
    are the most tokens of its input.
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
            raise NothingToMake(f"there is no {needs}")
        self._name, self._seed, self._chosen = name, seed, chosen
        layout = network.layout(int(lengths.max()))
        grouped = layout.grid and not network.fixed_shapes
        self.plan = BatchPlan(lengths, batch_size, seed, name, group_by_length=grouped)
        fixed_shape = batch_shape_for(*self.plan.most, 0.0, layout) if network.fixed_shapes else None
        self._layout = replace(layout, fixed_shape=fixed_shape)

    def positions(self, step: int) -> NDArray[np.int64]:
        """The texts of a step's batch."""
        return self._chosen[self.plan.positions(step)]

    def random(self, step: int) -> np.random.Generator:
        """The chance of a step."""
        return generator(self._seed, "make", self._name, step)

    def lay_out_texts(self, texts: PackedTexts, positions: NDArray[np.int64]) -> TextBatch:
        """The batch of some packed texts as they are."""
        return lay_out(texts, positions, self._layout)

    def lay_out(self, inputs: Sequence[MadeInput]) -> TextBatch:
        """The batch of some inputs."""
        lengths = np.array([len(one.tokens) for one in inputs], dtype=np.int64)
        second = np.array([one.second for one in inputs], dtype=np.int64)
        return lay_out_tokens(np.concatenate([one.tokens for one in inputs]), lengths, second, self._layout)


def half_of(count: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Which of `count` inputs are to be positive: half of them, and of an odd number one more or less by chance.

    >>> int(half_of(8, np.random.default_rng(0)).sum())
    4
    """
    positive = np.arange(count) < (count + int(random.integers(2))) // 2
    return random.permutation(positive)


Made = tuple[list[MadeInput], NDArray[np.int64]]


class MadePairs(ABC):
    """Tell whether the parts of an input belong together: class 1 if so, class 0 if not."""

    passes = 1
    replayable = True

    def __init__(self, name: str, stream: MadeStream, *, head: str) -> None:
        self.name, self.stream = name, stream
        self.heads: tuple[str, ...] = self.heads_of(head)
        self._head = head

    def heads_of(self, head: str) -> tuple[str, ...]:
        """The heads that are trained: the one for whole inputs, and others by its name."""
        return (head,)

    @abstractmethod
    def make(self, step: int) -> Made:
        """The inputs of a step and their classes; a pure function of seed and step."""

    def batch(self, step: int) -> TextBatch:
        """The labelled inputs of a step."""
        return self.laid_out(*self.make(step))

    def laid_out(self, inputs: list[MadeInput], answers: NDArray[np.int64]) -> TextBatch:
        """The batch of what was made."""
        return with_answers(self.stream.lay_out(inputs), answers, 1 / len(answers))

    def loss(self, network: Network, batch: TextBatch) -> Loss:
        """Mean cross-entropy of both classes."""
        value = self.match_loss(network, network(batch), batch)
        return Loss(value, {"match": value})

    def match_loss(self, network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
        """The same from what the encoder made of the tokens (N, width)."""
        return cross_entropy(network.heads[self._head](network.pooled(hidden, batch)), batch)

    def flops(self, network: Network, batch: TextBatch) -> float:
        """Body, and the head once per input."""
        return network.training_flops(batch, texts=batch.texts)


class FramedPairs(MadePairs):
    """Pairs of a packed text, or a part of one, and something beside it: `[CLS] first [SEP] second [SEP]`."""

    needs: str
    """What a text must be or have for pairs to be made of it."""

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
        self._texts, self._tokenizer, self._frame = texts, tokenizer, PairTemplate.of(tokenizer)
        self._chosen, most = self.choose(texts)
        stream = MadeStream(name, self._chosen, most, network, needs=self.needs, batch_size=batch_size, seed=seed)
        super().__init__(name, stream, head=head)

    @abstractmethod
    def choose(self, texts: AlignedTexts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What pairs can be made of: the numbers of texts, or of pieces of them, and the most tokens of a pair."""

    def framed(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> MadeInput:
        """The input of two texts without special tokens."""
        return MadeInput(*self._frame.join(first, second))
