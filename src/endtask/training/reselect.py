"""Re-selection: every so many steps, pre-training goes on with the corpus text that now help the task most."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.config import BatchSize, ObjectiveSettings, Settings
from endtask.config.training import RESELECTION_FOLDS, ReselectSettings
from endtask.encoders.batch import Layout, TextBatch, lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.flops import training_flops
from endtask.encoders.network import TASK, Network
from endtask.errors import InputError, TrainingError
from endtask.gradients.engine import GradientEngine, Readings, TextLosses, masked_lm_losses, task_losses
from endtask.gradients.rows import Gradients, Units
from endtask.gradients.scoring import Calibration, like_lengths, score_batches
from endtask.gradients.targets import Targets, Workload, make_plan
from endtask.objectives.context import masking_of, pretrain_head
from endtask.objectives.masking import Masking, mask_texts
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import TaskObjective, task_objective
from endtask.seeds import derive, generator
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.budget_plan import StepCost
from endtask.training.phase import Phase
from endtask.training.phase_runner import TrainState
from endtask.weighting.folds import Folds, part_numbers

LAYERS = ("last",)
MASKS = 2
"""Masks of a text over which its gradient is averaged."""
TOP_TARGETS = 10
"""How many of a text's best scores are averaged."""
Indices = NDArray[np.int64]


def reading_share(network: Network) -> float:
    """What scoring costs of training on as much: a pass forward, and one backward through the last layer."""
    return (1 + 2 / int(network.config.num_hidden_layers)) / 3


@dataclass
class Scored:
    """A number for each candidate, and what finding them out took."""

    values: NDArray[np.float64]
    tokens: int = 0
    matmul_flops: float = 0.0

    def count(self, network: Network, batch: TextBatch) -> None:
        """Add the reading of a batch."""
        self.tokens += batch.real_tokens
        texts = 0 if batch.labels is None else batch.texts
        self.matmul_flops += reading_share(network) * network.training_flops(batch, masked=batch.masked, texts=texts)


@dataclass(frozen=True)
class HelpScores:
    """Scores candidates by the cosines of their masked-LM gradients and task gradients of rows of `validation`.

    Dropout is off, and the network is left as it was.
    """

    network: Network
    context: DeviceContext
    candidates: PackedTexts
    validation: TaskObjective
    masking: Masking
    most_tokens: int
    head: str = TASK

    def scores(self, which: Indices, rows: Indices, seed: int) -> Scored:
        """The mean of each candidate's best scores, every row's scores being in deviations from their mean."""
        scored = Scored(np.empty(len(which)))
        targets = self._targets(which, rows, seed, scored)
        order = list(like_lengths(self.candidates.lengths[which], self.most_tokens))
        batches = (self._masked(which[indices], seed) for indices in order)

        def score(readings: Readings) -> torch.Tensor:
            return targets.scores(self._gradients(readings, masked_lm_losses, scored), "cosine")

        found = torch.cat(list(score_batches(batches, score, self.context)))
        if not bool(torch.isfinite(found).all()):
            raise TrainingError("re-selection: scores are not finite", hint="lower pretrain.learning_rate")
        usual = Calibration.of(found).apply(found)
        best = usual.topk(min(TOP_TARGETS, len(rows)), dim=1).values.mean(1)
        scored.values[np.concatenate(order)] = best.double().numpy()
        return scored

    @cached_property
    def _engine(self) -> GradientEngine:
        return GradientEngine(self.network, LAYERS, self.context)

    def _gradients(self, readings: Readings, losses: TextLosses, scored: Scored) -> Gradients:
        for batch in readings.batches:
            scored.count(self.network, batch)
        return readings.gradients(self._engine, losses)

    def _targets(self, which: Indices, rows: Indices, seed: int, scored: Scored) -> Targets:
        found = self._target_gradients(rows, scored)
        first = next(found)
        few = which[next(like_lengths(self.candidates.lengths[which], self.most_tokens))]
        sample = self._gradients(self._masked(few, seed), masked_lm_losses, scored)
        workload = Workload(len(which), len(rows), len(rows))
        targets = Targets(make_plan(sample, first[1], workload), Units.single(len(rows)))
        for indices, gradients in chain((first,), found):
            targets.add(gradients, indices)
        return targets

    def _target_gradients(self, rows: Indices, scored: Scored) -> Iterator[tuple[Indices, Gradients]]:
        texts = self.validation.stream.texts
        # Asked for by name, the losses are known to read less than all tokens.
        losses: TextLosses = task_losses if self.head == TASK else partial(task_losses, head=self.head)
        for indices in like_lengths(texts.lengths[rows], self.most_tokens):
            batch = self.validation.answered(lay_out(texts, rows[indices], self._layout(texts)), rows[indices])
            yield indices, self._gradients(Readings((batch,)), losses, scored)

    def _masked(self, which: Indices, seed: int) -> Readings:
        batch, schedule = lay_out(self.candidates, which, self._layout(self.candidates)), range(MASKS)
        return Readings(tuple(mask_texts(batch, which, self.masking, seed, mask_index) for mask_index in schedule))

    def _layout(self, texts: PackedTexts) -> Layout:
        with self.network.uncompiled():  # as the engine reads
            return self.network.layout(int(texts.lengths.max()))


