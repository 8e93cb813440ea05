"""Two finished runs on the same rows: scores with intervals, and the paired test of their difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from endtask.config import load_settings
from endtask.errors import InputError
from endtask.evaluation.task_metrics import measure_of
from endtask.experiments.statistics import PairedTests, Score, holm_corrected
from endtask.experiments.trial_results import Cost, EvaluationSet, TrialResult, read_run
from endtask.io.nested import changes_in_words, flatten
from endtask.io.run_layout import SETTINGS_FILE
from endtask.reporting.results import stored_task
from endtask.reporting.run_folder import RunFolder

_PATHS = frozenset(["output_dir"])
Text = tuple[str, str, str | None]


@dataclass(frozen=True)
class TwoRuns:
    """The scores of two runs on the same rows; those of the second have its difference from the first.

    `leak_free` are the same scores on rows whose text is not in train, None without such a distinction; `changes` are
    the settings in which the runs differ.
    """

    metric: str
    split: str
    rows: int
    groups: int
    scores: tuple[Score, Score]
    leak_free: tuple[Score, Score] | None
    costs: tuple[Cost, Cost]
    changes: tuple[str, ...]


def compare_two(first: Path, second: Path) -> TwoRuns:
    """Return the comparison of two evaluated runs; raises `InputError` if they were not scored on the same rows."""
    rows = _shared_rows(first, second)
    trials = [_result(folder, rows) for folder in (first, second)]
    tests = PairedTests(rows, (trials[0],))
    own, own_leak_free = tests.scores(tests.against)
    other, other_leak_free = tests.scores((trials[1],))
    leak_free = None
    if own_leak_free is not None and other_leak_free is not None:
        leak_free = (own_leak_free, _alone(other_leak_free))
    return TwoRuns(
        metric=rows.metric,
        split=rows.split,
        rows=len(rows.ids),
        groups=rows.group_count,
        scores=(own, _alone(other)),
        leak_free=leak_free,
        costs=(trials[0].cost, trials[1].cost),
        changes=_changes(first, second),
    )


def _shared_rows(first: Path, second: Path) -> EvaluationSet:
    """Return the rows on which both runs were scored."""
    (own, own_texts), (other, other_texts) = (_rows(folder) for folder in (first, second))
    if (own.metric, own.split) != (other.metric, other.split):
        message = f"scored by {other.metric} on {other.split}, the other run by {own.metric} on {own.split}"
        raise InputError(message, path=second, hint="choose two runs of one task")
    if own_texts != other_texts or own.labels != other.labels or not np.array_equal(own.truth, other.truth):
        message = f"not scored on the same rows as {first.name}: {len(other.ids):,} and {len(own.ids):,} rows"
        raise InputError(message, path=second, hint="a paired test needs the same rows with the same labels")
    return own


def _rows(folder: Path) -> tuple[EvaluationSet, list[Text]]:
    """Return the rows that a run was scored on, and their ids and texts."""
    run = RunFolder(folder)
    task = stored_task(run)
    if task is None or run.results is None:
        raise InputError("not evaluated yet", path=folder, hint=f"finish it first: endtask run {folder}")
    measure = measure_of(task, load_settings(folder / SETTINGS_FILE).evaluate)
    rows = EvaluationSet.of(task, measure, "test" if run.results["split"] == "test" else "dev")
    return rows, [(row.id, row.text, row.text_pair) for row in task.splits[rows.split]]


def _result(folder: Path, rows: EvaluationSet) -> TrialResult:
    seed = load_settings(folder / SETTINGS_FILE).seed
    result = read_run(folder, seed, rows, "test")  # the stage evaluate has the split that was scored
    assert result is not None
    return result


def _alone(score: Score) -> Score:
    """Return a score whose difference is the only test, so that Holm's correction changes nothing."""
    return replace(score, difference=holm_corrected([score.difference])[0])


def _changes(first: Path, second: Path) -> tuple[str, ...]:
    """Return the settings that differ, as `key (first -> second)`."""
    own, other = (flatten(RunFolder(folder).settings) for folder in (first, second))
    keys = sorted((own.keys() | other.keys()) - _PATHS)
    shown = [{key: tree.get(key) for key in keys} for tree in (own, other)]
    return tuple(changes_in_words(*shown))
