"""The baselines that need no run, worked out once and kept in the comparison's folder."""

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
_ANSWERS = ("predicted", "dev_predicted")


class _Maker(Protocol):
    def __call__(self, task: Task, metric: str | Measure, *, by: Split) -> Baseline: ...


_MAKERS: dict[str, _Maker] = {"majority": majority_baseline, "tfidf": tfidf_baseline}


def untrained_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline:
    """The baseline from its file in `folder/baselines`, or worked out and written there."""
    known = known_baseline(name, task, metric, folder, by)
    if known is not None:
        return known
    say(f"baseline {name}")
    found = _MAKERS[name](task, metric, by=by)
    lists = {key: as_lists(getattr(found, key), task.type) for key in _ANSWERS}
    path, mark = _path(name, folder, by), _mark(task, metric, by)
    path.parent.mkdir(exist_ok=True)
    write_text(path, json.dumps({"mark": mark, **asdict(found), **lists}, ensure_ascii=False))
    return found


def known_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline | None:
    """The baseline from its file in `folder/baselines`; None where it has to be worked out."""
    return _read(_path(name, folder, by), _mark(task, metric, by), task.type)


def _path(name: str, folder: Path, by: Split) -> Path:
    return folder / FOLDER / f"{name}-{by}.json"


def _mark(task: Task, metric: str | Measure, by: Split) -> str:
    """What the answers depend on."""
    judge = metric if isinstance(metric, str) else (metric.name, metric.positive)
    return fingerprint(VERSION, task.fingerprint, judge, by)


def _read(path: Path, mark: str, type_name: str) -> Baseline | None:
    """What the file holds; None where it is not there or is about other data, and has to be made again."""
    tree = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if tree.pop("mark", None) != mark:
        return None
    arrays = {key: from_lists(tree[key], type_name) for key in _ANSWERS}
    return Baseline(**{**tree, **arrays})
