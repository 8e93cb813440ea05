"""Scores of auxiliary tasks, each answered by its own head on the encoder that all share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.config import EvaluateSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network, auxiliary_head
from endtask.encoders.weights import load_weights
from endtask.evaluation.evaluate import Answered, answer, prediction_lines, score_seeds, scored_split
from endtask.evaluation.labels import answers_of, best_threshold
from endtask.evaluation.task_metrics import measure_of
from endtask.io.atomic import write_text
from endtask.io.run_layout import PREDICTIONS, TASKS
from endtask.task import Task
from endtask.task.leaks import sibling_tasks
from endtask.tokenization.packed_texts import packed_of


def evaluate_auxiliary_tasks(
    task: Task,
    packed: Path,
    weights: dict[int, Path],
    network: Network,
    settings: Settings,
    folder: Path,
    context: DeviceContext,
) -> dict[str, Any]:
    """Score each seed's weights on every auxiliary task that they can answer; returns results by the task's name.

    Each is scored by the default metric of its type: `evaluate.metric` is that of the end task.
    """
    setting = settings.evaluate.model_copy(update={"metric": "auto", "positive_label": None})
    results = {}
    for name in settings.scored_tasks:
        own, siblings = task.auxiliary[name], sibling_tasks(task, name)
        one = _AuxiliaryTask(own, siblings, auxiliary_head(name), packed_of(packed, name), network, setting, context)
        (folder / TASKS / name).mkdir(parents=True, exist_ok=True)
        results[name] = one.score(weights, folder / TASKS / name)
    return results


@dataclass(frozen=True)
class _AuxiliaryTask:
    task: Task
    siblings: tuple[Task, ...]
    head: str
    packed: Path
    network: Network
    settings: EvaluateSettings
    context: DeviceContext

    def score(self, weights: dict[int, Path], folder: Path) -> dict[str, Any]:
        """Dev and the final split; what each seed answered to the latter is written into the folder."""
        measure, split = measure_of(self.task, self.settings), scored_split(self.task)
        dev: dict[int, Answered] = {}
        final: dict[int, Answered] = {}
        thresholds: dict[int, float] = {}
        for seed, path in weights.items():
            load_weights(path, self.network)
            dev[seed], thresholds[seed] = self._answered_dev()
            final[seed] = self._answered(split, thresholds[seed])
        write_text(folder / PREDICTIONS, prediction_lines(self.task, split, final))
        return {
            "type": self.task.type,
            **score_seeds(self.task, split, final, measure, siblings=self.siblings),
            "dev": score_seeds(self.task, "dev", dev, measure, siblings=self.siblings)["summary"],
            **({"thresholds": thresholds} if self.task.task_type.has_threshold else {}),
        }

    def _answered(self, split: str, threshold: float) -> Answered:
        texts = self.packed / split
        return answer(self.network, self.task, texts, self.settings, self.context, threshold=threshold, head=self.head)

    def _answered_dev(self) -> tuple[Answered, float]:
        """Dev, and the threshold of labels with which it was answered: as set, or the best there."""
        setting = self.settings.threshold
        if setting != "tuned":
            return self._answered("dev", setting), setting
        found = self._answered("dev", 0.5)
        if not self.task.task_type.has_threshold:
            return found, 0.5
        best = best_threshold(self.task, "dev", found.outputs, measure_of(self.task, self.settings))
        return Answered(answers_of(self.task, "dev", found.outputs, threshold=best), found.outputs), best
