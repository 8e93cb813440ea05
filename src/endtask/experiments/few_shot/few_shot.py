"""Train on few labels on top of pre-trained runs, many times; resumable trial by trial."""

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
from endtask.experiments.record import Record, check_spec, read_record, record_file
from endtask.experiments.scheduler import LOG, DeviceWorker, Job, JobEnd, StartWorker, check_devices, run_jobs
from endtask.io.atomic import remove_leftovers
from endtask.io.processes import make_own_folder, run_lock
from endtask.pipeline.run import Run
from endtask.progress import bar, say
from endtask.training.device import explained_memory_trouble

if TYPE_CHECKING:
    from endtask.experiments.spec import Study, TaskStudy

RECORD = record_file("few-shot")
_STUDY_FOLDER = "few-shot"
_SCRATCH = ".texts-"
_MAY_GROW = {"labels", "samples", "seeds", "train", "head", "tasks", "learning_rates", "tables"}


@dataclass(frozen=True)
class VariantTable:
    """A table to make: its variants in order and its numbers of labels."""

    name: str
    title: str
    variants: tuple[FewShotVariant, ...]
    labels: tuple[int, ...]


def few_shot_study(
    each: TaskStudy,
    *,
    devices: Sequence[str] = (),
    where: str = "study",
    start_worker: StartWorker = DeviceWorker,
) -> FewShotOutcome:
    """Do what is left of a study on one task in the folder `settings.output_dir`, and return its tables.

    The variants that tables name, or all, are pre-trained as a comparison does it, up to the stage `pretrain`; the
    results of few-shot trials are in `few-shot/`.
    """
    from endtask.experiments.compare import compare
    from endtask.experiments.variants import listed_variants

    spec = each.study.few_shot or FewShotSpec()
    study = _pretraining_study(each.study, spec)
    compare(
        each.settings,
        study,
        presets=each.presets,
        until="pretrain",
        devices=devices,
        where=where,
        start_worker=start_worker,
    )
    folder = Run(each.settings).folder
    variants = listed_variants(each.settings, study, where, each.presets)
    runs = {variant.name: variant.trials(folder)[0].folder for variant in variants}
    return few_shot(runs, spec, folder / _STUDY_FOLDER, devices=devices, start_worker=start_worker)


