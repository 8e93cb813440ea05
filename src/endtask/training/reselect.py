"""Re-selection: at regular steps, pre-training changes to the corpus texts that help the task most at the moment."""

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
from endtask.gradients.scoring import Calibration, batches_by_length, score_batches
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
"""Number of masks over which a text's gradient is averaged."""
MASK_PROBABILITY = 0.5
"""Share of a text's tokens that each mask hides."""
TOP_TARGETS = 10
"""Number of a text's best scores that are averaged."""
MOST_TARGETS = 256
"""Maximum number of held-out rows that score the candidates; more are sampled down."""
PART = "re-selection"
_STEP, _CHOSEN = "step", "chosen"
Indices = NDArray[np.int64]


def scoring_share(network: Network) -> float:
    """Return the cost of scoring as a share of training: a forward pass, and a backward pass of the last layer."""
    return (1 + 2 / int(network.config.num_hidden_layers)) / 3


@dataclass
class ScoredCandidates:
    """A score for each candidate, and the cost of the scores."""

    values: NDArray[np.float64]
    tokens: int = 0
    matmul_flops: float = 0.0

    def count(self, network: Network, batch: TextBatch) -> None:
        """Add the cost of a batch."""
        self.tokens += batch.real_tokens
        texts = 0 if batch.labels is None else batch.texts
        self.matmul_flops += scoring_share(network) * network.training_flops(batch, masked=batch.masked, texts=texts)


@dataclass(frozen=True)
class CandidateScorer:
    """Scores candidates by the cosines of their masked-LM gradients with the task gradients of rows of `validation`.

    Dropout is off, and the network does not change.
    """

    network: Network
    context: DeviceContext
    candidates: PackedTexts
    validation: TaskObjective
    masking: Masking
    most_tokens: int
    head: str = TASK

    def scores(self, which: Indices, rows: Indices, seed: int) -> ScoredCandidates:
        """Return the mean of each candidate's best scores, after standardising the scores of every row."""
        scored = ScoredCandidates(np.empty(len(which)))
        targets = self._targets(which, rows, seed, scored)
        order = list(batches_by_length(self.candidates.lengths[which], self.most_tokens))
        batches = (self._masked(which[indices], seed) for indices in order)

        def score(readings: Readings) -> torch.Tensor:
            return targets.scores(self._gradients(readings, masked_lm_losses, scored), "cosine")

        raw = torch.cat(list(score_batches(batches, score, self.context)))  # (candidates, rows)
        if not bool(torch.isfinite(raw).all()):
            raise TrainingError("re-selection: scores are not finite", hint="lower pretrain.learning_rate")
        standardised = Calibration.of(raw).apply(raw)
        means = standardised.topk(min(TOP_TARGETS, len(rows)), dim=1).values.mean(1)
        scored.values[np.concatenate(order)] = means.double().numpy()
        return scored

    @cached_property
    def _engine(self) -> GradientEngine:
        return GradientEngine(self.network, LAYERS, self.context)

    def _gradients(self, readings: Readings, losses: TextLosses, scored: ScoredCandidates) -> Gradients:
        """Return the gradients of the texts, and count their cost."""
        for batch in readings.batches:
            scored.count(self.network, batch)
        return readings.gradients(self._engine, losses)

    def _targets(self, which: Indices, rows: Indices, seed: int, scored: ScoredCandidates) -> Targets:
        batches = self._target_gradients(rows, scored)
        first = next(batches)
        sample = which[next(batches_by_length(self.candidates.lengths[which], self.most_tokens))]
        sample_gradients = self._gradients(self._masked(sample, seed), masked_lm_losses, scored)
        workload = Workload(len(which), len(rows), len(rows))
        targets = Targets(make_plan(sample_gradients, first[1], workload), Units.single(len(rows)))
        for indices, gradients in chain((first,), batches):
            targets.add(gradients, indices)
        return targets

    def _target_gradients(self, rows: Indices, scored: ScoredCandidates) -> Iterator[tuple[Indices, Gradients]]:
        texts = self.validation.stream.texts
        # The engine recognises the plain function, and then computes the last layer only at the tokens that it reads.
        losses: TextLosses = task_losses if self.head == TASK else partial(task_losses, head=self.head)
        for indices in batches_by_length(texts.lengths[rows], self.most_tokens):
            batch = self.validation.answered(lay_out(texts, rows[indices], self._layout(texts)), rows[indices])
            yield indices, self._gradients(Readings((batch,)), losses, scored)

    def _masked(self, which: Indices, seed: int) -> Readings:
        batch = lay_out(self.candidates, which, self._layout(self.candidates))
        return Readings(tuple(mask_texts(batch, which, self.masking, seed, index) for index in range(MASKS)))

    def _layout(self, texts: PackedTexts) -> Layout:
        with self.network.uncompiled():  # as in the engine
            return self.network.layout(int(texts.lengths.max()))


