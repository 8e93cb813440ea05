"""Weights learned while training, from a gradient of held-out task loss (META-TARTAN)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.config import BatchSize
from endtask.encoders.batch import TextBatch
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.context import pretrain_head
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import TaskObjective, task_objective
from endtask.seeds import derive, generator
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.weighting.base import ExtraCost, Rule, ScheduledObjective, WeightingContext
from endtask.weighting.folds import SPLIT_KEY, Folds, groups_in
from endtask.weighting.meta.config import LEARNED_WEIGHTS, MetaConfig
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes, HeadTask, LabelSets, Scores

_SMALLEST = 1e-30


class MetaGradient(Protocol):
    """The gradient of held-out task loss on the encoder, through a head of its own."""

    @property
    def parts(self) -> Sequence[slice]:
        """The stretches of the encoder's P weights whose gradients are compared."""
        ...

    def __call__(self, step: int) -> Tensor:
        """(P,) in the order of `encoder.parameters()`; zeros are allowed outside of `parts`."""
        ...


class Meta(Rule):
    """softmax(logits), with logits that move by eta times the cosine of an objective's gradient and the held-out one.

    All objectives run at every step. The weights start equal (TARTAN, Algorithm 1) or in proportion to `start`, and as
    there a step is weighed by the logits that its own gradients have moved. A `floor` keeps weights above that share of
    what they start with.

    All numbers stay on the device. The loop hands over gradients at every step, for heads learn by unweighted losses;
    that costs some reading and writing of memory, and every M-th step alone pays for the held-out gradient.

    >>> class Given:
    ...     parts = (slice(0, 2),)
    ...     def __call__(self, step):
    ...         return torch.tensor([2.0, 0.0])
    >>> settings = MetaConfig(every=1, floor=0)
    >>> rule = Meta(["task", "mlm"], Given(), settings=settings, device=torch.device("cpu"))
    >>> weights = rule.weigh(0, {"task": torch.tensor([1.0, 0.0]), "mlm": torch.tensor([0.0, 1.0])})
    >>> rule.after_step(0, torch.tensor(False))
    >>> {name: round(weight.item(), 4) for name, weight in weights.items()}
    {'task': 0.5125, 'mlm': 0.4875}
    """

    def __init__(
        self,
        objectives: Sequence[str],
        gradient: MetaGradient,
        *,
        settings: MetaConfig,
        device: torch.device,
        start: Sequence[float] | None = None,
    ) -> None:
        count = len(objectives)
        if not objectives or len(set(objectives)) != count:
            raise ValueError(f"objectives need names of their own, got {list(objectives)}")
        if start is not None and (len(start) != count or min(start) <= 0):
            raise ValueError(f"{count} objectives need as many weights above 0 to start from, got {list(start)}")
        self._names, self._gradient, self._settings = tuple(objectives), gradient, settings
        given = torch.tensor(start or [1.0] * count, dtype=torch.float64)
        self._smallest = (settings.floor * given / given.sum()).float().to(device)
        self._logits = (1.0 / count + (given / given.mean()).log()).float().to(device)
        self._next_logits = self._logits
        self._cosines = self._not_measured()

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """All objectives; the weights given here are never used."""
        return tuple(ScheduledObjective(name, 1.0 / len(self._names), step) for name in self._names)

    def sees_gradients(self, step: int) -> bool:
        """Always: heads learn by unweighted losses."""
        return True

    @torch.no_grad()
    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of all objectives, by logits that count from now on unless the step is skipped."""
        self._next_logits, self._cosines = self._logits, self._not_measured()
        if step % self._settings.every == 0:
            held_out = self._gradient(step)
            cosines = [self._cosine(held_out, gradients[name]) for name in self._names]
            self._cosines = torch.stack(cosines).to(self._logits.dtype)
            self._next_logits = self._logits + self._settings.learning_rate * self._settings.every * self._cosines
        weights = self._weights(self._next_logits)
        return {name: weights[index] for index, name in enumerate(self._names)}

    @torch.no_grad()
    def after_step(self, step: int, skipped: Tensor) -> None:
        """Keep what `weigh` found, or forget it with a skipped step."""
        self._logits = torch.where(skipped, self._logits, self._next_logits)
        self._cosines = torch.where(skipped, self._not_measured(), self._cosines)

    def values(self) -> dict[str, Tensor]:
        """Weight and cosine of every objective; a cosine that the last step did not measure is not a number."""
        weights = self._weights(self._logits)
        return {f"weight/{name}": weights[index] for index, name in enumerate(self._names)} | {
            f"cosine/{name}": self._cosines[index] for index, name in enumerate(self._names)
        }

    def state(self) -> dict[str, Tensor]:
        """The logits."""
        return {"logits": self._logits}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; the objectives must be as many as they were."""
        if state.keys() != {"logits"} or state["logits"].shape != self._logits.shape:
            raise ValueError(f"{len(self._names)} learned weights do not fit into a state of {sorted(state)}")
        self._logits = state["logits"].to(self._logits.device, copy=True)
        self._next_logits = self._logits

    def _not_measured(self) -> Tensor:
        return torch.full_like(self._logits, torch.nan)

    def _cosine(self, held_out: Tensor, gradient: Tensor) -> Tensor:
        pairs = [(held_out[part], gradient[part]) for part in self._gradient.parts]
        product = torch.stack([torch.dot(one, other) for one, other in pairs]).sum()
        squares = [torch.stack([torch.dot(side, side) for side in sides]).sum() for sides in zip(*pairs, strict=True)]
        return product / (squares[0].sqrt() * squares[1].sqrt()).clamp(min=_SMALLEST)

    def _weights(self, logits: Tensor) -> Tensor:
        """All weights, the floor included; they add up to one."""
        return self._smallest + (1.0 - self._settings.floor) * logits.softmax(0)


