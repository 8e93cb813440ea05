"""The score of a scoring model on rows that it was not fitted on, next to the majority's and to chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from endtask.config import EvaluateSettings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.evaluation.outputs import answers_of
from endtask.evaluation.probabilities import class_probabilities
from endtask.evaluation.task_metrics import Measure, measure_of, score_runs
from endtask.progress import say, warn
from endtask.seeds import generator
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, targets
from endtask.task_types.base import TaskType
from endtask.tokenization.packed_texts import PackedTexts

_SHUFFLES, _CHANCE = 200, 0.95
"""Chance is the score that 95% of 200 random orders of the model's answers stay below."""


@dataclass(frozen=True)
class HeldOutScore:
    """A model's score in the metric of the run, that of the commonest answer, and the score that chance reaches."""

    metric: str
    score: float
    majority: float
    chance: float
    rows: int

    @property
    def is_informed(self) -> bool:
        """Whether the model is better than the commonest answer and than its own answers in random order."""
        return self.score > max(self.majority, self.chance)

    def record(self) -> dict[str, Any]:
        """Return the values for the manifest."""
        return {**asdict(self), "informed": self.is_informed}


def held_out_score(
    task: Task, network: Network, texts: PackedTexts, evaluate: EvaluateSettings, context: DeviceContext
) -> HeldOutScore:
    """Score a network on the dev rows of a fold, whose tokens are `texts`."""
    outputs = class_probabilities(network, texts, context=context)
    answers, truth = answers_of(task, "dev", outputs), targets(task, "dev")
    measure = measure_of(task, evaluate)
    majority = measure.score(truth, _commonest(task, truth))
    chance = _chance(answers, truth, measure, task.task_type)
    return HeldOutScore(measure.name, measure.score(truth, answers), majority, chance, len(truth))


def _commonest(task: Task, truth: Answers) -> Answers:
    """Return the commonest answer of train for every row, or its commonest tag for every word."""
    if not task.task_type.per_token:
        constant: Answers = task.task_type.commonest(task).predict(task.dev)
        return constant
    tags = targets(task, "train")
    return np.where(truth == NO_WORD, NO_WORD, np.bincount(tags[tags != NO_WORD]).argmax())


def _chance(answers: Answers, truth: Answers, measure: Measure, task_type: TaskType) -> float:
    """Return a high score of the answers in random order; words change places with words of all rows."""
    random, shuffled = generator(0, "influence", "chance"), np.repeat(answers[None], _SHUFFLES, axis=0)
    is_word = truth != NO_WORD if task_type.per_token else None
    for order in shuffled:
        if is_word is None:
            order[:] = answers[random.permutation(len(answers))]
        else:
            order[is_word] = random.permutation(answers[is_word])
    return float(np.quantile(score_runs(shuffled, truth, measure), _CHANCE))


def check_informed(scores: Sequence[HeldOutScore], *, stops: bool) -> None:
    """Print the held-out scores; raise `InputError`, or warn, if a model is no better than the commonest answer."""
    for score in scores:
        say(
            f"influence: the scoring model has {score.metric} {score.score:.3f} on {score.rows:,} rows it was not "
            f"fitted on (commonest answer {score.majority:.3f}, chance {score.chance:.3f})"
        )
    weak = [score for score in scores if not score.is_informed]
    if not weak:
        return
    worst = min(weak, key=lambda score: score.score)
    message = (
        f"the scoring model has learned nothing that holds on other rows: {worst.metric} {worst.score:.3f}, the "
        f"commonest answer {worst.majority:.3f}, chance {worst.chance:.3f}; its gradients would select noise"
    )
    hint = "raise select.epochs or size, set select.first_round_steps or model, or go on with select.uninformed=warn"
    if stops:
        raise InputError(message, key="select.uninformed", hint=hint)
    warn(f"influence: {message}")
