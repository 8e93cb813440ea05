"""Train many few-shot trials on top of pre-trained runs, and resume after the last finished trial."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.errors import InputError
from endtask.evaluation.task_metrics import measure_of
from endtask.experiments.few_shot.auxiliary_tasks import auxiliary_rows, labels_for_all
from endtask.experiments.few_shot.few_shot_report import write_few_shot_page
from endtask.experiments.few_shot.few_shot_scores import (
    FewShotOutcome,
    FewShotResult,
    FewShotResultTable,
    FewShotScoring,
    FewShotTableRow,
    read_result,
    score_table,
    write_result,
)
from endtask.experiments.few_shot.few_shot_spec import (
    DEFAULT_LABELS,
    FewShotRow,
    FewShotSpec,
    FewShotTable,
    FewShotTrial,
)
from endtask.experiments.few_shot.few_shot_variants import FewShotVariant, PretrainedRun, VariantTrainer, open_all
from endtask.experiments.few_shot.label_draws import Draw, TaskRows, fitting_labels, make_draws
from endtask.experiments.few_shot.trial_rows import PredictionUnits, pack_rows
from endtask.experiments.record import Record, check_spec, read_record
from endtask.experiments.scheduler import LOG, DeviceWorker, Job, StartWorker, check_devices, run_jobs
from endtask.io.atomic import remove_leftovers
from endtask.io.processes import make_output_folder, run_lock
from endtask.io.run_layout import record_file
from endtask.pipeline.run import Run
from endtask.progress import bar, say
from endtask.training.device import explain_out_of_memory

if TYPE_CHECKING:
    from endtask.experiments.spec import Study, TaskStudy

RECORD = record_file("few-shot")
_STUDY_FOLDER = "few-shot"
_SCRATCH = ".texts-"
_EXTENSIBLE = {"labels", "samples", "seeds", "train", "head", "tasks", "learning_rates", "tables"}


@dataclass(frozen=True)
class VariantTable:
    """The variants of a table in order, and its numbers of labels."""

    name: str
    title: str
    variants: tuple[FewShotVariant, ...]
    labels: tuple[int, ...]


def few_shot_study(
    experiment: TaskStudy,
    *,
    devices: Sequence[str] = (),
    where: str = "study",
    start_worker: StartWorker = DeviceWorker,
) -> FewShotOutcome:
    """Run or resume a study on a task in the folder `settings.output_dir`, and return its tables.

    The variants of the tables, or all, are pre-trained as in a comparison, up to the stage `pretrain`; the results of
    few-shot trials are in `few-shot/`.
    """
    from endtask.experiments.compare import compare
    from endtask.experiments.variants import listed_variants

    spec = experiment.study.few_shot or FewShotSpec()
    study = _pretraining_study(experiment.study, spec)
    compare(
        experiment.settings,
        study,
        presets=experiment.presets,
        until="pretrain",
        devices=devices,
        where=where,
        start_worker=start_worker,
    )
    folder = Run(experiment.settings).folder
    variants = listed_variants(experiment.settings, study, where, experiment.presets)
    trials = [trial for variant in variants for trial in variant.trials(folder)]
    runs = {_run_name(trial.variant.name, trial.seed, study): trial.folder for trial in trials}
    return few_shot(runs, spec, folder / _STUDY_FOLDER, devices=devices, start_worker=start_worker)


def _pretraining_study(study: Study, spec: FewShotSpec) -> Study:
    """Return the study with only the variants of the tables, without baselines and tables."""
    names = {_run_name(name, seed, study): name for name in study.variants for seed in study.seeds or (0,)}
    rows = [row.variant for table in spec.tables.values() for row in table.rows]
    table_variants = tuple(dict.fromkeys(names.get(row, row) for row in rows))
    only = study.only or table_variants or None
    return study.model_copy(update={"baselines": {}, "tables": {}, "only": only, "few_shot": None})


def _run_name(variant: str, seed: int, study: Study) -> str:
    """Return the name that tables use: the variant's, with its seed where the study pre-trains with several."""
    return f"{variant}-{seed}" if study.seeds is not None and len(study.seeds) > 1 else variant