def _pretraining_study(study: Study, spec: FewShotSpec) -> Study:
    """Return the study with only the variants that tables name, without baselines and fine-tuning."""
    if study.seeds is not None and len(study.seeds) > 1:
        raise InputError("a few-shot study pre-trains with one seed", key="seeds", hint="seeds: [0]")
    named = tuple(dict.fromkeys(row.variant for table in spec.tables.values() for row in table.rows))
    only = study.only or named or None
    return study.model_copy(update={"baselines": {}, "tables": {}, "only": only, "few_shot": None})


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
    the same call resumes after a stop, and may request more. `devices` are GPUs that variants are spread over; without
    them variants are trained one after the other in this process.
    """
    spec = spec or FewShotSpec()
    folders = _by_name(runs)
    if not folders:
        raise InputError("no run to train on top of", hint="endtask few-shot RUN")
    pretrained = open_all(folders)
    _check_unseen_labels(pretrained, spec)
    check_devices(devices, pretrained[0].settings.device)
    first = next(iter(folders.values()))
    folder = Path(output) if output is not None else first.with_name(f"{first.resolve().name}-few-shot")
    experiment = _Experiment(folder, spec, pretrained)
    tables = experiment.tables()
    make_own_folder(folder, RECORD)
    with run_lock(folder):
        record = _open_record(folder, pretrained, spec)
        remove_leftovers(folder)
        for scratch in folder.glob(f"{_SCRATCH}*"):  # of a killed process
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
    saw = next((run for run in pretrained if run.saw_labels), None)
    if saw is not None and spec.folds is not None:
        raise InputError(
            "--folds: pre-training used the labels of train, which folds would score",
            path=saw.folder,
            hint="leave out --folds, or set pretrain.objectives without the task",
        )


def _open_record(folder: Path, pretrained: Sequence[PretrainedRun], spec: FewShotSpec) -> Record:
    """Return the record with the spec requested now; raise if results were made with another one."""
    requested: dict[str, Any] = {
        "task": pretrained[0].task.fingerprint,
        "runs": {run.name: run.digest for run in pretrained},
        "spec": spec.model_dump(mode="json", exclude=_MAY_GROW),
    }
    if not (folder / RECORD).exists():
        return Record(folder, "few-shot", requested).save()
    before = read_record(folder, "few-shot").spec
    same_runs = {name: digest for name, digest in before["runs"].items() if name in requested["runs"]}
    check_spec(folder, {**before, "runs": {**requested["runs"], **same_runs}}, requested)
    return Record(folder, "few-shot", {**requested, "runs": {**before["runs"], **requested["runs"]}}).save()


def _labels_by_variant(tables: Sequence[VariantTable]) -> list[tuple[FewShotVariant, tuple[int, ...]]]:
    """Return every variant once, with the numbers of labels of all tables that show it."""
    found: dict[tuple[object, ...], tuple[FewShotVariant, set[int]]] = {}
    for table in tables:
        for variant in table.variants:
            key = (variant.folder, variant.spec.learning_rates_of(variant.row.train))
            found.setdefault(key, (variant, set()))[1].update(table.labels)
    return [(variant, tuple(sorted(labels))) for variant, labels in found.values()]


def train_variant(
    run: tuple[str, Path], spec: dict[str, Any], row: dict[str, Any], labels: tuple[int, ...], folder: Path
) -> None:
    """Train the missing trials of one variant; called in a worker."""
    checked = FewShotSpec.model_validate(spec)
    experiment = _Experiment(folder, checked, open_all(dict([run])))
    experiment.train([(experiment.variant(FewShotRow.model_validate(row), "few_shot"), labels)])


class _Experiment:
    """A few-shot experiment on runs of one task, in a folder."""

    def __init__(self, folder: Path, spec: FewShotSpec, pretrained: Sequence[PretrainedRun]) -> None:
        self._folder, self._spec, self._pretrained = folder, spec, pretrained
        self._rows = TaskRows.of(pretrained[0].task)
        self._draws: Sequence[Draw] = make_draws(self._rows, spec)

    def variant(self, row: FewShotRow, key: str) -> FewShotVariant:
        """Return the variant of a table's row; `key` names the table in messages."""
        return FewShotVariant.of(row, self._pretrained, self._spec, key)

    def tables(self) -> list[VariantTable]:
        """Return the tables of the spec, or one of every run, trained part, head and tasks."""
        specs = self._spec.tables
        if not specs:
            rows = [row for run in self._pretrained for row in self._spec.combinations(run.name)]
            specs = {"": FewShotTable(rows=tuple(rows))}
        return [self._table(name, table) for name, table in specs.items()]

    def _table(self, name: str, table: FewShotTable) -> VariantTable:
        key = f"few_shot.tables.{name}"
        variants = tuple(self.variant(row, key) for row in table.rows)
        names = [variant.name for variant in variants]
        repeated = next((each for each in names if names.count(each) > 1), None)
        if repeated is not None:
            raise InputError(f"two rows are called {repeated!r}", key=key, hint="give them a title")
        for variant in variants:
            variant.check()
        spec = self._spec if table.labels is None else self._spec.model_copy(update={"labels": table.labels})
        labels = fitting_labels(self._draws, spec)
        together = {each.pretrained.name: each.pretrained for each in variants if each.row.tasks == "all"}
        for run in together.values():  # of auxiliary tasks there must be as many rows
            labels = labels_for_all(labels, spec, auxiliary_rows(run.task, self._rows, self._draws, spec))
        return VariantTable(name, table.title, variants, labels)

    def train(
        self,
        wanted: Sequence[tuple[FewShotVariant, tuple[int, ...]]],
        devices: Sequence[str] = (),
        start_worker: StartWorker = DeviceWorker,
    ) -> None:
        """Train the missing trials of every variant, in this process or on devices."""
        left = []
        for variant, labels in wanted:
            (self._folder / variant.folder).mkdir(parents=True, exist_ok=True)
            if self._missing(variant, labels):
                left.append((variant, labels))
            else:
                say(f"{variant.name}: finished before, skipped")
        if devices:
            self._train_on_devices(left, devices, start_worker)
            return
        for run in self._pretrained:
            of_run = [each for each in left if each[0].pretrained is run]
            if of_run:
                self._train_run(run, of_run)

    def _missing(self, variant: FewShotVariant, labels: tuple[int, ...]) -> list[FewShotTrial]:
        return [
            trial for trial in variant.trials(labels) if not (self._folder / variant.folder / trial.file_name).exists()
        ]

    def _train_run(self, run: PretrainedRun, left: Sequence[tuple[FewShotVariant, tuple[int, ...]]]) -> None:
        everything = tuple(sorted({number for _, labels in left for number in labels}))
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_SCRATCH) as scratch:
            trainer = VariantTrainer(run, self._rows, self._draws, self._spec, everything, Path(scratch))
            for variant, labels in left:
                trials, missing = variant.trials(labels), self._missing(variant, labels)
                done = len(trials) - len(missing)
                with bar(variant.name, len(trials), done=done) as advance, explained_memory_trouble():
                    for result in trainer.train(variant, missing):
                        write_result(result, self._folder / variant.folder)
                        advance(1)

    def _train_on_devices(
        self,
        left: Sequence[tuple[FewShotVariant, tuple[int, ...]]],
        devices: Sequence[str],
        start_worker: StartWorker,
    ) -> None:
        spec = self._spec.model_dump(mode="json")
        jobs = []
        for variant, labels in left:
            run, row = (variant.pretrained.name, variant.pretrained.folder), variant.row.model_dump(mode="json")
            key, log = str(variant.folder), self._folder / variant.folder / LOG
            jobs.append(Job(key, train_variant, (run, spec, row, labels, self._folder), log, frozenset([key])))

        def after(job: Job, end: JobEnd) -> None:
            say(f"{job.key}: {end.status}")

        run_jobs(
            jobs,
            devices,
            before=lambda job, device: say(f"{job.key}: on GPU {device}"),
            after=after,
            start_worker=start_worker,
            may_fail=False,
        )

    def outcome(self, tables: Sequence[VariantTable]) -> FewShotOutcome:
        """Return the tables with their tests."""
        first = self._pretrained[0]
        measure = measure_of(first.task, first.settings.evaluate)
        scoring = FewShotScoring(self._spec, self._draws, self._units(first), measure, self._rows.groups)
        found = []
        for table in tables:
            results = {variant.name: self._results(variant, table.labels) for variant in table.variants}
            entries = score_table(scoring, results, table.labels)
            rows = tuple(
                FewShotTableRow(
                    each.name, each.pretrained.name, each.row.train, each.row.head, each.row.tasks, entries[each.name]
                )
                for each in table.variants
            )
            found.append(FewShotResultTable(table.name, table.title, table.labels, rows))
        scored = "all rows, by folds" if self._spec.folds else self._rows.scored_split
        notes = tuple(self._notes(tables))
        return FewShotOutcome(self._folder, first.task.name, measure.name, scored, tuple(found), notes, self._spec)

    def _results(self, variant: FewShotVariant, labels: tuple[int, ...]) -> list[FewShotResult]:
        return [read_result(self._folder / variant.folder, trial) for trial in variant.trials(labels)]

    def _units(self, run: PretrainedRun) -> PredictionUnits:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_SCRATCH) as scratch:
            texts = pack_rows(self._rows, run.tokenizer, run.settings.finetune.max_length, Path(scratch))
            return PredictionUnits(run.task, self._rows, texts)

    def _notes(self, tables: Sequence[VariantTable]) -> list[str]:
        notes, pretrained = [], self._pretrained
        saw = [run.name for run in pretrained if run.saw_labels]
        if saw:
            rows = len(pretrained[0].task.train)
            notes.append(f"Pre-training of {', '.join(saw)} used all {rows:,} labels of train: these are not few.")
        if any(variant.row.tasks == "all" for table in tables for variant in table.variants):
            names = ", ".join(dict.fromkeys(name for run in pretrained for name in run.task.auxiliary))
            notes.append(f"All tasks: trained in turn with the end task, on as many labels of each: {names}.")
        labels = tables[0].labels
        if self._spec.labels is None and not self._spec.tables and len(labels) < len(DEFAULT_LABELS):
            left = ", ".join(str(number) for number in DEFAULT_LABELS if number not in labels)
            notes.append(f"There are too few rows for {left} labels.")
        if self._spec.folds is None and self._draws:
            pool, train = len(self._draws[0].order), len(self._rows.splits["train"])
            if pool < train:
                notes.append(
                    f"{train - pool:,} of {train:,} train rows share a group with scored rows and are left out."
                )
        return notes
