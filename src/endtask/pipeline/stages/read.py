"""Read the task: its rows, and an audit of its data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from endtask.config import Settings
from endtask.io.atomic import write_json, write_text
from endtask.io.run_layout import AUDIT, TASKS
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import Counts, Finished, RunData, Stage
from endtask.progress import say, warn
from endtask.records import Example
from endtask.task import Task, audit
from endtask.task.leaks import leaks_between

_COLUMNS = ("id", "text", "text_pair", "label", "tokens", "part")


class Read(Stage):
    """Writes the rows and the audit of the task and of auxiliary tasks."""

    name = "read"

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the sections of the tasks."""
        return ("task", "seed", "tasks")

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the task's files."""
        return ("task",)

    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Write the rows of each split, the audit and the answers of the baselines."""
        from endtask.evaluation.baselines import scored_split
        from endtask.evaluation.run_baselines import write_baselines

        folder = stage.start()
        auxiliary, leaks = data.task.auxiliary, list(leaks_between(data.task))
        counts: Counts = _write_task(data.task, folder, leaks=leaks)
        write_baselines(data.task, scored_split(data.task), folder)
        if auxiliary:
            counts[TASKS] = {
                name: _write_task(task, folder / TASKS / name, f"{name}: ") for name, task in auxiliary.items()
            }
        for leak in leaks:
            warn(leak)
        return counts


def _write_task(task: Task, folder: Path, prefix: str = "", leaks: Sequence[str] = ()) -> Counts:
    """Write the audit and the rows of a task. Return the number of rows of each split."""
    folder.mkdir(parents=True, exist_ok=True)
    findings = audit(task)
    leaks_between_tasks = {"leaks_between_tasks": list(leaks)} if task.auxiliary else {}
    write_json(folder / AUDIT, {**findings.to_dict(), **leaks_between_tasks})
    for split, examples in task.splits.items():
        write_text(folder / f"{split}.jsonl", "".join(f"{_as_json(example)}\n" for example in examples))
    for note in task.notes:
        say(f"note: {prefix}{note}")
    for problem in findings.problems:
        if problem.level != "note":
            warn(f"{prefix}{problem.message}", level=problem.level)
    return {split: len(examples) for split, examples in task.splits.items()}


def _as_json(example: Example) -> str:
    row = {name: value for name in _COLUMNS if (value := getattr(example, name)) is not None}
    return json.dumps(row, ensure_ascii=False)
