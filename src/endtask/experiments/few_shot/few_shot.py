"""Train on few labels on top of pre-trained runs, many times; resumable trial by trial."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.errors import InputError, did_you_mean
from endtask.evaluation.task_metrics import measure_of
from endtask.experiments.few_shot.auxiliary_tasks import auxiliary_rows, labels_for_all
from endtask.experiments.few_shot.few_shot_report import write_few_shot_page
from endtask.experiments.few_shot.few_shot_results import FewShotResult, read_result, write_result
from endtask.experiments.few_shot.few_shot_scores import (
    FewShotOutcome,
    FewShotResultTable,
    FewShotScoring,
    FewShotTableRow,
    score_table,
)
from endtask.experiments.few_shot.few_shot_spec import DEFAULT_LABELS, FewShotRow, FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.few_shot_variants import FewShotVariant, VariantTrainer
from endtask.experiments.few_shot.label_draws import Draw, TaskRows, fitting_labels, make_draws
from endtask.experiments.few_shot.prediction_units import PredictionUnits, pack_rows
from endtask.experiments.few_shot.pretrained_runs import PretrainedRun, open_all
from endtask.experiments.record import Record, check_spec, read_record, record_file
from endtask.experiments.scheduler import LOG, DeviceWorker, Job, JobEnd, StartWorker, check_devices, run_jobs
from endtask.io.atomic import remove_leftovers
from endtask.io.processes import make_own_folder, run_lock
from endtask.progress import bar, say
from endtask.reporting.format import plural
from endtask.training.out_of_memory import explained_memory_trouble

RECORD = record_file("few-shot")
_SCRATCH = ".texts-"
_MAY_GROW = {"labels", "samples", "seeds", "train", "head", "tasks", "learning_rates", "tables"}
_ROW_VALUES = ("learning_rates", "epochs", "patience")


@dataclass(frozen=True)
class VariantTable:
    """A table to make: its variants in order and its numbers of labels."""

    name: str
    title: str
    variants: tuple[FewShotVariant, ...]
    labels: tuple[int, ...]


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
    rows = TaskRows.of(pretrained[0].task)
    _check_unseen_labels(pretrained, spec)
    check_devices(devices, pretrained[0].settings.device)
    draws = make_draws(rows, spec)
    tables = _tables(pretrained, spec, rows, draws)
    first = next(iter(folders.values()))
    folder = Path(output) if output is not None else first.with_name(f"{first.resolve().name}-few-shot")
    make_own_folder(folder, RECORD)
    with run_lock(folder):
        record = _open_record(folder, pretrained, spec)
        remove_leftovers(folder)
        for scratch in folder.glob(f"{_SCRATCH}*"):  # of a killed process
            shutil.rmtree(scratch)
        experiment = _Experiment(folder, rows, draws, spec, tables)
        experiment.train(pretrained, devices, start_worker)
        outcome = experiment.outcome(pretrained)
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


def _tables(
    pretrained: Sequence[PretrainedRun], spec: FewShotSpec, rows: TaskRows, draws: Sequence[Draw]
) -> list[VariantTable]:
    """Return the tables of the spec, or one of every run, trained part, head and tasks."""
    by_name = {run.name: run for run in pretrained}
    if not spec.tables:
        variants = tuple(FewShotVariant(run, *each, spec) for run in pretrained for each in spec.combinations())
        return [_checked_table("", "", variants, spec, rows, draws)]
    tables = []
    for name, table in spec.tables.items():
        own = spec if table.labels is None else spec.model_copy(update={"labels": table.labels})
        chosen = tuple(_variant_of(row, by_name, spec, f"few_shot.tables.{name}") for row in table.rows)
        tables.append(_checked_table(name, table.title, chosen, own, rows, draws))
    return tables


def _checked_table(
    name: str,
    title: str,
    variants: tuple[FewShotVariant, ...],
    spec: FewShotSpec,
    rows: TaskRows,
    draws: Sequence[Draw],
) -> VariantTable:
    names = [variant.name for variant in variants]
    repeated = next((each for each in names if names.count(each) > 1), None)
    if repeated is not None:
        message = f"two rows are called {repeated!r}"
        raise InputError(message, key=f"few_shot.tables.{name}", hint="give them a title")
    for variant in variants:
        variant.check()
    return VariantTable(name, title, variants, _labels(variants, spec, rows, draws))


def _variant_of(row: FewShotRow, runs: Mapping[str, PretrainedRun], spec: FewShotSpec, key: str) -> FewShotVariant:
    if row.variant not in runs:
        raise InputError(f"no variant is named {row.variant!r}", key=key, hint=did_you_mean(row.variant, runs))
    values = {name: getattr(row, name) for name in _ROW_VALUES if getattr(row, name) is not None}
    changed = {name: value for name, value in values.items() if value != getattr(spec, name)}
    # Learning rates are part of a trial's file name, the other values are part of the folder's.
    folder = "".join(f"-{name}-{value}" for name, value in changed.items() if name != "learning_rates")
    own = spec.model_copy(update=values)
    return FewShotVariant(runs[row.variant], row.train, row.head, row.tasks, own, row.title, folder)


def _labels(
    variants: Sequence[FewShotVariant], spec: FewShotSpec, rows: TaskRows, draws: Sequence[Draw]
) -> tuple[int, ...]:
    """Return the numbers of labels for which there are rows, also of auxiliary tasks that are trained too."""
    labels = fitting_labels(draws, spec)
    for run in {variant.pretrained.name: variant.pretrained for variant in variants if variant.tasks == "all"}.values():
        labels = labels_for_all(labels, spec, auxiliary_rows(run.task, rows, draws, spec))
    return labels


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
    if not isinstance(before.get("runs"), dict):
        raise InputError(
            "not the record of a few-shot experiment", path=folder / RECORD, hint="choose another --output"
        )
    same_runs = {name: digest for name, digest in before["runs"].items() if name in requested["runs"]}
    check_spec(folder, {**before, "runs": {**requested["runs"], **same_runs}}, requested)
    return Record(folder, "few-shot", {**requested, "runs": {**before["runs"], **requested["runs"]}}).save()


def train_variant(
    run: tuple[str, Path], spec: dict[str, Any], row: dict[str, Any], labels: tuple[int, ...], folder: Path
) -> None:
    """Train the missing trials of one variant; called in a worker."""
    checked = FewShotSpec.model_validate(spec)
    (pretrained,) = open_all(dict([run]))
    variant = _variant_of(FewShotRow.model_validate(row), {pretrained.name: pretrained}, checked, "few_shot")
    rows = TaskRows.of(pretrained.task)
    experiment = _Experiment(folder, rows, make_draws(rows, checked), checked, [])
    experiment.train_variants(pretrained, [(variant, labels)])


class _Experiment:
    def __init__(
        self,
        folder: Path,
        rows: TaskRows,
        draws: Sequence[Draw],
        spec: FewShotSpec,
        tables: Sequence[VariantTable],
    ) -> None:
        self._folder, self._rows, self._draws, self._spec, self._tables = folder, rows, draws, spec, tables

    def train(self, pretrained: Sequence[PretrainedRun], devices: Sequence[str], start_worker: StartWorker) -> None:
        """Train what is left of every variant, once for all tables."""
        for table in self._tables:
            for variant in table.variants:
                (self._folder / variant.folder).mkdir(parents=True, exist_ok=True)
        if devices:
            self._train_on_devices(devices, start_worker)
            return
        for run in pretrained:
            self.train_variants(run, [each for each in self._wanted() if each[0].pretrained is run])

    def _wanted(self) -> list[tuple[FewShotVariant, tuple[int, ...]]]:
        """Return every variant once, with the numbers of labels of all tables that show it."""
        found: dict[tuple[object, ...], tuple[FewShotVariant, set[int]]] = {}
        for table in self._tables:
            for variant in table.variants:
                key = (variant.folder, variant.spec.learning_rates_of(variant.train))
                found.setdefault(key, (variant, set()))[1].update(table.labels)
        return [(variant, tuple(sorted(labels))) for variant, labels in found.values()]

    def _missing(self, variant: FewShotVariant, labels: tuple[int, ...]) -> list[FewShotTrial]:
        trials = variant.spec.trials(labels, variant.train)
        return [trial for trial in trials if not (self._folder / variant.folder / trial.file_name).exists()]

    def train_variants(self, run: PretrainedRun, wanted: Sequence[tuple[FewShotVariant, tuple[int, ...]]]) -> None:
        """Train the missing trials of variants of one pre-trained run in this process."""
        left = []
        for variant, labels in wanted:
            if self._missing(variant, labels):
                left.append((variant, labels))
            else:
                say(f"{variant.name}: finished before, skipped")
        if not left:
            return
        everything = tuple(sorted({number for _, labels in left for number in labels}))
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_SCRATCH) as scratch:
            trainer = VariantTrainer(run, self._rows, self._draws, self._spec, everything, Path(scratch))
            for variant, labels in left:
                self._train_variant(trainer, variant, labels)

    def _train_variant(self, trainer: VariantTrainer, variant: FewShotVariant, labels: tuple[int, ...]) -> None:
        trials, missing = list(variant.spec.trials(labels, variant.train)), self._missing(variant, labels)
        done = len(trials) - len(missing)
        with bar(variant.name, len(trials), done=done) as advance, explained_memory_trouble():
            for results in trainer.train(variant, missing):
                for result in results:
                    write_result(result, self._folder / variant.folder)
                advance(len(results))

    def _train_on_devices(self, devices: Sequence[str], start_worker: StartWorker) -> None:
        spec = self._spec.model_dump(mode="json")
        jobs = []
        for variant, labels in self._wanted():
            if self._missing(variant, labels):
                run = (variant.pretrained.name, variant.pretrained.folder)
                values = {name: getattr(variant.spec, name) for name in _ROW_VALUES}
                row = {"variant": variant.pretrained.name, "train": variant.train, "head": variant.head}
                row |= {"tasks": variant.tasks, "title": variant.name, **values}
                key, log = str(variant.folder), self._folder / variant.folder / LOG
                jobs.append(Job(key, train_variant, (run, spec, row, labels, self._folder), log, frozenset([key])))
        stopped: list[str] = []

        def after(job: Job, end: JobEnd) -> None:
            say(f"{job.key}: {end.status}")
            if end.status != "finished":
                stopped.append(f"{job.key}: {end.message}")

        run_jobs(
            jobs,
            devices,
            before=lambda job, device: say(f"{job.key}: on GPU {device}"),
            after=after,
            start_worker=start_worker,
        )
        if stopped:
            hint = f"{plural(len(stopped), 'variant')} stopped; the same command tries again"
            raise InputError(stopped[0], path=self._folder, hint=hint)

    def _results(self, variant: FewShotVariant, labels: tuple[int, ...]) -> list[FewShotResult]:
        results = []
        for trial in variant.spec.trials(labels, variant.train):
            result = read_result(self._folder / variant.folder, trial)
            assert result is not None  # every trial is trained by now
            results.append(result)
        return results

    def outcome(self, pretrained: Sequence[PretrainedRun]) -> FewShotOutcome:
        """Return the tables with their tests."""
        first = pretrained[0]
        measure = measure_of(first.task, first.settings.evaluate)
        scoring = FewShotScoring(self._spec, self._draws, self._units(first), measure, self._rows.groups)
        tables = []
        for table in self._tables:
            results = {variant.name: self._results(variant, table.labels) for variant in table.variants}
            entries = score_table(scoring, results, table.labels)
            rows = tuple(
                FewShotTableRow(each.name, each.pretrained.name, each.train, each.head, each.tasks, entries[each.name])
                for each in table.variants
            )
            tables.append(FewShotResultTable(table.name, table.title, table.labels, rows))
        scored = "all rows, by folds" if self._spec.folds else self._rows.scored_split
        notes = tuple(self._notes(pretrained))
        return FewShotOutcome(self._folder, first.task.name, measure.name, scored, tuple(tables), notes, self._spec)

    def _units(self, run: PretrainedRun) -> PredictionUnits:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_SCRATCH) as scratch:
            texts = pack_rows(self._rows, run.tokenizer, run.settings.finetune.max_length, Path(scratch))
            return PredictionUnits(run.task, self._rows, texts)

    def _notes(self, pretrained: Sequence[PretrainedRun]) -> list[str]:
        notes = []
        saw = [run.name for run in pretrained if run.saw_labels]
        if saw:
            rows = len(pretrained[0].task.train)
            notes.append(f"Pre-training of {', '.join(saw)} used all {rows:,} labels of train: these are not few.")
        if any(variant.tasks == "all" for variant, _ in self._wanted()):
            names = ", ".join(dict.fromkeys(name for run in pretrained for name in run.task.auxiliary))
            notes.append(f"All tasks: trained in turn with the end task, on as many labels of each: {names}.")
        labels = self._tables[0].labels
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
