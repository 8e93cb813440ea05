"""Scoring the dev split between steps: the best weights are kept, and training ends when nothing gets better."""

from __future__ import annotations

import json
from pathlib import Path

from endtask.evaluate.metrics import score_all
from endtask.evaluate.probabilities import class_probabilities
from endtask.files.atomic import write_text
from endtask.files.run_layout import DEV_PREDICTIONS
from endtask.models.network import TASK, Network
from endtask.models.place import Place
from endtask.models.weights import save_weights
from endtask.settings import Settings
from endtask.task import Task
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
        self._texts, self._truth = PackedTexts(packed / "dev"), task.label_numbers("dev")
        self._evaluate, self._best_weights, self._patience = settings.evaluate, best_weights, patience

    def score(self, step: int, memory: Memory) -> dict[str, float]:
        """Score the dev split; keep the weights if they are the best so far."""
        probabilities = class_probabilities(
            self._network, self._texts, batch_size=self._evaluate.batch_size, place=self._place, head=self._head
        )
        predicted = probabilities.argmax(-1)
        scores = score_all(self._truth, predicted)
        memory["steps"] = step
        metric = self._evaluate.metric
        if scores[metric] > memory.get("dev", {}).get(metric, -1.0):
            memory.update(dev=scores, best_step=step, scores_since_best=0)
            save_weights(self._best_weights, self._network)
            write_text(self._best_weights.with_name(DEV_PREDICTIONS), json.dumps(predicted.tolist()))
        else:
            memory["scores_since_best"] = memory.get("scores_since_best", 0) + 1
        if self._patience is not None and memory["scores_since_best"] >= self._patience:
            memory["stop"] = True
        return {f"dev/{name}": value for name, value in scores.items()}
