"""Variants of a few-shot experiment: a pre-trained run, what is trained of it, and the head it starts with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.encoders.weights import load_weights
from endtask.errors import InputError
from endtask.experiments.few_shot.auxiliary_tasks import AuxiliaryTask, auxiliary_rows
from endtask.experiments.few_shot.encoder_trials import EncoderTrials
from endtask.experiments.few_shot.features import FeatureCache, unit_vectors
from endtask.experiments.few_shot.few_shot_results import FewShotResult
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial, Head, Tasks, TrainedPart
from endtask.experiments.few_shot.head_trials import HeadTrials
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM, Draw, TaskRows
from endtask.experiments.few_shot.prediction_units import PredictionUnits, pack_rows
from endtask.experiments.few_shot.pretrained_runs import PretrainedRun
from endtask.experiments.few_shot.trial_rows import TrialRows
from endtask.seeds import derive
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import network_for
from endtask.training.reused_head import fitting_objective, keep_aligned_head, reuse_auxiliary_head


@dataclass(frozen=True)
class FewShotVariant:
    """One row of a table; `spec` has the learning rates and epochs of this row."""

    pretrained: PretrainedRun
    train: TrainedPart
    head: Head
    tasks: Tasks
    spec: FewShotSpec
    title: str | None = None
    own_values: str = ""
    """The values that differ from the experiment's, as part of the folder's name."""

    @property
    def name(self) -> str:
        """The title, or the run's name, what is trained, the head and whether auxiliary tasks are trained too."""
        if self.title is not None:
            return self.title
        tasks = ", all tasks" if self.tasks == "all" else ""
        return f"{self.pretrained.name}, {self.train}, {'kept' if self.head == 'keep' else 'new'} head{tasks}"

    @property
    def folder(self) -> Path:
        """The folder of its results, relative to the experiment's."""
        tasks = "-all-tasks" if self.tasks == "all" else ""
        return Path("runs") / self.pretrained.name / f"{self.train}-{self.head}{tasks}{self.own_values}"

    def check(self) -> None:
        """Raise if a head is to be kept that is not there, or if there are no auxiliary tasks to train."""
        run = self.pretrained
        if self.head == "keep" and not (run.settings.reads_aligned or _has_task_head(run)):
            raise InputError(
                "pre-training left no head to keep: no objective is aligned, and none is the task",
                path=run.folder,
                hint="--head new",
            )
        if self.tasks == "all" and not run.task.auxiliary:
            raise InputError(
                "--tasks all: the run has no auxiliary tasks",
                path=run.folder,
                hint="--tasks main, or name some under `tasks` and set finetune.tasks: all",
            )


def _has_task_head(run: PretrainedRun) -> bool:
    train = run.settings.pretrain
    return not run.settings.skip_pretraining and train.trains_task and train.task_head == "stock"


def _has_auxiliary_head(run: PretrainedRun, task: AuxiliaryTask) -> bool:
    """Return whether pre-training trained a head for an auxiliary task, or an aligned one of the same classes."""
    settings = run.settings
    fits = settings.reads_aligned and fitting_objective(task.task.task_type, task.task.labels, settings) is not None
    return fits or task.name in settings.learned_tasks


class VariantTrainer:
    """Trains the trials of variants of one pre-trained run; its texts are tokenised in `scratch`."""

    def __init__(
        self,
        run: PretrainedRun,
        rows: TaskRows,
        draws: Sequence[Draw],
        spec: FewShotSpec,
        labels: tuple[int, ...],
        scratch: Path,
    ) -> None:
        self._run, self._spec, self._labels, self._scratch = run, spec, labels, scratch
        self._rows, self._draws = rows, draws
        self._texts: PackedTexts = pack_rows(rows, run.tokenizer, run.settings.finetune.max_length, scratch)
        self.units = PredictionUnits(run.task, rows, self._texts)
        self._context: DeviceContext = choose_device_context(run.settings)

    @cached_property
    def _network(self) -> Network:
        run = self._run
        return move(network_for(run.task, run.folder / "pack", run.settings), run.settings, self._context)

    def _trial_rows(self, variant: FewShotVariant) -> TrialRows:
        return TrialRows(variant.spec, self._labels, self._draws, self.units)

    def train(self, variant: FewShotVariant, trials: Sequence[FewShotTrial]) -> Iterator[list[FewShotResult]]:
        """Yield the results of the trials, some at a time."""
        if variant.train == "head":
            return self._head_trials(variant).train(trials)
        return self.encoder_trials(variant).train(trials, lambda seed: self._reset_heads(variant, seed))

    def encoder_trials(self, variant: FewShotVariant) -> EncoderTrials:
        """Return trials through the whole network, one by one, from the variant's first weights."""
        self._load(variant)
        rows, auxiliary = self._trial_rows(variant), self._auxiliary_of(variant)
        return EncoderTrials(rows, self._network, self._texts, self._context, variant.train, auxiliary)

    def _load(self, variant: FewShotVariant) -> None:
        load_weights(self._run.weights, self._network)
        if variant.head == "keep" and self._run.settings.reads_aligned:
            keep_aligned_head(self._network, self._run.settings)
            for task in self._auxiliary_of(variant):
                reuse_auxiliary_head(self._network, task.name, task.task, self._run.settings)

    def _auxiliary_of(self, variant: FewShotVariant) -> Sequence[AuxiliaryTask]:
        return self._auxiliary if variant.tasks == "all" else ()

    @cached_property
    def _auxiliary(self) -> tuple[AuxiliaryTask, ...]:
        """The auxiliary tasks, tokenised when the first variant needs them."""
        run, found = self._run, auxiliary_rows(self._run.task, self._rows, self._draws, self._spec)
        length, folder = run.settings.finetune.max_length, self._scratch / "tasks"
        return tuple(AuxiliaryTask(rows, run.tokenizer, length, self._spec, folder / rows.name) for rows in found)

    def _reset_heads(self, variant: FewShotVariant, seed: int) -> None:
        """Give new weights to the heads that are not kept; pre-training may have none for an auxiliary task."""
        if variant.head == "new":
            self.reset_head(seed)
        for task in self._auxiliary_of(variant):
            if variant.head == "new" or not _has_auxiliary_head(self._run, task):
                self._network.reset_task_head(self._head_seed(seed, task.name), task.head)

    def _head_trials(self, variant: FewShotVariant) -> HeadTrials:
        self._load(variant)
        pretrained_head = self._head_weights() if variant.head == "keep" else None

        def first_weights(seed: int) -> dict[str, Tensor]:
            if pretrained_head is not None:
                return pretrained_head
            self.reset_head(seed)
            return self._head_weights()

        return HeadTrials(self._trial_rows(variant), self._network.heads[TASK], first_weights, self._cache)

    def _head_weights(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self._network.heads[TASK].named_parameters()}

    def reset_head(self, seed: int) -> None:
        """Give the task's head the random weights of a seed."""
        self._network.reset_task_head(self._head_seed(seed))

    def _head_seed(self, seed: int, *task: str) -> int:
        return derive(self._spec.seed, RANDOM_STREAM, "head", seed, *task)

    @cached_property
    def _cache(self) -> FeatureCache:
        """Vectors of all rows that some trial reads; variants with a frozen encoder share them."""
        rows = TrialRows(self._spec, self._labels, self._draws, self.units).all_rows()
        vectors = unit_vectors(self._network, self._texts, self.units, rows, self._context)
        return FeatureCache(vectors, self.units.of(rows), len(self.units.classes))
