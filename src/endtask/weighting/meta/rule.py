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
from endtask.weighting.base import ExtraCost, Rule, ScheduledObjective, WeightingContext, ramp
from endtask.weighting.folds import SPLIT_KEY, Folds, groups_in
from endtask.weighting.meta.config import LEARNED_WEIGHTS, MetaConfig
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes, HeadTask, LabelSets, Scores

_EPSILON = 1e-30


class MetaGradient(Protocol):
    """The gradient of held-out task loss on the encoder, through a separate head."""

    @property
    def parts(self) -> Sequence[slice]:
        """The slices of the encoder's P weights whose gradients are compared."""
        ...

    def __call__(self, step: int) -> Tensor:
        """Return the gradient (P,) in the order of `encoder.parameters()`; outside of `parts` it may be zero."""
        ...


class Meta(Rule):
    """Weights softmax(logits); a logit moves by eta times the cosine of its objective's gradient and the held-out one.

    All objectives run at every step. The weights start equal (TARTAN, Algorithm 1) or in proportion to `start`. As in
    the algorithm, the gradients of a step first move the logits that weigh this step. With a `floor`, weights stay
    above that share of their initial values.

    All numbers stay on the device. The loop passes gradients at every step, since heads learn from unweighted losses;
    only every M-th step computes the held-out gradient.

    >>> class Constant:
    ...     parts = (slice(0, 2),)
    ...     def __call__(self, step):
    ...         return torch.tensor([2.0, 0.0])
    >>> settings = MetaConfig(every=1, floor=0)
    >>> rule = Meta(["task", "mlm"], Constant(), settings=settings, device=torch.device("cpu"))
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
        steps: int | None = None,
    ) -> None:
        count = len(objectives)
        if not objectives or len(set(objectives)) != count:
            raise ValueError(f"objectives need names of their own, got {list(objectives)}")
        if start is not None and (len(start) != count or min(start) <= 0):
            raise ValueError(f"{count} objectives need as many weights above 0 to start from, got {list(start)}")
        self._names, self._gradient, self._settings = tuple(objectives), gradient, settings
        initial = torch.tensor(start or [1.0] * count, dtype=torch.float64)
        self._floors = (settings.floor * initial / initial.sum()).float().to(device)
        self._logits = (1.0 / count + (initial / initial.mean()).log()).float().to(device)
        self._next_logits = self._logits
        self._cosines = self._not_measured()
        self._steps, self._step = steps, 0

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return all objectives; `weigh` replaces these weights."""
        return tuple(ScheduledObjective(name, 1.0 / len(self._names), step) for name in self._names)

    def sees_gradients(self, step: int) -> bool:
        """Return True: heads learn from unweighted losses."""
        return True

    @torch.no_grad()
    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights of all objectives by the moved logits, which `after_step` stores."""
        self._step, self._next_logits, self._cosines = step, self._logits, self._not_measured()
        if step % self._settings.every == 0:
            held_out = self._gradient(step)
            cosines = [self._cosine(held_out, gradients[name]) for name in self._names]
            self._cosines = torch.stack(cosines).to(self._logits.dtype)
            self._next_logits = self._logits + self._settings.learning_rate * self._settings.every * self._cosines
        weights = self._weights(self._next_logits)
        return {name: weights[index] for index, name in enumerate(self._names)}

    @torch.no_grad()
    def after_step(self, step: int, skipped: Tensor) -> None:
        """Store the logits and cosines of `weigh`, unless the step was skipped."""
        self._logits = torch.where(skipped, self._logits, self._next_logits)
        self._cosines = torch.where(skipped, self._not_measured(), self._cosines)

    def values(self) -> dict[str, Tensor]:
        """Return weight and cosine of every objective; a cosine that the last step did not measure is NaN."""
        weights = self._weights(self._logits)
        return {f"weight/{name}": weights[index] for index, name in enumerate(self._names)} | {
            f"cosine/{name}": self._cosines[index] for index, name in enumerate(self._names)
        }

    def state(self) -> dict[str, Tensor]:
        """Return the logits."""
        return {"logits": self._logits}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the logits of `state`; the number of objectives must be the same."""
        if state.keys() != {"logits"} or state["logits"].shape != self._logits.shape:
            raise ValueError(f"{len(self._names)} learned weights do not fit into a state of {sorted(state)}")
        self._logits = state["logits"].to(self._logits.device, copy=True)
        self._next_logits = self._logits

    def _not_measured(self) -> Tensor:
        return torch.full_like(self._logits, torch.nan)

    def _cosine(self, held_out: Tensor, gradient: Tensor) -> Tensor:
        def dot(left: Tensor, right: Tensor) -> Tensor:
            return torch.stack([torch.dot(left[part], right[part]) for part in self._gradient.parts]).sum()

        lengths = dot(held_out, held_out).sqrt() * dot(gradient, gradient).sqrt()
        return dot(held_out, gradient) / lengths.clamp(min=_EPSILON)

    def _weights(self, logits: Tensor) -> Tensor:
        """Return the weights of the last step with their floors; they add up to one. The first is the end task's."""
        weights = self._floors + (1.0 - self._settings.floor) * logits.softmax(0)
        grown = ramp(self._step, self._steps, self._settings.task_warmup)
        if grown == 1.0:
            return weights
        weights = torch.cat([grown * weights[:1], weights[1:]])
        return weights / weights.sum()


