"""Trials that train the encoder too, one after the other, by the training loop of every run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import IGNORED
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.experiments.few_shot.auxiliary_tasks import AuxiliaryTask
from endtask.experiments.few_shot.features import unit_vectors
from endtask.experiments.few_shot.few_shot_results import FewShotResult, make_result
from endtask.experiments.few_shot.few_shot_spec import FewShotTrial, TrainedPart
from endtask.experiments.few_shot.head_trials import not_finite
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM, Indices
from endtask.experiments.few_shot.trial_rows import SelectedTexts, TrialRows, phase_settings
from endtask.objectives.classification import Classification
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.token_classification import Tagging
from endtask.seeds import derive
from endtask.task.targets import NO_WORD
from endtask.tokenization.packed_texts import PackedTexts, WordStarts
from endtask.training.finetune_phase import END_TASK, alternating, batches_per_epoch
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase

_ENCODER, _EMBEDDINGS = "encoder.", "encoder.embeddings."


@dataclass(frozen=True)
class _BestEpoch:
    epoch: int
    loss: float
    weights: dict[str, Tensor]


class EncoderTrials:
    """Trains the task's head and, by `trained`, transformer and embeddings, each time from the network's weights.

    `auxiliary` tasks are trained in turn with the end task; only the end task is scored.
    """

    def __init__(
        self,
        rows: TrialRows,
        network: Network,
        texts: PackedTexts,
        context: DeviceContext,
        trained: TrainedPart,
        auxiliary: Sequence[AuxiliaryTask] = (),
    ) -> None:
        self._rows, self._network, self._texts, self._context = rows, network, texts, context
        self._auxiliary = auxiliary
        self._first = {name: value.detach().clone() for name, value in network.state_dict().items()}
        heads = {TASK, *(task.head for task in auxiliary)}
        weights = network.named_parameters()
        self._trained = {name: weight for name, weight in weights if _is_trained(name, trained, heads)}

    def train(
        self, trials: Sequence[FewShotTrial], reset_head: Callable[[int], None] | None
    ) -> Iterator[list[FewShotResult]]:
        """Yield the result of each trial; at the end the network has its first weights again."""
        everything = dict(self._network.named_parameters())
        for name, weight in everything.items():
            weight.requires_grad_(name in self._trained)
        try:
            for trial in trials:
                self._network.load_state_dict(self._first)
                if reset_head is not None:
                    reset_head(trial.seed)
                yield [self._run(trial)]
        finally:
            self._network.load_state_dict(self._first)
            for weight in everything.values():
                weight.requires_grad_(True)

    def _run(self, trial: FewShotTrial) -> FewShotResult:
        best = self._best_epoch(trial)
        if best is None:
            raise not_finite(trial)
        with torch.no_grad():
            for name, weight in self._trained.items():
                weight.copy_(best.weights[name])
        test = self._rows.test(trial)
        perplexity = float(np.exp(best.loss))
        return make_result(trial, best.epoch, perplexity, self._rows.units, test, self._probabilities(test))

    def _best_epoch(self, trial: FewShotTrial) -> _BestEpoch | None:
        phase, held_out = self.phase(trial), self._rows.held_out(trial)
        per_epoch, best = phase.steps // self._rows.spec.epochs, None
        for record in train(phase, build_optimizer(phase)):
            epoch, remainder = divmod(record.step, per_epoch)
            if remainder:
                continue
            sums, counts = self._rows.units.losses(held_out, self._probabilities(held_out))
            loss = float(sums.sum() / max(1, counts.sum()))
            self._network.train()
            if np.isfinite(loss) and (best is None or loss < best.loss):
                weights = {name: weight.detach().clone() for name, weight in self._trained.items()}
                best = _BestEpoch(epoch, loss, weights)
            if self._rows.spec.stops_after(epoch, 0 if best is None else best.epoch):
                break
        return best

    def phase(self, trial: FewShotTrial) -> Phase:
        """Return the training of a trial: as many rows of each task, batches in turn, each row once in an epoch."""
        spec = self._rows.spec
        self._network.set_dropout(spec.dropout)
        tasks = {END_TASK: self._objective(trial)}
        tasks |= {task.name: task.objective(self._network, trial) for task in self._auxiliary}
        return Phase(
            network=self._network,
            objectives=tasks,
            weighting=alternating(tasks),
            steps=spec.epochs * batches_per_epoch(tasks),
            settings=phase_settings(),
            learning_rate=trial.learning_rate,
            seed=derive(spec.seed, RANDOM_STREAM, trial.seed),
            context=self._context,
        )

    def _objective(self, trial: FewShotTrial) -> TaskObjective:
        units, batches, size = self._rows.units, self._rows.batches(trial), self._rows.spec.batch_size
        stream = SelectedTexts(RANDOM_STREAM, self._texts, self._network, self._rows.train(trial), batches, size)
        if not units.per_token:
            return Classification(RANDOM_STREAM, stream, units.classes)
        tags = units.truth[units.truth != NO_WORD]
        return Tagging(RANDOM_STREAM, stream, WordStarts(self._texts), np.where(tags < units.known, tags, IGNORED))

    def _probabilities(self, rows: Indices) -> NDArray[np.float32]:
        vectors = unit_vectors(self._network, self._texts, self._rows.units, rows, self._context)
        with torch.no_grad(), self._context.autocast():
            probabilities: NDArray[np.float32] = self._network.heads[TASK](vectors).float().softmax(-1).cpu().numpy()
        return probabilities


def _is_trained(name: str, trained: TrainedPart, heads: Collection[str]) -> bool:
    """Return whether a weight of the network is trained; the heads of the trained tasks always are.

    >>> [_is_trained("encoder.embeddings.norm.weight", trained, ["task"]) for trained in ("head", "transformer", "all")]
    [False, False, True]
    """
    if any(name.startswith(f"heads.{head}.") for head in heads):
        return True
    if trained == "head" or not name.startswith(_ENCODER):
        return False
    return trained == "all" or not name.startswith(_EMBEDDINGS)
