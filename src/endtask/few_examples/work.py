"""Few-example learning from the first row to the last page, resumable run by run."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.evaluation.task_metrics import measure_of
from endtask.few_examples.arm import Arm, ArmWork
from endtask.few_examples.beside import fitting_beside, further_rows
from endtask.few_examples.draws import Draw, Rows, fitting_labels, make_draws
from endtask.few_examples.outcome import Judge, Outcome, Row, judged
from endtask.few_examples.page import write_page
from endtask.few_examples.plan import USUAL_LABELS, Plan
from endtask.few_examples.result import Result, read_result, write_result
from endtask.few_examples.stage_one import StageOne, open_all
from endtask.few_examples.units import Units
from endtask.io.atomic import remove_leftovers, write_json
from endtask.io.lock import make_own_folder, run_lock
from endtask.io.nested import changes_in_words
from endtask.progress import bar, say
from endtask.training.out_of_memory import explained_memory_trouble

RECORD = "few-examples.json"
_TEXTS = ".texts-"
_MAY_GROW = {"labels", "samples", "seeds", "train", "head", "tasks", "learning_rates"}


def few_examples(runs: Sequence[str | Path], plan: Plan | None = None, output: str | Path | None = None) -> Outcome:
    """Learn from few labels on top of each run's pre-training, and test every other line against the first.

    Finished runs in `output` are kept: the same call goes on after a stop, and may ask for more.
    """
    plan, folders = plan or Plan(), [Path(run) for run in runs]
    if not folders:
        raise InputError("no run to learn on top of", hint="endtask few-examples RUN")
    stages = open_all(folders)
    arms = [Arm(one, *line) for one in stages for line in plan.lines()]
    for arm in arms:
        arm.check()
    rows = Rows.of(stages[0].task)
    _refuse_seen_labels(stages, plan)
    draws = make_draws(rows, plan)
    labels = fitting_labels(draws, plan)
    for one in stages if "all" in plan.tasks else ():
        labels = fitting_beside(labels, plan, further_rows(one.task, rows, draws, plan))
    folder = Path(output) if output is not None else folders[0].with_name(f"{folders[0].resolve().name}-few-examples")
    make_own_folder(folder, RECORD)
    with run_lock(folder):
        _open_record(folder, stages, plan)
        remove_leftovers(folder)
        for scratch in folder.glob(f"{_TEXTS}*"):  # of a process that was killed
            shutil.rmtree(scratch)
        return _Work(folder, rows, draws, labels, plan).do(stages, arms)


def _refuse_seen_labels(stages: Sequence[StageOne], plan: Plan) -> None:
    saw = next((one for one in stages if one.saw_labels), None)
    if saw is not None and plan.folds is not None:
        raise InputError(
            "--folds: pre-training learned from the labels of train, which folds would score",
            path=saw.folder,
            hint="leave out --folds, or set pretrain.objectives without the task",
        )


def _open_record(folder: Path, stages: Sequence[StageOne], plan: Plan) -> None:
    """Refuse results that were made otherwise than is asked now; runs, labels, seeds and rates may be added."""
    path = folder / RECORD
    asked: dict[str, Any] = {
        "task": stages[0].task.fingerprint,
        "runs": {one.name: one.mark for one in stages},
        "plan": plan.model_dump(mode="json", exclude=_MAY_GROW),
    }
    try:
        before = json.loads(path.read_text(encoding="utf-8"))["asked"] if path.exists() else asked
        kept = {name: mark for name, mark in before["runs"].items() if name in asked["runs"]}
        changes = changes_in_words({**before, "runs": {**asked["runs"], **kept}}, asked)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("not the record of few-example learning", path=path, hint="choose another --output") from None
    if changes:
        hint = "choose another --output; nothing was touched"
        raise InputError(f"these results were made otherwise: {', '.join(changes[:4])}", path=folder, hint=hint)
    write_json(path, {"asked": {**asked, "runs": {**before["runs"], **asked["runs"]}}, "outcome": None})


class _Work:
    def __init__(self, folder: Path, rows: Rows, draws: Sequence[Draw], labels: tuple[int, ...], plan: Plan) -> None:
        self._folder, self._rows, self._draws, self._labels, self._plan = folder, rows, draws, labels, plan

    def do(self, stages: Sequence[StageOne], arms: Sequence[Arm]) -> Outcome:
        """Train what is left, then put the table together."""
        results: dict[str, list[Result]] = {}
        units: Units | None = None
        for one in stages:
            with tempfile.TemporaryDirectory(dir=self._folder, prefix=_TEXTS) as scratch:
                work = ArmWork(one, self._rows, self._draws, self._plan, self._labels, Path(scratch))
                units = units or work.units
                for arm in (arm for arm in arms if arm.stage_one is one):
                    results[arm.name] = self._arm(arm, work)
        assert units is not None
        outcome = self._outcome(stages, arms, results, units)
        tree = json.loads((self._folder / RECORD).read_text(encoding="utf-8"))
        write_json(self._folder / RECORD, {**tree, "outcome": outcome.statistics()})
        write_page(outcome)
        return outcome

    def _arm(self, arm: Arm, work: ArmWork) -> list[Result]:
        folder = self._folder / arm.folder
        folder.mkdir(parents=True, exist_ok=True)
        keys = list(self._plan.keys(self._labels, arm.train))
        found = {key: result for key in keys if (result := read_result(folder, key)) is not None}
        left = [key for key in keys if key not in found]
        if left:
            with bar(arm.name, len(keys), done=len(found)) as advance, explained_memory_trouble():
                for results in work.train(arm, left):
                    for result in results:
                        write_result(result, folder)
                        found[result.key] = result
                    advance(len(results))
        else:
            say(f"{arm.name}: finished before, skipped")
        return [found[key] for key in keys]

    def _outcome(
        self, stages: Sequence[StageOne], arms: Sequence[Arm], results: dict[str, list[Result]], units: Units
    ) -> Outcome:
        task, settings = stages[0].task, stages[0].settings
        measure = measure_of(task, settings.evaluate)
        judge = Judge(self._plan, self._draws, units, measure, self._rows.groups)
        cells = judged(judge, results, self._labels)
        rows = [Row(arm.name, arm.stage_one.name, arm.train, arm.head, arm.tasks, cells[arm.name]) for arm in arms]
        scored = "all rows, by folds" if self._plan.folds else self._rows.scored_split
        notes = tuple(self._notes(stages))
        return Outcome(self._folder, task.name, measure.name, self._labels, scored, tuple(rows), notes, self._plan)

    def _notes(self, stages: Sequence[StageOne]) -> list[str]:
        notes = []
        saw = [one.name for one in stages if one.saw_labels]
        if saw:
            rows = len(stages[0].task.train)
            notes.append(
                f"Pre-training of {', '.join(saw)} learned from all {rows:,} labels of train: these are not few."
            )
        if "all" in self._plan.tasks:
            names = ", ".join(dict.fromkeys(name for one in stages for name in one.task.auxiliary))
            notes.append(f"All tasks: in turn with the end task, from as many labels of each: {names}.")
        if self._plan.labels is None and len(self._labels) < len(USUAL_LABELS):
            left = ", ".join(str(number) for number in USUAL_LABELS if number not in self._labels)
            notes.append(f"There are too few rows for {left} labels.")
        if self._plan.folds is None and self._draws:
            pool, train = len(self._draws[0].order), len(self._rows.splits["train"])
            if pool < train:
                notes.append(
                    f"{train - pool:,} of {train:,} train rows share a group with scored rows and are left out."
                )
        return notes