def few_shot(
    runs: Sequence[str | Path] | Mapping[str, Path],
    spec: FewShotSpec | None = None,
    output: str | Path | None = None,
    *,
    devices: Sequence[str] = (),
    start_worker: StartWorker = DeviceWorker,
) -> FewShotOutcome:
    """Train on few labels on top of each pre-trained run, and test every variant against the first.

    `runs` are folders, or folders by the name that the tables of `spec` use. Finished trials in `output` are reused:
    the same call resumes after a stop, and may have more labels, seeds and so on. `devices` are GPUs that variants are
    spread over; without devices variants are trained one after the other in this process.
    """
    spec = spec or FewShotSpec()
    folders = _by_name(runs)
    if not folders:
        raise InputError("no run to train on top of", hint="endtask few-shot RUN")
    pretrained = open_all(folders)
    _check_unseen_labels(pretrained, spec)
    check_devices(devices, pretrained[0].settings.device)
    first_run = next(iter(folders.values()))
    folder = Path(output) if output is not None else first_run.with_name(f"{first_run.resolve().name}-few-shot")
    experiment = _Experiment(folder, spec, pretrained)
    tables = experiment.tables()
    make_output_folder(folder, RECORD)
    with run_lock(folder):
        record = _open_record(folder, pretrained, spec)
        remove_leftovers(folder)
        for scratch in folder.glob(f"{_SCRATCH}*"):  # left by a killed process
            shutil.rmtree(scratch)
        experiment.train(_labels_by_variant(tables), devices, start_worker)
        outcome = experiment.outcome(tables)
        record.with_outcome(outcome.to_dict())
        write_few_shot_page(outcome)
        return outcome


def _by_name(runs: Sequence[str | Path] | Mapping[str, Path]) -> dict[str, Path]:
    if isinstance(runs, Mapping):
        return dict(runs)
    folders: dict[str, Path] = {}
    for run in map(Path, runs):
        name = run.resolve().name
        if name in folders:
            raise InputError(f"two runs are called {name!r}", path=run, hint="rename one of the folders")
        folders[name] = run
    return folders


def _check_unseen_labels(pretrained: Sequence[PretrainedRun], spec: FewShotSpec) -> None:
    run = next((run for run in pretrained if run.saw_labels), None)
    if run is not None and spec.folds is not None:
        raise InputError(
            "--folds: pre-training used the labels of train, which folds would score",
            path=run.folder,
            hint="leave out --folds, or set pretrain.objectives without the task",
        )


def _open_record(folder: Path, pretrained: Sequence[PretrainedRun], spec: FewShotSpec) -> Record:
    """Return the record with the new spec. Raise `InputError` if its results were made with another spec."""
    requested: dict[str, Any] = {
        "task": pretrained[0].task.fingerprint,
        "runs": {run.name: run.digest for run in pretrained},
        "spec": spec.model_dump(mode="json", exclude=_EXTENSIBLE),
    }
    if not (folder / RECORD).exists():
        return Record(folder, "few-shot", requested).save()
    before = read_record(folder, "few-shot").spec
    same_runs = {name: digest for name, digest in before["runs"].items() if name in requested["runs"]}
    check_spec(folder, {**before, "runs": {**requested["runs"], **same_runs}}, requested)
    return Record(folder, "few-shot", {**requested, "runs": {**before["runs"], **requested["runs"]}}).save()


def _labels_by_variant(tables: Sequence[VariantTable]) -> list[tuple[FewShotVariant, tuple[int, ...]]]:
    """Return every variant once, with the numbers of labels of all its tables."""
    variants: dict[tuple[object, ...], tuple[FewShotVariant, set[int]]] = {}
    for table in tables:
        for variant in table.variants:
            key = (variant.folder, variant.spec.learning_rates_of(variant.row.train))
            variants.setdefault(key, (variant, set()))[1].update(table.labels)
    return [(variant, tuple(sorted(labels))) for variant, labels in variants.values()]


