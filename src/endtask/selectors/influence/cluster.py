"""Influence scoring on a cluster: what the actors read, and their jobs."""

from __future__ import annotations

from pathlib import Path

from endtask.config import Settings, load_settings
from endtask.executors.base import Executor, Job
from endtask.io.atomic import atomic_file, write_json
from endtask.io.run_layout import INFLUENCE_FOLDER
from endtask.progress import bar
from endtask.selectors.base import RunContext
from endtask.selectors.influence.scorer import Shards
from endtask.task import Task
from endtask.task.task import read_task, task_files

_ACTOR = "endtask.selectors.influence.scoring_actor"
_INPUTS = "inputs"
"""Folder of what the actors read besides the fitted models: the task and the settings of the run."""
_TASK, _SETTINGS = "task", "settings.json"


def score_shards(context: RunContext, shards: Shards, executor: Executor, *, memory: int, compiled: bool) -> None:
    """Score the shards that have no file, on the machines of a cluster."""
    assert context.folder is not None
    assert context.task is not None
    assert context.run is not None
    _write_inputs(context.task, context.run, context.folder / INFLUENCE_FOLDER / _INPUTS)
    common = {
        "folder": str(context.folder.absolute()),
        "retrieved": str(context.retrieved.absolute()),
        "candidates": len(shards.units.order),
        "shard_size": shards.size,
        "memory": memory,
        "compiled": compiled,
    }
    jobs: list[Job] = [{**common, "shard": number} for number in shards.missing()]
    done = shards.units.count - sum(shards.units_in(job["shard"]) for job in jobs)
    with bar("influence", shards.units.count, done=done) as advance:
        executor.run(_ACTOR, jobs, lambda units: advance(units), model=True)


def _write_inputs(task: Task, run: Settings, folder: Path) -> None:
    for name, content in task_files(task).items():
        path = folder / _TASK / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as aside:
            aside.write_bytes(content)
    write_json(folder / _SETTINGS, run.model_dump(mode="json"))


def context_of(folder: Path, retrieved: Path) -> RunContext:
    """Return the context of a run in an actor, given the stage's folder and that of retrieval."""
    inputs = folder / INFLUENCE_FOLDER / _INPUTS
    run = load_settings(inputs / _SETTINGS)
    return RunContext(run.select, retrieved, folder=folder, task=read_task(inputs / _TASK), run=run)