PART = "re-selection"
MASK_PROBABILITY = 0.5
"""Share of a text's tokens that each mask hides while it is scored."""
MOST_TARGETS = 256
"""Of more rows that judge, so many are drawn."""
_STEP, _CHOSEN = "step", "chosen"


@dataclass(frozen=True)
class HeldOutRows:
    """Which rows judge: the part of train that the folds hold out.

    `streams` are the batches that leave that part out; none where somebody else sees to it.
    """

    folds: Folds
    streams: Sequence[TextStream] = ()

    def validation(self, step: int, last: int) -> Indices:
        """The rows that judge after so many steps, the last re-selection being after `last`."""
        return np.flatnonzero(self.folds.held_out(last if self.streams else step - 1))

    def leave_out(self, step: int | None) -> None:
        """Leave out the part that is to judge next, or nothing."""
        for stream in self.streams:
            stream.narrow(None if step is None else np.flatnonzero(~self.folds.held_out(step)))


class Reselection:
    """A `RefreshHook`: scores a reservoir by the weights of the moment, and narrows the corpus batches to its best.

    Which texts are drawn, masked and judge is a pure function of seed and step. The choice is the state: with it a
    resumed run reads the same batches.
    """

    def __init__(
        self,
        scores: HelpScores,
        corpus: Sequence[TextStream],
        held_out: HeldOutRows,
        settings: ReselectSettings,
        *,
        last_step: int,
        seed: int,
    ) -> None:
        assert settings.every is not None
        self.steps: int = settings.every
        self._scores, self._corpus, self._held_out, self._settings = scores, corpus, held_out, settings
        self._last_step, self._seed = last_step, seed
        self._step, self._chosen = 0, np.ones(len(scores.candidates), dtype=bool)
        self._put()

    def apply(self, step: int, memory: dict[str, Any]) -> dict[str, float]:
        """Choose anew after so many steps; returns the mean score of what is kept, and of the whole reservoir."""
        self._scores.context.synchronize()
        started = time.perf_counter()
        reservoir, rows = self.reservoir(step), self._rows(step)
        scored = self._scores.scores(reservoir, rows, derive(self._seed, "mask", step))
        scores = scored.values
        best = best_of(scores, self._settings.keep)
        self._step, self._chosen = step, np.zeros(len(self._chosen), dtype=bool)
        self._chosen[reservoir[best]] = True
        self._put()
        count_round(memory, scored.tokens, scored.matmul_flops, time.perf_counter() - started)
        return {"reselect/kept": float(scores[best].mean()), "reselect/reservoir": float(scores.mean())}

    def reservoir(self, step: int) -> Indices:
        """The texts that are scored after so many steps."""
        return _some(np.arange(len(self._chosen)), self._settings.reservoir, self._seed, "reservoir", step)

    def state(self) -> dict[str, Tensor]:
        """The texts that are read, and since which step."""
        return {_STEP: torch.tensor(self._step), _CHOSEN: torch.from_numpy(self._chosen.copy())}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave; the texts must be as many as they were."""
        if state.keys() != {_STEP, _CHOSEN} or len(state[_CHOSEN]) != len(self._chosen):
            raise ValueError(f"a choice among {len(self._chosen)} texts is not in a state of {sorted(state)}")
        self._step, self._chosen = int(state[_STEP]), state[_CHOSEN].bool().cpu().numpy().copy()
        self._put()

    def _put(self) -> None:
        """Let the batches be those of the present choice."""
        only = None if self._chosen.all() else np.flatnonzero(self._chosen)
        for stream in self._corpus:
            stream.narrow(only)
        is_last = self._step + self.steps >= self._last_step
        self._held_out.leave_out(None if is_last else self._step)

    def _rows(self, step: int) -> Indices:
        found = self._held_out.validation(step, self._step)
        texts = np.flatnonzero(np.isin(self._scores.validation.stream.texts.examples, found))
        return _some(texts, MOST_TARGETS, self._seed, "targets", step)


def best_of(scores: NDArray[np.float64], keep: float) -> Indices:
    """The places of the highest scores, rising; of equal ones the first.

    >>> best_of(np.array([0.5, 2.0, 0.5, 1.0]), 0.6).tolist()
    [0, 1, 3]
    """
    count = max(1, math.ceil(keep * len(scores) - 1e-9))
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def _some(indices: Indices, most: int | None, seed: int, purpose: str, step: int) -> Indices:
    """All places, or a draw of so many, rising."""
    if most is None or len(indices) <= most:
        return indices
    return np.sort(generator(seed, purpose, step).choice(indices, most, replace=False))


def reselection_of(phase: Phase, task: Task, packed: Path, settings: Settings) -> Reselection | None:
    """What chooses the corpus text anew, if asked for; the batches are left as the first steps want them."""
    reselect = settings.pretrain.reselect
    if reselect.every is None:
        return None
    streams = [stream for stream, one in _streams(phase, settings) if one.reads == "selection"]
    if not streams:
        raise InputError("there is no corpus text to choose from", key="pretrain.reselect.every")
    own = masking_of(packed, settings)
    masking = replace(own, probability=MASK_PROBABILITY)
    scores = HelpScores(
        phase.network,
        phase.context,
        streams[0].texts,
        _validation(task, packed, phase.network),
        masking,
        int(_most_tokens(settings) * min(1.0, own.probability / masking.probability)),
        pretrain_head(settings),
    )
    held_out = _held_out(phase, task, settings)
    seed = derive(settings.pretrain_seed, "reselect")
    return Reselection(scores, streams, held_out, reselect, last_step=phase.steps, seed=seed)


def _held_out(phase: Phase, task: Task, settings: Settings) -> HeldOutRows:
    known = settings.pretrain.weighting.part.folds(task, settings.pretrain_seed, phase.steps)
    if known is not None:
        return HeldOutRows(known)
    every, seed = settings.pretrain.reselect.every, derive(settings.pretrain_seed, "reselect folds")
    assert every is not None
    folds = Folds(part_numbers(task.train, RESELECTION_FOLDS, seed, key="pretrain.reselect.every"), every)
    return HeldOutRows(folds, [stream for stream, one in _streams(phase, settings) if one.reads_train])


def _streams(phase: Phase, settings: Settings) -> list[tuple[TextStream, ObjectiveSettings]]:
    """The batches of each objective, with its settings."""
    used = settings.used_objectives
    return [(one.stream, used[name]) for name, one in phase.objectives.items()]  # type: ignore[attr-defined]


def _validation(task: Task, packed: Path, network: Network) -> TaskObjective:
    texts = PackedTexts(packed / "task")
    return task_objective(
        task, "judging", TextStream("judging", texts, network, batch_size=BatchSize.parse("32"), seed=0)
    )


def _most_tokens(settings: Settings) -> int:
    """As many as a batch of training has: scoring, which hides no more tokens at once, then never takes more memory."""
    size = settings.pretrain.batch_size
    return size.amount if size.unit == "tokens" else size.amount * settings.pretrain.max_length


@dataclass(frozen=True)
class Texts:
    """How many there are, and the tokens of one."""

    count: float
    tokens: float


def with_reselection(cost: StepCost, network: Network, read: float, parameters: int, settings: Settings) -> StepCost:
    """The cost of a step with its part of a round, in which so many tokens are read."""
    every = settings.pretrain.reselect.every
    if every is None:
        return cost
    tokens = read / every
    trained = reading_share(network) * tokens
    seconds = None if cost.seconds is None else cost.seconds * (1 + trained / cost.tokens)
    flops = cost.flops + training_flops(parameters, trained)
    return replace(cost, tokens=cost.tokens + tokens, flops=flops, seconds=seconds)


def count_round(memory: TrainState, tokens: int, matmul_flops: float, seconds: float) -> None:
    """Remember what a round took; the totals of the stage get it at the end."""
    usual = {"steps": 0, "tokens": 0, "matmul_flops": 0.0, "seconds": 0.0}
    counts = memory.setdefault("objectives", {}).setdefault(PART, usual)
    for name, value in (("steps", 1), ("tokens", tokens), ("matmul_flops", matmul_flops), ("seconds", seconds)):
        counts[name] += value


def count_reselection(memory: TrainState, network: Network) -> float:
    """Add all rounds to the counts of the stage; returns the tokens of training that would have cost as much."""
    counts = memory.get("objectives", {}).get(PART)
    if counts is None:
        return 0.0
    memory["tokens"] += counts["tokens"]
    memory["padded_tokens"] += counts["tokens"]
    memory["matmul_flops"] += counts["matmul_flops"]
    return float(reading_share(network) * counts["tokens"])


def packed_round(packed: Path, reselect: ReselectSettings) -> float:
    """Tokens that a round reads of what is packed, from texts of mean length."""
    if reselect.every is None or not len(candidates := PackedTexts(packed / "selection")):
        return 0.0
    validation = PackedTexts(packed / "task")
    return read_in_a_round(reselect, *(Texts(len(one), float(one.lengths.mean())) for one in (candidates, validation)))


def read_in_a_round(reselect: ReselectSettings, candidates: Texts, validation: Texts) -> float:
    """Tokens of the candidates that are drawn, once for each mask, and of the rows that judge them.

    >>> read_in_a_round(ReselectSettings(reservoir=100), Texts(1000, tokens=30.0), Texts(50, tokens=10.0))
    6050.0
    """
    reservoir = candidates.count if reselect.reservoir is None else min(reselect.reservoir, candidates.count)
    rows = min(validation.count / RESELECTION_FOLDS, MOST_TARGETS)
    return MASKS * reservoir * candidates.tokens + rows * validation.tokens