def train_variant(
    run: tuple[str, Path], spec: dict[str, Any], row: dict[str, Any], labels: tuple[int, ...], folder: Path
) -> None:
    """Train the missing trials of a variant; called in a worker."""
    experiment = _Experiment(folder, FewShotSpec.model_validate(spec), open_all(dict([run])))
    experiment.train([(experiment.variant(FewShotRow.model_validate(row), "few_shot"), labels)])


class _Experiment:
    """A few-shot experiment on runs of the same task, in a folder."""

    def __init__(self, folder: Path, spec: FewShotSpec, pretrained: Sequence[PretrainedRun]) -> None:
        self._folder, self._spec, self._pretrained = folder, spec, pretrained
        self._rows = TaskRows.of(pretrained[0].task)
        self._draws: Sequence[Draw] = make_draws(self._rows, spec)

    def variant(self, row: FewShotRow, key: str) -> FewShotVariant:
        """Return the variant of a table's row; `key` is the table in messages."""
        return FewShotVariant.of(row, self._pretrained, self._spec, key)

    def tables(self) -> list[VariantTable]:
        """Return the tables of the spec, or else a table of every run, trained part, head and tasks."""
        specs = self._spec.tables
        if not specs:
            rows = [row for run in self._pretrained for row in self._spec.combinations(run.name)]
            specs = {"": FewShotTable(rows=tuple(rows))}
        return [self._table(name, table) for name, table in specs.items()]

    def _table(self, name: str, table: FewShotTable) -> VariantTable:
        key = f"few_shot.tables.{name}"
        variants = tuple(self.variant(row, key) for row in table.rows)
        names = [variant.name for variant in variants]
        repeated = next((title for title in names if names.count(title) > 1), None)
        if repeated is not None:
            raise InputError(f"two rows are called {repeated!r}", key=key, hint="give them a title")
        for variant in variants:
            variant.check()
        spec = self._spec if table.labels is None else self._spec.model_copy(update={"labels": table.labels})
        labels = fitting_labels(self._draws, spec)
        joint_runs = {variant.pretrained.name: variant.pretrained for variant in variants if variant.row.tasks == "all"}
        for run in joint_runs.values():  # auxiliary tasks need as many rows
            labels = labels_for_all(labels, spec, auxiliary_rows(run.task, self._rows, self._draws, spec))
        return VariantTable(name, table.title, variants, labels)

    def train(
        self,
        variants: Sequence[tuple[FewShotVariant, tuple[int, ...]]],
        devices: Sequence[str] = (),
        start_worker: StartWorker = DeviceWorker,
    ) -> None:
        """Train the missing trials of every variant, in this process or on devices."""
        pending = []
        for variant, labels in variants:
            (self._folder / variant.folder).mkdir(parents=True, exist_ok=True)
            if self._missing(variant, labels):
                pending.append((variant, labels))
            else:
                say(f"{variant.name}: finished before, skipped")
        if devices:
            self._train_on_devices(pending, devices, start_worker)
            return
        for run in self._pretrained:
            run_variants = [(variant, labels) for variant, labels in pending if variant.pretrained is run]
            if run_variants:
                self._train_run(run, run_variants)

    def _missing(self, variant: FewShotVariant, labels: tuple[int, ...]) -> list[FewShotTrial]:
        return [
            trial for trial in variant.trials(labels) if not (self._folder / variant.folder / trial.file_name).exists()
        ]

    def _train_run(self, run: PretrainedRun, variants: Sequence[tuple[FewShotVariant, tuple[int, ...]]]) -> None:
        all_labels = tuple(sorted({number for _, labels in variants for number in labels}))
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_SCRATCH) as scratch:
            trainer = VariantTrainer(run, self._rows, self._draws, self._spec, all_labels, Path(scratch))
            for variant, labels in variants:
                trials, missing = variant.trials(labels), self._missing(variant, labels)
                done = len(trials) - len(missing)
                with bar(variant.name, len(trials), done=done) as advance, explain_out_of_memory():
                    for result in trainer.train(variant, missing):
                        write_result(result, self._folder / variant.folder)
                        advance(1)

    def _train_on_devices(
        self,
        variants: Sequence[tuple[FewShotVariant, tuple[int, ...]]],
        devices: Sequence[str],
        start_worker: StartWorker,
    ) -> None:
        spec = self._spec.model_dump(mode="json")
        jobs = []
        for variant, labels in variants:
            run, row = (variant.pretrained.name, variant.pretrained.folder), variant.row.model_dump(mode="json")
            key, log = str(variant.folder), self._folder / variant.folder / LOG
            jobs.append(Job(key, train_variant, (run, spec, row, labels, self._folder), log, frozenset([key])))
        run_jobs(
            jobs,
            devices,
            before=lambda job, device: say(f"{job.key}: on GPU {device}"),
            after=lambda job, end: say(f"{job.key}: {end.status}"),
            start_worker=start_worker,
            may_fail=False,
        )

    def outcome(self, tables: Sequence[VariantTable]) -> FewShotOutcome:
        """Return the tables with their tests."""
        first = self._pretrained[0]
        measure = measure_of(first.task, first.settings.evaluate)
        scoring = FewShotScoring(self._spec, self._draws, self._units(first), measure, self._rows.groups)
        scored = "all rows, by folds" if self._spec.folds else self._rows.scored_split
        results = tuple(self._result_table(table, scoring) for table in tables)
        notes = tuple(self._notes(tables))
        return FewShotOutcome(self._folder, first.task.name, measure.name, scored, results, notes, self._spec)

    def _result_table(self, table: VariantTable, scoring: FewShotScoring) -> FewShotResultTable:
        results = {variant.name: self._results(variant, table.labels) for variant in table.variants}
        entries = score_table(scoring, results, table.labels)
        rows = []
        for variant in table.variants:
            name, run, row = variant.name, variant.pretrained.name, variant.row
            rows.append(FewShotTableRow(name, run, row.train, row.head, row.tasks, entries[name]))
        return FewShotResultTable(table.name, table.title, table.labels, tuple(rows))

    def _results(self, variant: FewShotVariant, labels: tuple[int, ...]) -> list[FewShotResult]:
        return [read_result(self._folder / variant.folder, trial) for trial in variant.trials(labels)]

    def _units(self, run: PretrainedRun) -> PredictionUnits:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_SCRATCH) as scratch:
            texts = pack_rows(self._rows, run.tokenizer, run.settings.finetune.max_length, Path(scratch))
            return PredictionUnits(run.task, self._rows, texts)

    def _notes(self, tables: Sequence[VariantTable]) -> list[str]:
        notes, pretrained = [], self._pretrained
        with_labels = [run.name for run in pretrained if run.saw_labels]
        if with_labels:
            rows, names = len(pretrained[0].task.train), ", ".join(with_labels)
            notes.append(f"Pre-training of {names} used all {rows:,} labels of train: these are not few.")
        if any(variant.row.tasks == "all" for table in tables for variant in table.variants):
            names = ", ".join(dict.fromkeys(name for run in pretrained for name in run.task.auxiliary))
            notes.append(f"All tasks: trained in turn with the end task, on as many labels of each: {names}.")
        labels = tables[0].labels
        if self._spec.labels is None and not self._spec.tables and len(labels) < len(DEFAULT_LABELS):
            missing = ", ".join(str(number) for number in DEFAULT_LABELS if number not in labels)
            notes.append(f"There are too few rows for {missing} labels.")
        if self._spec.folds is None and self._draws:
            pool, train = len(self._draws[0].order), len(self._rows.splits["train"])
            if pool < train:
                notes.append(
                    f"{train - pool:,} of {train:,} train rows share a group with scored rows and are left out."
                )
        return notes
