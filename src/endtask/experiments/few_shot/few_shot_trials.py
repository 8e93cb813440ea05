"""Train few-shot trials one after the other with the training loop of runs.

A trial that trains only the head reads the encoder's vectors from memory: the encoder reads each text once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from endtask.config import PhaseSettings
from endtask.encoders.batch import IGNORED
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.errors import TrainingError
from endtask.experiments.few_shot.auxiliary_tasks import AuxiliaryTask
from endtask.experiments.few_shot.few_shot_scores import FewShotResult, make_result
from endtask.experiments.few_shot.few_shot_spec import FewShotTrial, TrainedPart
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM, Indices
from endtask.experiments.few_shot.trial_rows import FeatureCache, SelectedTexts, TrialRows, unit_vectors
from endtask.objectives.base import BuiltObjective, Loss
from endtask.objectives.task import FinetunedTask, FinetuningLoss
from endtask.objectives.task_losses import Classification, Tagging
from endtask.seeds import derive
from endtask.task.targets import NO_WORD
from endtask.tokenization.packed_texts import PackedTexts, WordStarts
from endtask.tokenization.sampling import BatchPlan
from endtask.training.finetune_phase import END_TASK
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.weighting.alternate import Alternate

# The learning rate is constant, because the best epoch may be any.
PHASE_SETTINGS = PhaseSettings(lr_scheduler_type="constant", warmup_steps=0)
_ENCODER, _EMBEDDINGS = "encoder.", "encoder.embeddings."


@dataclass(frozen=True)
class VectorBatch:
    """The encoder's vectors of some units, (units, hidden), and their classes; `IGNORED` for units without a target."""

    vectors: Tensor
    classes: Tensor

    @property
    def real_tokens(self) -> int:
        """The number of units."""
        return len(self.classes)

    @property
    def padded_tokens(self) -> int:
        """The number of units, because there is no padding."""
        return len(self.classes)

    def to(self, device: torch.device) -> VectorBatch:
        """Return the batch on a device."""
        return replace(self, vectors=self.vectors.to(device), classes=self.classes.to(device))

    def pin(self) -> VectorBatch:
        """Return the batch unchanged: its vectors are on the device already."""
        return self


class HeadObjective:
    """Cross-entropy of the task's head on vectors of a frozen encoder."""

    passes, replayable = 1, False
    heads: tuple[str, ...] = (TASK,)

    def __init__(self, rows: TrialRows, cache: FeatureCache, trial: FewShotTrial) -> None:
        self.name = RANDOM_STREAM
        self._units, self._cache, self._train = rows.units, cache, rows.train(trial)
        self._plan = rows.batches(trial)

    def batch(self, step: int) -> VectorBatch:
        """Return the vectors and classes of a step's units."""
        units = self._units.of(self._train[self._plan.positions(step)])
        classes = np.where(self._units.has_target(units), self._units.classes[units], IGNORED)
        return VectorBatch(self._cache[units], torch.from_numpy(classes))

    def loss(self, network: Network, batch: VectorBatch) -> Loss:
        """Return the mean cross-entropy of the units with a target."""
        logits = network.heads[TASK](batch.vectors).float()
        total = functional.cross_entropy(logits, batch.classes, ignore_index=IGNORED, reduction="sum")
        mean = total / (batch.classes != IGNORED).sum().clamp(min=1)
        return Loss(mean, {"task": mean})

    def flops(self, network: Network, batch: VectorBatch) -> float:
        """Return 0, because the cost of trials is not reported."""
        return 0.0


@dataclass(frozen=True)
class _BestEpoch:
    epoch: int
    loss: float
    weights: dict[str, Tensor]