class TextHeldOut:
    """A `HeldOut` of texts: the head is fitted to some of the first objective's, held out are some of the other's.

    With folds both read the same texts, and at each step only one of them reads those of the part held out. The
    objectives say which texts there are, how they are laid out and what the right answers are; their own batches are
    not read.
    """

    def __init__(
        self,
        fit: TaskObjective,
        held_out: TaskObjective,
        head_task: HeadTask,
        *,
        folds: Folds | None,
        settings: MetaConfig,
        seed: int,
    ) -> None:
        self.head_task, self._head, self._seed = head_task, fit.head, seed
        self._fit, self._held_out, self._folds, self._settings = fit, held_out, folds, settings

    def fit_batch(self, step: int) -> TextBatch:
        """Texts to fit a head to, none of them held out."""
        allowed = None if self._folds is None else ~self._folds.held_out(step)
        return _drawn(self._fit, self._settings.fit_batch, allowed, generator(self._seed, "meta fit", step))

    def gradient_batch(self, step: int) -> TextBatch:
        """Texts that are held out."""
        allowed = None if self._folds is None else self._folds.held_out(step)
        random = generator(self._seed, "meta gradient", step)
        return _drawn(self._held_out, self._settings.gradient_batch, allowed, random)

    def features(self, network: Network, batch: TextBatch) -> Tensor:
        """The vectors that the task's head reads: of each text, of tags of each token."""
        hidden: Tensor = network(batch)
        if network.task_type.per_token:
            return hidden
        return network.pooled(hidden, batch, self._head)

    def own_outputs(self, network: Network, batch: TextBatch) -> Tensor:
        """What the task's head says of each text or token."""
        return network.task_logits(network(batch), batch, self._head)

    def targets(self, batch: TextBatch) -> Tensor:
        """The right answers; those of padding, and classes that train does not have, do not count."""
        assert batch.labels is not None
        assert batch.weights is not None
        counts = batch.weights > 0
        if isinstance(self.head_task, Classes):
            counts = counts & (batch.labels < self.head_task.outputs)
        shape = counts.view(-1, *[1] * (batch.labels.ndim - 1))
        return torch.where(shape, batch.labels, torch.full_like(batch.labels, self.head_task.nothing))


