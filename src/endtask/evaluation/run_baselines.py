"""The baselines of every run: fitted by the stage `read`, compared with the model by the stage `evaluate`.

`read` stores the answers of all linear models for dev and for the scored split, so that it does not depend on the
metric; `evaluate` chooses the linear model with the best score on dev.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from endtask.config.loading import read_tree
from endtask.evaluation.baselines import BaselineModel, one_thread, texts_of
from endtask.evaluation.significance import bootstrap_interval, metric_permutation
from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.io.atomic import write_json
from endtask.io.run_layout import BASELINES
from endtask.progress import warn
from endtask.task import Task
from endtask.task.split import group_numbers
from endtask.task.targets import Answers, as_lists, from_lists, targets

Tree = dict[str, Any]
SAMPLES = 2_000
"""Bootstrap samples and permutations: enough for two digits of an interval, and seconds for 25,000 rows."""
MOST_CHARACTERS = 100_000_000
"""Most characters of train for linear models, which take minutes on more; the run reports that it left them out."""


def write_baselines(task: Task, split: str, folder: Path) -> None:
    """Write the answers of the majority and of linear models for dev and for the scored split."""
    linear, note = fitted_linear_models(task)
    rows = {"dev": task.dev, "scored": task.splits[split]}
    answers = [
        {
            "description": model.description,
            **{name: as_lists(model.predict(examples), task.type) for name, examples in rows.items()},
        }
        for model in (task.task_type.commonest(task), *linear)
    ]
    write_json(folder / BASELINES, {"majority": answers[0], "linear": answers[1:], "note": note})
    if note is not None:
        warn(note)


def fitted_linear_models(task: Task) -> tuple[list[BaselineModel], str | None]:
    """Return the fitted models, or none and the reason."""
    if sum(map(len, texts_of(task.train))) > MOST_CHARACTERS:
        return [], f"no TF-IDF baseline: train has more than {MOST_CHARACTERS / 1e6:.0f} million characters"
    try:
        with one_thread():
            return list(task.task_type.linear_models(task)), None
    except ValueError as error:  # scikit-learn: a single class in train, or texts without words
        return [], f"no TF-IDF baseline: {error}"


def compare_with_baselines(task: Task, split: str, runs: Answers, measure: Measure, folder: Path) -> Tree:
    """Return the interval of the model's mean score, and each baseline's score with its paired test.

    `runs` are the answers of all seeds (runs, rows, ...); `folder` is that of the stage `read`.
    """
    truth, groups = targets(task, split), group_numbers(task.splits[split])
    options: Tree = {"groups": groups, "samples": SAMPLES}
    found: Tree = {"interval": list(bootstrap_interval(runs, None, truth, measure, **options))}
    mean = float(score_runs(runs, truth, measure).mean())
    for name, baseline in _chosen(task, measure, folder).items():
        predicted = _answers(baseline["scored"], task)
        score = measure.score(truth, predicted)
        found[name] = {
            "description": baseline["description"],
            "score": score,
            "difference": mean - score,
            "interval": list(bootstrap_interval(runs, predicted, truth, measure, **options)),
            "p_value": metric_permutation(runs, predicted, truth, measure, groups=groups, permutations=SAMPLES),
        }
    return found


def _chosen(task: Task, measure: Measure, folder: Path) -> dict[str, Tree]:
    """Return the majority, and of the linear models the best on dev: the first of equals."""
    file = folder / BASELINES
    if not file.exists():
        return {}
    stored = read_tree(file)
    if not stored["linear"]:
        return {"majority": stored["majority"]}
    truth = targets(task, "dev")
    scores = [measure.score(truth, _answers(model["dev"], task)) for model in stored["linear"]]
    return {"majority": stored["majority"], "tfidf": stored["linear"][int(np.argmax(scores))]}


def _answers(rows: list[Any], task: Task) -> Answers:
    answers: Answers = from_lists(rows, task.type)
    return answers