class FewShotTrials:
    """Trains the task's head and, depending on `trained`, transformer and embeddings, from the network's weights.

    With a `cache` of the encoder's vectors only the head can be trained. The end task alternates with the `auxiliary`
    tasks; only the end task is scored.
    """

    def __init__(
        self,
        rows: TrialRows,
        network: Network,
        texts: PackedTexts,
        context: DeviceContext,
        trained: TrainedPart,
        auxiliary: Sequence[AuxiliaryTask] = (),
        cache: FeatureCache | None = None,
    ) -> None:
        self._rows, self._network, self._texts, self._context = rows, network, texts, context
        self._auxiliary, self._cache = auxiliary, cache
        heads = {TASK, *(task.head for task in auxiliary)}
        weights = network.named_parameters()
        self._trained = {name: weight for name, weight in weights if _is_trained(name, trained, heads)}
        self._initial = {name: weight.detach().clone() for name, weight in self._trained.items()}

    def train(
        self, trials: Sequence[FewShotTrial], reset_heads: Callable[[int], None] | None
    ) -> Iterator[FewShotResult]:
        """Yield the result of each trial; at the end restore the network's weights.

        `reset_heads` gives heads the random weights of a seed.
        """
        for name, weight in self._network.named_parameters():
            weight.requires_grad_(name in self._trained)
        try:
            for trial in trials:
                self._set_weights(self._initial)
                if reset_heads is not None:
                    reset_heads(trial.seed)
                yield self._run(trial)
        finally:
            self._set_weights(self._initial)
            self._network.requires_grad_(True)

    @torch.no_grad()
    def _set_weights(self, weights: dict[str, Tensor]) -> None:
        for name, weight in self._trained.items():
            weight.copy_(weights[name])

    def _run(self, trial: FewShotTrial) -> FewShotResult:
        best = self._best_epoch(trial)
        if best is None:
            message = f"no epoch at the learning rate {trial.learning_rate:g} has a finite loss"
            raise TrainingError(message, hint="lower --learning-rates")
        self._set_weights(best.weights)
        test = self._rows.test(trial)
        perplexity = float(np.exp(best.loss))
        return make_result(trial, best.epoch, perplexity, self._rows.units, test, self._probabilities(test))

    def _best_epoch(self, trial: FewShotTrial) -> _BestEpoch | None:
        phase, held_out = self.phase(trial), self._rows.held_out(trial)
        steps_per_epoch, best = phase.steps // self._rows.spec.epochs, None
        for record in train(phase, build_optimizer(phase)):
            epoch, remainder = divmod(record.step, steps_per_epoch)
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
        """Return the phase of a trial: as many rows of each task, alternating batches, each row once an epoch."""
        spec = self._rows.spec
        self._network.set_dropout(spec.dropout)
        plans = {END_TASK: self._rows.batches(trial)}
        tasks: dict[str, BuiltObjective] = {END_TASK: self._objective(trial, plans[END_TASK])}
        for task in self._auxiliary:
            objective = task.objective(self._network, trial)
            tasks[task.name], plans[task.name] = objective, objective.stream.plan
        batches = [plan.batches_per_epoch for plan in plans.values()]
        return Phase(
            network=self._network,
            objectives=tasks,
            weighting=Alternate(*tasks, weights=batches),
            steps=spec.epochs * sum(batches),
            settings=PHASE_SETTINGS,
            learning_rate=trial.learning_rate,
            seed=derive(spec.seed, RANDOM_STREAM, trial.seed),
            context=self._context,
        )

    def _objective(self, trial: FewShotTrial, plan: BatchPlan) -> BuiltObjective:
        if self._cache is not None:
            return HeadObjective(self._rows, self._cache, trial)
        units, size = self._rows.units, self._rows.spec.batch_size
        stream = SelectedTexts(RANDOM_STREAM, self._texts, self._network, self._rows.train(trial), plan, size)
        if not units.per_token:
            loss = FinetuningLoss(contrastive=self._rows.spec.contrastive)
            return FinetunedTask(Classification(RANDOM_STREAM, stream, units.classes), loss)
        tags = units.truth[units.truth != NO_WORD]
        return Tagging(RANDOM_STREAM, stream, WordStarts(self._texts), np.where(tags < units.known, tags, IGNORED))

    def _probabilities(self, rows: Indices) -> NDArray[np.float32]:
        self._network.eval()
        if self._cache is not None:
            vectors = self._cache[self._rows.units.of(rows)]
        else:
            vectors = unit_vectors(self._network, self._texts, self._rows.units, rows, self._context)
        with torch.no_grad(), self._context.autocast():
            probabilities: NDArray[np.float32] = self._network.heads[TASK](vectors).float().softmax(-1).cpu().numpy()
        return probabilities


def _is_trained(name: str, trained: TrainedPart, heads: Collection[str]) -> bool:
    """Return whether a weight of the network is trained; heads of the trained tasks always are.

    >>> [_is_trained("encoder.embeddings.norm.weight", trained, ["task"]) for trained in ("head", "transformer", "all")]
    [False, False, True]
    """
    if any(name.startswith(f"heads.{head}.") for head in heads):
        return True
    if trained == "head" or not name.startswith(_ENCODER):
        return False
    return trained == "all" or not name.startswith(_EMBEDDINGS)