def _drawn(
    source: TaskObjective, size: int, allowed: NDArray[np.bool_] | None, random: np.random.Generator
) -> TextBatch:
    """A batch of texts of the examples allowed; all of them where they are fewer."""
    stream = source.stream
    allowed_texts = np.arange(len(stream.texts)) if allowed is None else np.flatnonzero(allowed[stream.texts.examples])
    positions = stream.fitting(random.choice(allowed_texts, min(size, len(allowed_texts)), replace=False))
    return source.answered(stream.lay_out(positions), positions)


_SAMPLED_BATCHES = 4
_FORWARD = 1 / 3  # of the cost of training on as much


def held_out_cost(run: WeightingContext, config: MetaConfig) -> ExtraCost:
    """Return the cost of one weight update, from texts of mean length."""
    train = PackedTexts(run.packed / "task")
    if config.split == "dev":
        validation = PackedTexts(run.packed / "dev")
        held_out, rest = len(validation), len(train)
    else:
        validation, held_out = train, max(1, len(train) // min(config.folds, groups_in(run.task.train)))
        rest = max(1, len(train) - held_out)
    tokens, flops = _pass_cost(run.network, validation, min(config.gradient_batch, held_out))
    if config.head == "task":
        return ExtraCost(LEARNED_WEIGHTS, config.every, tokens, tokens, flops)
    fit_tokens, fit_flops = _pass_cost(run.network, train, min(config.fit_batch, rest))
    return ExtraCost(
        LEARNED_WEIGHTS,
        config.every,
        tokens + fit_tokens,
        tokens + _FORWARD * fit_tokens,
        flops + _FORWARD * fit_flops,
    )


def _pass_cost(network: Network, packed: PackedTexts, texts: int) -> tuple[float, float]:
    """Return tokens and matrix products of training on so many texts."""
    size = BatchSize.parse(texts)
    stream = TextStream("meta cost", packed, network, batch_size=size, seed=0)
    batches = [stream.batch(number) for number in range(_SAMPLED_BATCHES)]
    read = sum(batch.texts for batch in batches)
    flops = sum(network.training_flops(batch, texts=batch.texts) for batch in batches)
    return size.amount * float(packed.lengths.mean()), size.amount * flops / read


def meta_rule(run: WeightingContext, config: MetaConfig, folds: Folds | None) -> Meta:
    """Return the rule over the objectives of a phase; the first that sees the labels is the end task's."""
    settings = run.settings
    used, seed = settings.used_objectives, derive(settings.pretrain_seed, "meta")
    end_task = next(name for name in run.objectives if used[name].sees_labels)

    def labelled(split: str, size: int) -> TaskObjective:
        texts = PackedTexts(run.packed / ("task" if split == "train" else split))
        if not len(texts):
            raise InputError(f"there are no {split} texts to learn weights from", key=SPLIT_KEY)
        stream = TextStream(f"meta {split}", texts, run.network, batch_size=BatchSize.parse(str(size)), seed=0)
        return task_objective(run.task, end_task, stream, head=pretrain_head(settings), split=split)

    source = TextHeldOut(
        labelled("train", config.fit_batch),
        labelled("dev" if folds is None else "train", config.gradient_batch),
        head_task_of(run.task),
        folds=folds,
        settings=config,
        seed=seed,
    )
    gradient = HeldOutGradient(run.network, source, settings=config, context=run.context, seed=seed)
    names = [end_task, *(name for name in run.objectives if name != end_task)]
    start = [used[name].weight for name in names]
    return Meta(names, gradient, settings=config, device=run.context.device, start=start)


HEAD_TASKS: dict[str, Callable[[int], HeadTask]] = {
    "classes": Classes,
    "tags": Classes,
    "label_sets": LabelSets,
    "numbers": lambda _: Scores(),
}
"""What a head learns, by the form of a task's answers."""


def head_task_of(task: Task) -> HeadTask:
    """Return what a separate head for the task predicts for each text or token."""
    return HEAD_TASKS[task.task_type.form](len(task.labels))
