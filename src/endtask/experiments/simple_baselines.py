"""The baselines that need no training run, computed once and stored in the experiment's folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from endtask.evaluation.baselines import VERSION, Baseline, Split, majority_baseline, tfidf_baseline
from endtask.evaluation.task_metrics import Measure
from endtask.io.atomic import write_text
from endtask.io.digests import fingerprint
from endtask.progress import say
from endtask.task import Task
from endtask.task.targets import as_lists, from_lists

FOLDER = "baselines"
_PREDICTIONS = ("predicted", "dev_predicted")


class _Maker(Protocol):
    def __call__(self, task: Task, metric: str | Measure, *, by: Split) -> Baseline: ...


_MAKERS: dict[str, _Maker] = {"majority": majority_baseline, "tfidf": tfidf_baseline}


def compute_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline:
    """Return the baseline stored in `folder/baselines`, or compute and store it."""
    stored = stored_baseline(name, task, metric, folder, by)
    if stored is not None:
        return stored
    say(f"baseline {name}")
    found = _MAKERS[name](task, metric, by=by)
    lists = {key: as_lists(getattr(found, key), task.type) for key in _PREDICTIONS}
    path = _path(name, folder, by)
    path.parent.mkdir(exist_ok=True)
    tree = {"digest": _digest(task, metric, by), **asdict(found), **lists}
    write_text(path, json.dumps(tree, ensure_ascii=False))
    return found


def stored_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline | None:
    """Return the baseline stored in `folder/baselines`; None if it is not there or was made from other data."""
    path = _path(name, folder, by)
    tree = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if tree.pop("digest", None) != _digest(task, metric, by):
        return None
    return Baseline(**{**tree, **{key: from_lists(tree[key], task.type) for key in _PREDICTIONS}})


def _path(name: str, folder: Path, by: Split) -> Path:
    return folder / FOLDER / f"{name}-{by}.json"


def _digest(task: Task, metric: str | Measure, by: Split) -> str:
    measure = metric if isinstance(metric, str) else (metric.name, metric.positive)
    return fingerprint(VERSION, task.fingerprint, measure, by)
