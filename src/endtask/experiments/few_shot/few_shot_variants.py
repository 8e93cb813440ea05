"""Variants of a few-shot experiment: a pre-trained run, the weights to train, and the head to start with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from endtask.config import Settings, load_settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.encoders.weights import load_weights
from endtask.errors import InputError, did_you_mean
from endtask.experiments.few_shot.auxiliary_tasks import AuxiliaryTask, auxiliary_rows
from endtask.experiments.few_shot.few_shot_scores import FewShotResult
from endtask.experiments.few_shot.few_shot_spec import FewShotRow, FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.few_shot_trials import FewShotTrials
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM, Draw, TaskRows
from endtask.experiments.few_shot.trial_rows import FeatureCache, PredictionUnits, TrialRows, pack_rows, unit_vectors
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_files import check_stage, read_manifest
from endtask.pipeline.run import Run
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import copy_aligned_head, copy_auxiliary_head, fitting_objective, network_for

_ROW_KEYS = ("learning_rates", "epochs", "patience", "contrastive")


@dataclass(frozen=True)
class PretrainedRun:
    """The weights, tokenizer and task of a run; `digest` is the fingerprint of its pre-training."""

    name: str
    folder: Path
    settings: Settings
    task: Task
    digest: str

    @property
    def weights(self) -> Path:
        """The file of the pre-trained weights: the last, or the best on dev if the run fine-tunes those."""
        from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS

        return self.folder / "pretrain" / (BEST_PRETRAINED if self.settings.finetune.start_from == "best" else WEIGHTS)

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer."""
        return self.folder / "pack" / "tokenizer"

    @property
    def saw_labels(self) -> bool:
        """Whether pre-training used the labels of train."""
        used = self.settings.used_objectives.values()
        return not self.settings.skip_pretraining and any(objective.sees_labels for objective in used)


def open_pretrained(folder: Path, name: str | None = None) -> PretrainedRun:
    """Return the run in a folder; named after the folder by default. Raise `InputError` if it is incomplete."""
    if not (folder / SETTINGS_FILE).is_file():
        raise InputError("no run here", path=folder, hint="endtask run --output FOLDER --until pretrain makes one")
    manifests = {stage: read_manifest(folder / stage) for stage in ("read", "pack", "pretrain")}
    if any(manifest is None or manifest["status"] != "finished" for manifest in manifests.values()):
        raise InputError("pre-training is not finished", path=folder, hint=f"endtask run {folder} --until pretrain")
    run = Run(load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)}))
    read, pretrain = manifests["read"], manifests["pretrain"]
    assert read is not None
    assert pretrain is not None
    if read["inputs"]["task"] != run.task.combined_fingerprint:
        raise InputError(
            f"the files of the task ({run.settings.task.path}) changed since this run was made", path=folder
        )
    if not run.task.task_type.one_label:
        raise InputError(f"few-shot learning is for tasks with one class for each text or word, not {run.task.type}")
    settings = run.local_settings.model_copy(update={"compile": "graphs"})  # trials are short
    pretrained = PretrainedRun(name or folder.resolve().name, folder, settings, run.task, pretrain["fingerprint"])
    if not pretrained.weights.is_file():
        raise InputError("the pre-trained weights are not here", path=pretrained.weights)
    check_stage(folder / "pretrain", digests_up_to=math.inf)
    check_stage(folder / "pack")
    return pretrained


def open_all(folders: Mapping[str, Path]) -> list[PretrainedRun]:
    """Return the runs in folders by name. Raise `InputError` if their tasks differ."""
    runs = [open_pretrained(folder, name) for name, folder in folders.items()]
    for run in runs:
        if run.task.fingerprint != runs[0].task.fingerprint:
            raise InputError(f"another task than that of {runs[0].folder}", path=run.folder)
    return runs