@dataclass(frozen=True)
class HeldOutRows:
    """The validation rows of a re-selection: a held-out fold of train.

    `streams` are the batches that leave the fold out; none if the weighting leaves it out already.
    """

    folds: Folds
    streams: Sequence[TextStream] = ()

    def validation(self, step: int, last: int) -> Indices:
        """Return the validation rows after `step` steps; `last` is the step of the last re-selection."""
        return np.flatnonzero(self.folds.held_out(last if self.streams else step - 1))

    def leave_out(self, step: int | None) -> None:
        """Leave the next validation fold out of the batches, or nothing without a step."""
        for stream in self.streams:
            stream.narrow(None if step is None else np.flatnonzero(~self.folds.held_out(step)))


class Reselection:
    """A `RefreshHook` that scores a reservoir with the current weights and narrows the corpus batches to its best.

    The reservoir, its masks and the validation rows are pure functions of seed and step. The state is the choice, with
    which a resumed run reads the same batches.
    """

    def __init__(
        self,
        scores: CandidateScorer,
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
        self._narrow_streams()

    def apply(self, step: int, state: dict[str, Any]) -> dict[str, float]:
        """Choose texts after `step` steps; return the mean scores of the choice and of the reservoir."""
        self._scores.context.synchronize()
        started = time.perf_counter()
        reservoir, rows = self.reservoir(step), self._rows(step)
        scored = self._scores.scores(reservoir, rows, derive(self._seed, "mask", step))
        scores = scored.values
        best = top_indices(scores, self._settings.keep)
        self._step, self._chosen = step, np.zeros(len(self._chosen), dtype=bool)
        self._chosen[reservoir[best]] = True
        self._narrow_streams()
        _count_round(state, scored, time.perf_counter() - started)
        return {"reselect/kept": float(scores[best].mean()), "reselect/reservoir": float(scores.mean())}

    def reservoir(self, step: int) -> Indices:
        """Return the texts that are scored after `step` steps."""
        return _sample(np.arange(len(self._chosen)), self._settings.reservoir, self._seed, "reservoir", step)

    def state(self) -> dict[str, Tensor]:
        """Return the chosen texts and the step of the choice."""
        return {_STEP: torch.tensor(self._step), _CHOSEN: torch.from_numpy(self._chosen.copy())}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a choice; raise ValueError if it is among another number of texts."""
        if state.keys() != {_STEP, _CHOSEN} or len(state[_CHOSEN]) != len(self._chosen):
            raise ValueError(f"a choice among {len(self._chosen)} texts is not in a state of {sorted(state)}")
        self._step, self._chosen = int(state[_STEP]), state[_CHOSEN].bool().cpu().numpy().copy()
        self._narrow_streams()

    def _narrow_streams(self) -> None:
        """Limit the corpus batches to the chosen texts, and leave the next validation fold out."""
        only = None if self._chosen.all() else np.flatnonzero(self._chosen)
        for stream in self._corpus:
            stream.narrow(only)
        is_last = self._step + self.steps >= self._last_step
        self._held_out.leave_out(None if is_last else self._step)

    def _rows(self, step: int) -> Indices:
        examples = self._held_out.validation(step, self._step)
        texts = np.flatnonzero(np.isin(self._scores.validation.stream.texts.examples, examples))
        return _sample(texts, MOST_TARGETS, self._seed, "targets", step)


def top_indices(scores: NDArray[np.float64], share: float) -> Indices:
    """Return the ascending indices of the highest scores; the first of equal scores wins.

    >>> top_indices(np.array([0.5, 2.0, 0.5, 1.0]), 0.6).tolist()
    [0, 1, 3]
    """
    count = max(1, math.ceil(share * len(scores) - 1e-9))
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def _sample(indices: Indices, most: int | None, seed: int, purpose: str, step: int) -> Indices:
    """Return an ascending sample of at most `most` indices."""
    if most is None or len(indices) <= most:
        return indices
    return np.sort(generator(seed, purpose, step).choice(indices, most, replace=False))


def reselection_of(phase: Phase, task: Task, packed: Path, settings: Settings) -> Reselection | None:
    """Return the hook of the settings, or None without re-selection; sets the batches of the first steps."""
    reselect = settings.pretrain.reselect
    if reselect.every is None:
        return None
    streams = [stream for stream, section in _streams(phase, settings) if section.reads == "selection"]
    if not streams:
        raise InputError("there is no corpus text to choose from", key="pretrain.reselect.every")
    masking = masking_of(packed, settings)
    # Scoring hides no more tokens at once than a batch of training, and so never takes more memory.
    size = settings.pretrain.batch_size
    batch_tokens = size.amount if size.unit == "tokens" else size.amount * settings.pretrain.max_length
    validation = PackedTexts(packed / "task")
    validation_stream = TextStream("validation", validation, phase.network, batch_size=BatchSize.parse("32"), seed=0)
    scores = CandidateScorer(
        phase.network,
        phase.context,
        streams[0].texts,
        task_objective(task, "validation", validation_stream),
        replace(masking, probability=MASK_PROBABILITY),
        int(batch_tokens * min(1.0, masking.probability / MASK_PROBABILITY)),
        pretrain_head(settings),
    )
    held_out = _held_out(phase, task, settings)
    seed = derive(settings.pretrain_seed, "reselect")
    return Reselection(scores, streams, held_out, reselect, last_step=phase.steps, seed=seed)


def _held_out(phase: Phase, task: Task, settings: Settings) -> HeldOutRows:
    folds = settings.pretrain.weighting.part.folds(task, settings.pretrain_seed, phase.steps)
    if folds is not None:
        return HeldOutRows(folds)
    every, seed = settings.pretrain.reselect.every, derive(settings.pretrain_seed, "reselect folds")
    assert every is not None
    folds = Folds(part_numbers(task.train, RESELECTION_FOLDS, seed, key="pretrain.reselect.every"), every)
    return HeldOutRows(folds, [stream for stream, section in _streams(phase, settings) if section.reads_train])


def _streams(phase: Phase, settings: Settings) -> list[tuple[TextStream, ObjectiveSettings]]:
    """Return the stream of each objective with its settings."""
    used = settings.used_objectives
    return [(objective.stream, used[name]) for name, objective in phase.objectives.items()]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Texts:
    """The number of texts and their mean number of tokens."""

    count: float
    tokens: float


def with_reselection(cost: StepCost, network: Network, read: float, parameters: int, settings: Settings) -> StepCost:
    """Return the cost of a step with its share of a re-selection, which reads `read` tokens."""
    every = settings.pretrain.reselect.every
    if every is None:
        return cost
    tokens = read / every
    trained_tokens = scoring_share(network) * tokens
    seconds = None if cost.seconds is None else cost.seconds * (1 + trained_tokens / cost.tokens)
    flops = cost.flops + training_flops(parameters, trained_tokens)
    return replace(cost, tokens=cost.tokens + tokens, flops=flops, seconds=seconds)


def _count_round(state: TrainState, scored: ScoredCandidates, seconds: float) -> None:
    """Add the cost of a re-selection to the state; `count_reselection` adds it to the totals at the end."""
    zeros = {"steps": 0, "tokens": 0, "matmul_flops": 0.0, "seconds": 0.0}
    counts = state.setdefault("objectives", {}).setdefault(PART, zeros)
    counts["steps"] += 1
    counts["tokens"] += scored.tokens
    counts["matmul_flops"] += scored.matmul_flops
    counts["seconds"] += seconds


def count_reselection(state: TrainState, network: Network) -> float:
    """Add all re-selections to the totals of the stage; return the tokens of training with the same FLOPs."""
    counts = state.get("objectives", {}).get(PART)
    if counts is None:
        return 0.0
    state["tokens"] += counts["tokens"]
    state["padded_tokens"] += counts["tokens"]
    state["matmul_flops"] += counts["matmul_flops"]
    return float(scoring_share(network) * counts["tokens"])


def packed_round(packed: Path, reselect: ReselectSettings) -> float:
    """Return the tokens that a re-selection reads from packed texts, estimated by their mean length."""
    if reselect.every is None or not len(candidates := PackedTexts(packed / "selection")):
        return 0.0
    sizes = [Texts(len(texts), float(texts.lengths.mean())) for texts in (candidates, PackedTexts(packed / "task"))]
    return tokens_per_round(reselect, *sizes)


def tokens_per_round(reselect: ReselectSettings, candidates: Texts, validation: Texts) -> float:
    """Return the tokens of the sampled candidates, once per mask, and of the validation rows.

    >>> tokens_per_round(ReselectSettings(reservoir=100), Texts(1000, tokens=30.0), Texts(50, tokens=10.0))
    6050.0
    """
    reservoir = candidates.count if reselect.reservoir is None else min(reselect.reservoir, candidates.count)
    rows = min(validation.count / RESELECTION_FOLDS, MOST_TARGETS)
    return MASKS * reservoir * candidates.tokens + rows * validation.tokens
