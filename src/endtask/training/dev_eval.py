"""Evaluation on the dev split between steps: saves the best weights and stops early."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from endtask.config import Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.encoders.weights import save_tensors, whole
from endtask.evaluation.outputs import Outputs, answers_of, best_threshold, perplexity
from endtask.evaluation.probabilities import class_probabilities
from endtask.evaluation.task_metrics import measure_of
from endtask.io.atomic import write_text
from endtask.io.run_layout import DEV_PREDICTIONS
from endtask.task import Task
from endtask.task.targets import Answers, as_lists, targets
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.metrics_file import MetricsFile
from endtask.training.phase_runner import Callback, TrainState, initial_state


@dataclass(frozen=True)
class _Best:
    """Weights and answers of the best step so far."""

    step: int
    weights: dict[str, Tensor]
    answers: str


class DevScores:
    """Scores the dev split in a `Callback`.

    The state holds the steps done, the best scores, their step, and the number of scores since. `save_best` writes the
    best weights before each checkpoint and at the end: a short training finds better ones before they are on disk.
    """

    def __init__(
        self,
        network: Network,
        task: Task,
        packed: Path,
        settings: Settings,
        context: DeviceContext,
        best_weights: Path,
        *,
        patience: int | None,
        head: str = TASK,
    ) -> None:
        self._network, self._context, self._head = network, context, head
        self._texts, self._task, self._truth = PackedTexts(packed / "dev"), task, targets(task, "dev")
        self._evaluate, self._best_weights, self._patience = settings.evaluate, best_weights, patience
        self._measure = measure_of(task, settings.evaluate)
        self._best: _Best | None = None

    def callback(self, steps: int, *, at_start: bool = False) -> Callback:
        """Return a callback that scores every `steps` steps."""
        return Callback(steps, self.score, at_start, self.save_best)

    def score(self, step: int, state: TrainState) -> dict[str, float]:
        """Score the dev split, update the state, and return the scores; copies the weights if they are the best."""
        outputs = class_probabilities(self._network, self._texts, context=self._context, head=self._head)
        threshold = self._threshold(outputs)
        answers = answers_of(self._task, "dev", outputs, threshold=threshold)
        scores = self._scores(answers, outputs)
        state["steps"] = step
        metric = self._measure.name
        if scores[metric] > state.get("dev", {}).get(metric, -math.inf):
            state.update(dev=scores, best_step=step, scores_since_best=0)
            if self._evaluate.threshold == "tuned":
                state["threshold"] = threshold
            weights = {name: value.detach().clone() for name, value in self._network.state_dict().items()}
            self._best = _Best(step, weights, json.dumps(as_lists(answers, self._task.type)))
        else:
            state["scores_since_best"] = state.get("scores_since_best", 0) + 1
        if self._patience is not None and state["scores_since_best"] >= self._patience:
            state["stop"] = True
        return {f"dev/{name}": value for name, value in scores.items()}

    def score_untrained(self) -> TrainState:
        """Score and save the network without training, write the curve's only row, and return the state."""
        state = initial_state()
        row = self.score(0, state)
        self.save_best(state)
        MetricsFile(self._best_weights.with_name("metrics.jsonl"), start=-1, every=1).write({"step": 0, **row})
        return state

    def save_best(self, state: TrainState) -> None:
        """Write the best weights and their answers, unless a rollback has dropped them from the state."""
        best, self._best = self._best, None
        if best is not None and best.step == state.get("best_step"):
            weights = {name: whole(value) for name, value in best.weights.items()}
            if not self._context.processes.is_first:
                return
            save_tensors(self._best_weights, weights, {})
            write_text(self._best_weights.with_name(DEV_PREDICTIONS), best.answers)

    def _threshold(self, outputs: Outputs) -> float:
        setting = self._evaluate.threshold
        if setting != "tuned":
            return setting
        return best_threshold(self._task, "dev", outputs, self._measure) if self._task.task_type.has_threshold else 0.5

    def _scores(self, answers: Answers, outputs: Outputs) -> dict[str, float]:
        scores = self._measure.all_scores(self._truth, answers)
        value = perplexity(self._task, "dev", outputs)
        return scores if value is None else {**scores, "perplexity": value}
