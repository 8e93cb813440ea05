"""Save the linear model over TF-IDF where it scores higher on dev than the network (`finetune.fallback: tfidf`)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.errors import InputError
from endtask.evaluation.baselines import BaselineModel
from endtask.evaluation.linear_text import LinearTextModel
from endtask.evaluation.run_baselines import fitted_linear_models
from endtask.evaluation.task_metrics import Measure, measure_of
from endtask.export.markdown import code, plain
from endtask.io.atomic import write_json, write_text
from endtask.io.run_layout import MODEL_FACTS, NETWORK
from endtask.progress import say, warn
from endtask.serving.linear_model import save_linear
from endtask.task import Task
from endtask.task.targets import targets

_THRESHOLD = 0.5


@dataclass(frozen=True)
class BetterModel:
    """A linear model that is better on dev than the network, with the scores of both."""

    model: LinearTextModel
    description: str
    metric: str
    dev: float
    network_dev: float


def check_fallback(task: Task, settings: Settings) -> None:
    """Raise `InputError` for a task whose linear model cannot be saved."""
    if settings.finetune.fallback == "tfidf" and task.task_type.per_token:
        reason = f"there is no TF-IDF model for a task of type {task.type!r}"
        raise InputError(reason, key="finetune.fallback", hint="leave it out")


def better_linear_model(task: Task, settings: Settings, network_dev: dict[str, Any]) -> BetterModel | None:
    """Return the best linear model on dev if the settings ask for it and it beats the network there."""
    if settings.finetune.fallback != "tfidf":
        return None
    measure, truth = measure_of(task, settings.evaluate), targets(task, "dev")
    models, note = fitted_linear_models(task)
    if note is not None:
        warn(note)
        return None
    scored = [(measure.score(truth, model.predict(task.dev)), model) for model in models]
    dev, best = max(scored, key=lambda pair: pair[0])
    network = float(network_dev[measure.name])
    say(_comparison(best, measure, dev, network))
    if dev <= network or best.as_arrays is None:
        return None
    return BetterModel(best.as_arrays(), best.description, measure.name, dev, network)


def _comparison(best: BaselineModel, measure: Measure, dev: float, network: float) -> str:
    saved = best.description if dev > network else "the network"
    return f"on dev {measure.name} is {network:.4f} for the network, {dev:.4f} for {best.description}: saved is {saved}"


def save_linear_model(better: BetterModel, task: Task, settings: Settings, folder: Path) -> dict[str, Any]:
    """Move the network of a model folder to `network/`, write the linear model, and return counts."""
    files = list(folder.iterdir())
    (folder / NETWORK).mkdir()
    for file in files:
        shutil.move(file, folder / NETWORK / file.name)
    names = task.task_type.output_names(tuple(task.labels))
    save_linear(better.model, names, task.task_type.problem_type, folder)
    if task.task_type.has_threshold:
        write_json(folder / MODEL_FACTS, {"threshold": _THRESHOLD})
    write_text(folder / "README.md", _card(better, task, settings))
    return {"fallback": better.description, "fallback_dev": better.dev}


def _card(better: BetterModel, task: Task, settings: Settings) -> str:
    return f"""# {plain(better.description)}

A linear model over words and pairs of neighboring words, trained with endtask on the task
{code(settings.task.path)} and saved because it scores higher on dev than the network of the run:
{better.metric} {better.dev:.4f} against {better.network_dev:.4f}. The network is in the folder `{NETWORK}`. The
scores in the run's report are the network's, with this model's beside them as the baseline.

```python
import endtask
predictions = endtask.load("path/to/this/folder").predict(["a text"])
```

Labels: {", ".join(code(label) for label in task.labels) or "a number"}.
"""
