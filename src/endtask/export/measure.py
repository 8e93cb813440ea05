"""Compare an exported model with the model of the run on dev: outputs, score and latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.evaluation.task_metrics import measure_of
from endtask.export.base import TrainedRun
from endtask.serving.latency import MOST_TEXTS, time_calls
from endtask.serving.predictor import Predictor, Text
from endtask.task.targets import numbered, targets

TOLERANCE = 1e-3
"""The largest difference of outputs to those of torch, as a share of the largest output if that is above 1."""
MOST_ROWS = 2000
_BATCH = 32
_SPLIT = "dev"


@dataclass(frozen=True)
class Measured:
    """The outputs, the score on dev and the latency of a model."""

    outputs: list[NDArray[np.float32]]
    answers: list[Any]
    score: float
    latency: dict[str, float]


def dev_texts(run: TrainedRun) -> list[Text]:
    """Return the texts of dev, as the model takes them."""
    rows = run.task.splits[_SPLIT][:MOST_ROWS]
    if run.task.task_type.per_token:
        return [list(row.tokens or ()) for row in rows]
    return [row.text if row.text_pair is None else (row.text, row.text_pair) for row in rows]


def measured(run: TrainedRun, predictor: Predictor, name: str) -> Measured:
    """Run a model on the texts of dev: in batches for outputs and score, one by one for the latency."""
    texts = dev_texts(run)
    outputs = [
        output for start in range(0, len(texts), _BATCH) for output in predictor.logits(texts[start : start + _BATCH])
    ]
    answers = [found.value for found in predictor.stream(texts, batch_size=_BATCH)]
    latency = time_calls(lambda text: predictor.predict([text]), texts[:MOST_TEXTS], f"time {name}")
    return Measured(outputs, answers, _score(run, answers), latency)


def _score(run: TrainedRun, answers: Sequence[Any]) -> float:
    """Return the score on dev by the metric of the run."""
    task = run.task
    truth = targets(task, _SPLIT)[: len(answers)]
    found = numbered(answers, task.type, task.all_labels)
    if found.ndim > 1 and found.shape != truth.shape:  # rows of words; the longest may be beyond the rows compared
        found = np.pad(found, ((0, 0), (0, truth.shape[1] - found.shape[1])), constant_values=-1)
    return measure_of(task, run.settings.evaluate).score(truth, found)


def difference(first: Sequence[NDArray[np.float32]], second: Sequence[NDArray[np.float32]]) -> float:
    """Return the largest absolute difference of outputs.

    >>> difference([np.array([1.0, 2.0])], [np.array([1.0, 2.5])])
    0.5
    """
    return max((float(np.abs(one - other).max()) for one, other in zip(first, second, strict=True)), default=0.0)


def check_parity(torch: Measured, exported: Measured, run: TrainedRun) -> float:
    """Return the largest difference of outputs; raises `InputError` beyond the tolerance."""
    found = difference(torch.outputs, exported.outputs)
    largest = max((float(np.abs(output).max()) for output in torch.outputs), default=1.0)
    allowed = TOLERANCE * max(1.0, largest)
    if not found <= allowed:
        message = f"the outputs of the exported model differ by up to {found:.3g} from those of torch"
        raise InputError(message, path=run.model, hint=f"at most {allowed:.3g} is accepted; nothing was written")
    return found


def comparison(run: TrainedRun, torch: Measured, exported: Measured, name: str) -> dict[str, Any]:
    """Return what was measured, for the record of an export."""
    same = sum(one == other for one, other in zip(torch.answers, exported.answers, strict=True))
    return {
        "split": _SPLIT,
        "rows": len(torch.answers),
        "metric": measure_of(run.task, run.settings.evaluate).name,
        "max_difference": difference(torch.outputs, exported.outputs),
        "equal_answers": same,
        "score": {"torch": torch.score, name: exported.score},
        "latency": {"torch": torch.latency, name: exported.latency},
    }


def comparison_lines(facts: dict[str, Any], name: str) -> list[str]:
    """Describe a comparison for people."""
    score, latency = facts["score"], facts["latency"]
    rows = f"{facts['equal_answers']:,} of {facts['rows']:,} answers for {facts['split']} are equal"
    return [
        f"largest difference to torch: {facts['max_difference']:.2g}; {rows}",
        f"{facts['metric']} on {facts['split']}: {100 * score[name]:.1f}, torch {100 * score['torch']:.1f} "
        f"({100 * (score[name] - score['torch']):+.1f})",
        f"one text on the CPU: median {latency[name]['p50_ms']:.1f} ms, torch {latency['torch']['p50_ms']:.1f} ms",
    ]