@dataclass(frozen=True)
class FewShotVariant:
    """A row of a table with its pre-trained run, the spec with the row's values, and the folder of its results."""

    pretrained: PretrainedRun
    row: FewShotRow
    spec: FewShotSpec
    folder: Path

    @classmethod
    def of(cls, row: FewShotRow, runs: Sequence[PretrainedRun], spec: FewShotSpec, key: str) -> FewShotVariant:
        """Return the variant of a row; `key` is its table in messages."""
        by_name = {run.name: run for run in runs}
        if row.variant not in by_name:
            raise InputError(f"no variant is named {row.variant!r}", key=key, hint=did_you_mean(row.variant, by_name))
        values = {name: getattr(row, name) for name in _ROW_KEYS if getattr(row, name) is not None}
        if values.get("contrastive", spec.contrastive) and by_name[row.variant].task.task_type.per_token:
            raise InputError("texts are compared by their class, and tagged words have none", key="contrastive")
        # Learning rates are part of a trial's file name; the row's other values are part of the folder's name.
        changes = [(name, value) for name, value in values.items() if value != getattr(spec, name)]
        suffix = "".join(f"-{name}-{value}" for name, value in changes if name != "learning_rates")
        tasks = "-all-tasks" if row.tasks == "all" else ""
        folder = Path("runs") / row.variant / f"{row.train}-{row.head}{tasks}{suffix}"
        return cls(by_name[row.variant], row, spec.model_copy(update=values), folder)

    @property
    def name(self) -> str:
        """The title, or else the run's name, the trained weights, the head, and whether all tasks are trained."""
        row = self.row
        if row.title is not None:
            return row.title
        tasks = ", all tasks" if row.tasks == "all" else ""
        return f"{row.variant}, {row.train}, {'kept' if row.head == 'keep' else 'new'} head{tasks}"

    def trials(self, labels: tuple[int, ...]) -> list[FewShotTrial]:
        """Return the trials for numbers of labels."""
        return list(self.spec.trials(labels, self.row.train))

    def check(self) -> None:
        """Raise `InputError` if the run lacks the head to keep or the auxiliary tasks to train."""
        run = self.pretrained
        if self.row.head == "keep" and not (run.settings.reads_aligned or _has_task_head(run)):
            raise InputError(
                "pre-training left no head to keep: no objective is aligned, and none is the task",
                path=run.folder,
                hint="--head new",
            )
        if self.row.tasks == "all" and not run.task.auxiliary:
            raise InputError(
                "--tasks all: the run has no auxiliary tasks",
                path=run.folder,
                hint="--tasks main, or name some under `tasks` and set finetune.tasks: all",
            )


def _has_task_head(run: PretrainedRun) -> bool:
    train = run.settings.pretrain
    return not run.settings.skip_pretraining and train.trains_task and train.task_head == "stock"


def _has_auxiliary_head(run: PretrainedRun, task: AuxiliaryTask) -> bool:
    """Return whether pre-training trained a head for an auxiliary task, or an aligned head with the same classes."""
    settings = run.settings
    fits = settings.reads_aligned and fitting_objective(task.task.task_type, task.task.labels, settings) is not None
    return fits or task.name in settings.learned_tasks


class VariantTrainer:
    """Trains the trials of a pre-trained run's variants; the tokenised texts are in `scratch`."""

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

    def train(self, variant: FewShotVariant, trials: Sequence[FewShotTrial]) -> Iterator[FewShotResult]:
        """Yield the result of each trial."""
        cached = variant.row.train == "head"
        return self.trials_of(variant, cached=cached).train(trials, lambda seed: self._reset_heads(variant, seed))

    def trials_of(self, variant: FewShotVariant, *, cached: bool) -> FewShotTrials:
        """Return the training of a variant's trials; if `cached`, on vectors that the encoder computed once."""
        self._load_weights(variant)
        return FewShotTrials(
            TrialRows(variant.spec, self._labels, self._draws, self.units),
            self._network,
            self._texts,
            self._context,
            variant.row.train,
            self._auxiliary_of(variant),
            self._cache if cached else None,
        )

    def _load_weights(self, variant: FewShotVariant) -> None:
        load_weights(self._run.weights, self._network)
        if variant.row.head == "keep" and self._run.settings.reads_aligned:
            copy_aligned_head(self._network, self._run.settings)
            for task in self._auxiliary_of(variant):
                copy_auxiliary_head(self._network, task.name, task.task, self._run.settings)

    def _auxiliary_of(self, variant: FewShotVariant) -> Sequence[AuxiliaryTask]:
        return self._auxiliary if variant.row.tasks == "all" else ()

    @cached_property
    def _auxiliary(self) -> tuple[AuxiliaryTask, ...]:
        """The auxiliary tasks, tokenised when the first variant needs them."""
        run, folder = self._run, self._scratch / "tasks"
        length = run.settings.finetune.max_length
        return tuple(
            AuxiliaryTask(rows, run.tokenizer, length, self._spec, folder / rows.name)
            for rows in auxiliary_rows(run.task, self._rows, self._draws, self._spec)
        )

    def _reset_heads(self, variant: FewShotVariant, seed: int) -> None:
        """Give random weights to new heads, and to heads of auxiliary tasks that pre-training did not train."""
        if variant.row.head == "new":
            self.reset_head(seed)
        for task in self._auxiliary_of(variant):
            if variant.row.head == "new" or not _has_auxiliary_head(self._run, task):
                self._network.reset_task_head(self._head_seed(seed, task.name), task.head)

    def reset_head(self, seed: int) -> None:
        """Give the task's head the random weights of a seed."""
        self._network.reset_task_head(self._head_seed(seed))

    def _head_seed(self, seed: int, *task: str) -> int:
        return derive(self._spec.seed, RANDOM_STREAM, "head", seed, *task)

    @cached_property
    def _cache(self) -> FeatureCache:
        """Vectors of all rows that trials read; variants with a frozen encoder share them."""
        rows = TrialRows(self._spec, self._labels, self._draws, self.units).all_rows()
        vectors = unit_vectors(self._network, self._texts, self.units, rows, self._context)
        return FeatureCache(vectors, self.units.of(rows), len(self.units.classes))
