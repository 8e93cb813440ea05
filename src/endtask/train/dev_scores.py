"""Scoring the dev split between steps: the best weights are kept, and training ends when nothing gets better."""

from __future__ import annotations

import json
import math
from pathlib import Path

from endtask.evaluate.answers import Outputs, answers_of, best_threshold, perplexity
from endtask.evaluate.measures import measure_of
from endtask.evaluate.probabilities import class_probabilities
from endtask.files.atomic import write_text
from endtask.files.run_layout import DEV_PREDICTIONS
from endtask.models.network import TASK, Network
from endtask.models.place import Place
from endtask.models.weights import save_weights
from endtask.settings import Settings
from endtask.task import Task
from endtask.task.targets import Answers, as_lists, targets
from endtask.text.packed import PackedTexts
from endtask.train.phase_run import Memory


class DevScores:
    """The work of a `Pause`: `memory` holds steps done, the best scores, their step, and how many scores came since."""

    def __init__(
        self,
        network: Network,
        task: Task,
        packed: Path,
        settings: Settings,
        place: Place,
        best_weights: Path,
        *,
        patience: int | None,
        head: str = TASK,
    ) -> None:
        self._network, self._place, self._head = network, place, head
        self._texts, self._task, self._truth = PackedTexts(packed / "dev"), task, targets(task, "dev")
        self._evaluate, self._best_weights, self._patience = settings.evaluate, best_weights, patience
        self._measure = measure_of(task, settings.evaluate)

    def score(self, step: int, memory: Memory) -> dict[str, float]:
        """Score the dev split; keep the weights if they are the best so far."""
        outputs = class_probabilities(
            self._network, self._texts, batch_size=self._evaluate.batch_size, place=self._place, head=self._head
        )
        threshold = self._threshold(outputs)
        answers = answers_of(self._task, "dev", outputs, threshold=threshold)
        scores = self._scores(answers, outputs)
        memory["steps"] = step
        metric = self._measure.name
        if scores[metric] > memory.get("dev", {}).get(metric, -math.inf):
            memory.update(dev=scores, best_step=step, scores_since_best=0)
            if self._evaluate.threshold == "tuned":
                memory["threshold"] = threshold
            save_weights(self._best_weights, self._network)
            kept = as_lists(answers, self._task.kind)
            write_text(self._best_weights.with_name(DEV_PREDICTIONS), json.dumps(kept))
        else:
            memory["scores_since_best"] = memory.get("scores_since_best", 0) + 1
        if self._patience is not None and memory["scores_since_best"] >= self._patience:
            memory["stop"] = True
        return {f"dev/{name}": value for name, value in scores.items()}

    def _threshold(self, outputs: Outputs) -> float:
        asked = self._evaluate.threshold
        if asked != "tuned":
            return asked
        return best_threshold(self._task, "dev", outputs, self._measure) if self._task.kind == "labels" else 0.5

    def _scores(self, answers: Answers, outputs: Outputs) -> dict[str, float]:
        scores = self._measure.all_scores(self._truth, answers)
        surprise = perplexity(self._task, "dev", outputs)
        return scores if surprise is None else {**scores, "perplexity": surprise}
