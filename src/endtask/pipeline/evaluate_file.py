"""Score the model of a run on a file of labelled rows, with every fine-tuning seed, as the stage `evaluate` does."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import Settings, load_settings
from endtask.errors import InputError
from endtask.io.run_layout import BEST_WEIGHTS, SEED_RESULT, SETTINGS_FILE
from endtask.pipeline.inputs import find_bundled_inputs
from endtask.records import Example
from endtask.reporting import format as shown
from endtask.reporting.results import stored_task
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import ClassScores, class_scores
from endtask.task import Task, leaked_ids
from endtask.task.columns import find_columns, require_columns
from endtask.task.examples import read_examples
from endtask.task.split import group_numbers
from endtask.task.split_tables import read_tables

_SPLIT = "test"
"""The split that holds the rows of the file."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Scored:
    """A mean score over the seeds, and its 95% interval over rows and seeds."""

    rows: int
    score: float
    interval: Interval


@dataclass(frozen=True)
class FileEvaluation:
    """The scores of a run on a file."""

    file: str
    metric: str
    seeds: tuple[int, ...]
    all_rows: Scored
    leak_free: Scored | None
    leaked: tuple[str, ...]
    """The ids of the rows whose text is in train."""
    classes: tuple[ClassScores, ...]
    calibration_error: float | None
    metrics: Mapping[str, float]
    """The mean of every metric over the seeds."""
    by_seed: tuple[Mapping[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the scores as lines of text."""
        seeds = shown.plural(len(self.seeds), "seed")
        over = "rows and seeds" if len(self.seeds) > 1 else "rows"
        yield f"{shown.metric_name(self.metric)} {_shown(self.all_rows)} ({seeds}; 95% interval over {over})"
        leaked = f"{len(self.leaked):,} of {shown.plural(self.all_rows.rows, 'row')} have a text that is in train"
        yield f"leak-free {_shown(self.leak_free)}; {leaked}" if self.leak_free else leaked
        if self.calibration_error is not None:
            yield f"calibration error (ECE): {shown.score(self.calibration_error)} points"
        others = {name: value for name, value in self.metrics.items() if name != self.metric}
        if others:
            yield ", ".join(f"{shown.metric_name(name)} {_value(name, value)}" for name, value in others.items())
        yield from self._class_lines()

    def _class_lines(self) -> Iterator[str]:
        if not self.classes:
            return
        width = max(5, *(len(one.label) for one in self.classes))
        yield f"{'class':{width}} {'rows':>7} {'precision':>9} {'recall':>7} {'F1':>5}"
        for one in self.classes:
            rows = one.support // len(self.seeds)
            scores = f"{shown.score(one.precision):>9} {shown.score(one.recall):>7} {shown.score(one.f1):>5}"
            yield f"{one.label:{width}} {rows:>7,} {scores}"


def evaluate_file(run: str | Path, file: str | Path) -> FileEvaluation:
    """Score every fine-tuning seed of a finished run on the labelled rows of a file."""
    folder, file = Path(run), Path(file)
    record = RunFolder(folder)
    stored = stored_task(record)
    if stored is None or "finetune" not in record.manifests:
        raise InputError("no trained model here", path=folder, hint=f"finish the run first: endtask run {folder}")
    requested = load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)})
    settings = find_bundled_inputs(folder).local_settings(requested)
    task = task_with(stored, _examples(file, stored, settings))
    return _evaluate(folder, str(file), task, settings)


def _examples(file: Path, task: Task, settings: Settings) -> list[Example]:
    """Read the rows of a file as the run read its task."""
    if not file.is_file():
        raise InputError("no such file", path=file)
    table = read_tables(str(file))["train"]
    if not table.rows:
        raise InputError("the file has no rows", path=file)
    columns = find_columns(table.columns, settings.task.columns, table.path)
    require_columns(columns, task.type, table.columns, table.path)
    return list(read_examples(table, _SPLIT, columns, task.type, label_delimiter=settings.task.label_delimiter))


def task_with(task: Task, rows: list[Example]) -> Task:
    """Return a task with these rows in place of its test split."""
    splits = {"train": task.train, "dev": task.dev, _SPLIT: rows}
    found = Task.from_examples(task.name, splits, task_type=task.type, dev_fraction=0, test_fraction=0)
    return replace(found, auxiliary=task.auxiliary)


def _evaluate(folder: Path, file: str, task: Task, settings: Settings) -> FileEvaluation:
    from endtask.evaluation.calibration import calibration_error
    from endtask.evaluation.evaluate import prediction_lines, score_seeds
    from endtask.evaluation.task_metrics import measure_of

    measure = measure_of(task, settings.evaluate)
    found = _answers(folder, task, settings)
    results = score_seeds(task, _SPLIT, found, measure)
    predicted = np.stack([one.answers for one in found.values()])
    leaked = leaked_ids(task, _SPLIT)
    clean = np.asarray([row.id not in leaked for row in task.test], dtype=bool)
    lines = [json.loads(line) for line in prediction_lines(task, _SPLIT, found).split("\n") if line]
    errors = [calibration_error(task, _SPLIT, one.outputs) for one in found.values()]
    means = {name: [row["scores"][name] for row in results["seeds"]] for name in results["seeds"][0]["scores"]}
    return FileEvaluation(
        file,
        measure.name,
        tuple(found),
        _scored(predicted, task, measure, np.ones(len(clean), dtype=bool)),
        _scored(predicted, task, measure, clean) if clean.any() else None,
        tuple(row.id for row in task.test if row.id in leaked),
        tuple(class_scores(lines, task.task_type.form, task.all_labels)),
        statistics.fmean(error for error in errors if error is not None) if None not in errors else None,
        {name: statistics.fmean(values) for name, values in means.items()},
        tuple(results["seeds"]),
    )


def _answers(folder: Path, task: Task, settings: Settings) -> dict[int, Any]:
    """Return the answers of each seed's weights, by the same code as the stage `evaluate`."""
    from endtask.encoders.weights import load_weights
    from endtask.evaluation.evaluate import answer, threshold_of
    from endtask.tokenization.packing import pack_split
    from endtask.tokenization.tokenizer import load_tokenizer
    from endtask.training.device import choose_device_context, move
    from endtask.training.initial_network import network_for

    packed = folder / "pack"
    context = choose_device_context(settings)
    network = move(network_for(task, packed, settings), settings, context)
    with tempfile.TemporaryDirectory() as scratch:
        texts = Path(scratch) / _SPLIT
        pack_split(task.test, load_tokenizer(packed / "tokenizer"), settings, texts)
        found = {}
        for seed in settings.model_seeds:
            weights = folder / "finetune" / f"seed-{seed}" / BEST_WEIGHTS
            load_weights(weights, network)
            threshold = threshold_of(weights.with_name(SEED_RESULT), settings.evaluate)
            found[seed] = answer(network, task, texts, settings.evaluate, context, threshold=threshold)
    return found


def _scored(predicted: NDArray[Any], task: Task, measure: Any, rows: NDArray[np.bool_]) -> Scored:
    """Return score and interval; rows of one group, such as those about one sentence, are drawn together."""
    from endtask.evaluation.run_baselines import SAMPLES
    from endtask.evaluation.significance import bootstrap_interval
    from endtask.evaluation.task_metrics import score_runs
    from endtask.task.targets import targets

    truth = targets(task, _SPLIT)[rows]
    groups, chosen = group_numbers(task.test)[rows], predicted[:, rows]
    interval = bootstrap_interval(chosen, None, truth, measure, groups=groups, samples=SAMPLES)
    return Scored(int(rows.sum()), float(score_runs(chosen, truth, measure).mean()), interval)


def _shown(scored: Scored) -> str:
    low, high = (shown.score(value) for value in scored.interval)
    return f"{shown.score(scored.score)} [{low}, {high}] on {shown.plural(scored.rows, 'row')}"


def _value(metric: str, value: float) -> str:
    return shown.metric_with_spread(metric, value, 0.0, 1)