class TextHeldOut:
    """A `HeldOut` of texts: the head is fitted to texts of the objective `fit`; the others are held out.

    With folds both objectives have the same texts, and the part that is held out at a step is left out of `fit`. The
    objectives give texts, layout and right answers; their own batches are not read.
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
        """Return texts to fit a head to, none of which is held out."""
        allowed = None if self._folds is None else ~self._folds.held_out(step)
        return _draw(self._fit, self._settings.fit_batch, allowed, generator(self._seed, "meta fit", step))

    def gradient_batch(self, step: int) -> TextBatch:
        """Return texts that are held out."""
        allowed = None if self._folds is None else self._folds.held_out(step)
        random = generator(self._seed, "meta gradient", step)
        return _draw(self._held_out, self._settings.gradient_batch, allowed, random)

    def features(self, network: Network, batch: TextBatch) -> Tensor:
        """Return the vectors that the task's head reads: one per text, or per token for tags."""
        hidden: Tensor = network(batch)
        if network.task_type.per_token:
            return hidden
        return network.pooled(hidden, batch, self._head)

    def task_outputs(self, network: Network, batch: TextBatch) -> Tensor:
        """Return the logits of the task's head for each text or token."""
        return network.task_logits(network(batch), batch, self._head)

    def targets(self, batch: TextBatch) -> Tensor:
        """Return the right answers; padding, and classes that train does not have, are ignored."""
        assert batch.labels is not None
        assert batch.weights is not None
        counted = batch.weights > 0
        if isinstance(self.head_task, Classes):
            counted = counted & (batch.labels < self.head_task.outputs)
        counted = counted.view(-1, *[1] * (batch.labels.ndim - 1))
        return torch.where(counted, batch.labels, torch.full_like(batch.labels, self.head_task.ignored))


def _draw(
    source: TaskObjective, size: int, allowed: NDArray[np.bool_] | None, random: np.random.Generator
) -> TextBatch:
    """Return a batch of random texts of the allowed examples; all of these texts if they are fewer than `size`."""
    stream = source.stream
    allowed_texts = np.arange(len(stream.texts)) if allowed is None else np.flatnonzero(allowed[stream.texts.examples])
    positions = stream.fitting(random.choice(allowed_texts, min(size, len(allowed_texts)), replace=False))
    return source.answered(stream.lay_out(positions), positions)


_SAMPLED_BATCHES = 4
_FORWARD = 1 / 3  # cost of a forward pass, as a share of that of a training step


def held_out_cost(run: WeightingContext, config: MetaConfig) -> ExtraCost:
    """Return the cost of one weight update, from texts of mean length."""
    train = PackedTexts(run.packed / "task")
    if config.split == "dev":
        validation = PackedTexts(run.packed / "dev")
        held_out, remaining = len(validation), len(train)
    else:
        validation, held_out = train, max(1, len(train) // min(config.folds, groups_in(run.task.train)))
        remaining = max(1, len(train) - held_out)
    tokens, flops = _pass_cost(run.network, validation, min(config.gradient_batch, held_out))
    if config.head == "task":
        return ExtraCost(LEARNED_WEIGHTS, config.every, tokens, tokens, flops)
    fit_tokens, fit_flops = _pass_cost(run.network, train, min(config.fit_batch, remaining))
    return ExtraCost(
        LEARNED_WEIGHTS,
        config.every,
        tokens + fit_tokens,
        tokens + _FORWARD * fit_tokens,
        flops + _FORWARD * fit_flops,
    )


def _pass_cost(network: Network, packed: PackedTexts, texts: int) -> tuple[float, float]:
    """Return tokens and FLOPs of training on so many texts."""
    size = BatchSize.parse(texts)
    stream = TextStream("meta cost", packed, network, batch_size=size, seed=0)
    batches = [stream.batch(number) for number in range(_SAMPLED_BATCHES)]
    sampled = sum(batch.texts for batch in batches)
    flops = sum(network.training_flops(batch, texts=batch.texts) for batch in batches)
    return size.amount * float(packed.lengths.mean()), size.amount * flops / sampled


def meta_rule(run: WeightingContext, config: MetaConfig, folds: Folds | None, steps: int | None = None) -> Meta:
    """Return the rule over the objectives of a phase; the first that sees the labels is the end task's."""
    settings = run.settings
    used, seed = settings.used_objectives, derive(settings.pretrain_seed, "meta")
    end_task = run.end_task

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
    return Meta(names, gradient, settings=config, device=run.context.device, start=start, steps=steps)


HEAD_TASKS: dict[str, Callable[[int], HeadTask]] = {
    "classes": Classes,
    "tags": Classes,
    "label_sets": LabelSets,
    "numbers": lambda _: Scores(),
}
"""What a head predicts, by the form of a task's answers."""


def head_task_of(task: Task) -> HeadTask:
    """Return what a separate head for the task predicts for each text or token."""
    return HEAD_TASKS[task.task_type.form](len(task.labels))
