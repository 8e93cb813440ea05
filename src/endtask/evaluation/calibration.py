"""Calibration: whether answers with a probability of 80% are right in 80% of the cases, and the temperature for it.

A temperature T divides logits. Of probabilities it is p^(1/T), normalised, and of labels with a probability each the
same for p and 1 - p; so it also scales means over windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.task import Task
from endtask.task.targets import NO_WORD, targets

if TYPE_CHECKING:
    from endtask.evaluation.outputs import Outputs

BINS = 15
CURVE_BINS = 10
"""Bins of the stored reliability curves, which people look at."""
_SMALLEST = 1e-7
_LOG_RANGE = (-3.0, 3.0)
"""The logarithms of the lowest and the highest temperature."""
Floats = NDArray[np.float64]


def expected_calibration_error(confidence: Floats, right: NDArray[np.bool_], *, bins: int = BINS) -> float:
    """Return the mean difference of confidence and accuracy in bins of equal width, weighted by their answers.

    >>> round(expected_calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False])), 3)
    0.1
    """
    if not len(confidence):
        return 0.0
    # A confidence on an edge belongs to the bin below it, as in Guo et al. (2017).
    number = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(number, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def calibration_error(task: Task, split: str, outputs: Outputs) -> float | None:
    """Return the calibration error of a split: of the best class or tag, or of every label; None for numbers."""
    pairs = _confidences(task, split, outputs)
    return None if pairs is None else expected_calibration_error(*pairs)


def scaled(outputs: NDArray[Any], temperature: float, *, one_label: bool) -> NDArray[Any]:
    """Return probabilities at a temperature; rows of zeros, of truncated words, stay as they are.

    >>> scaled(np.array([[0.8, 0.2]]), 2.0, one_label=True).round(3).tolist()
    [[0.667, 0.333]]
    """
    raised = np.maximum(outputs, 0.0) ** (1.0 / temperature)
    others = raised.sum(axis=-1, keepdims=True) if one_label else raised + (1.0 - outputs) ** (1.0 / temperature)
    probabilities: NDArray[Any] = (raised / np.where(others > 0, others, 1.0)).astype(outputs.dtype)
    return probabilities


def fit_temperature(task: Task, split: str, outputs: Outputs) -> float | None:
    """Return the temperature with the lowest cross-entropy of a split's true answers; None for numbers."""
    from scipy.optimize import minimize_scalar

    found = _probabilities_and_truth(task, split, outputs)
    if found is None:
        return None
    probabilities, truth = found
    one_label = task.task_type.one_label

    def loss(logarithm: float) -> float:
        values = scaled(probabilities, float(np.exp(logarithm)), one_label=one_label)
        chosen = values[np.arange(len(truth)), truth] if one_label else np.where(truth, values, 1.0 - values)
        return float(-np.log(np.maximum(chosen, _SMALLEST)).mean())

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_RANGE, method="bounded").x))


def reliability_curve(
    confidence: Floats, right: NDArray[np.bool_], *, bins: int = CURVE_BINS
) -> list[dict[str, float]]:
    """Return count, mean confidence and accuracy of each bin that has answers, from the lowest confidence.

    >>> reliability_curve(np.array([0.85, 0.95, 0.95]), np.array([True, True, False]), bins=10)[1]
    {'answers': 2, 'confidence': 0.95, 'accuracy': 0.5}
    """
    number = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    return [
        {
            "answers": int(inside.sum()),
            "confidence": float(confidence[inside].mean()),
            "accuracy": float(right[inside].mean()),
        }
        for bin_number in range(bins)
        if (inside := number == bin_number).any()
    ]


def calibration_of_seeds(
    task: Task, split: str, dev: Mapping[int, Outputs], final: Mapping[int, Outputs]
) -> dict[str, Any] | None:
    """Return each seed's temperature, fitted on dev, and its calibration on a split before and after; None for numbers.

    The curves pool the answers of all seeds.
    """
    if task.task_type.form == "numbers":
        return None
    one_label = task.task_type.one_label
    temperatures = {seed: fit_temperature(task, "dev", outputs) or 1.0 for seed, outputs in dev.items()}
    after = {seed: scaled(outputs, temperatures[seed], one_label=one_label) for seed, outputs in final.items()}
    return {
        "split": split,
        "fitted_on": "dev",
        "seeds": [
            {
                "seed": seed,
                "temperature": temperatures[seed],
                "ece": calibration_error(task, split, outputs),
                "ece_scaled": calibration_error(task, split, after[seed]),
            }
            for seed, outputs in final.items()
        ],
        "curve": _pooled_curve(task, split, final),
        "curve_scaled": _pooled_curve(task, split, after),
    }


def _pooled_curve(task: Task, split: str, outputs: Mapping[int, Outputs]) -> list[dict[str, float]]:
    pairs = [found for one in outputs.values() if (found := _confidences(task, split, one)) is not None]
    return reliability_curve(np.concatenate([one for one, _ in pairs]), np.concatenate([one for _, one in pairs]))


def _probabilities_and_truth(task: Task, split: str, outputs: Outputs) -> tuple[Floats, NDArray[Any]] | None:
    """Return probabilities and true classes or labels of the answers that have probabilities and known labels."""
    truth: NDArray[Any] = targets(task, split)
    if task.task_type.form == "numbers":
        return None
    if not task.task_type.one_label:
        return outputs.astype(np.float64), truth[:, : outputs.shape[1]].astype(bool)
    truth = truth[truth != NO_WORD]
    usable = outputs.any(axis=-1) & (truth < outputs.shape[-1])
    return outputs[usable].astype(np.float64), truth[usable]


def _confidences(task: Task, split: str, outputs: Outputs) -> tuple[Floats, NDArray[np.bool_]] | None:
    truth: NDArray[Any] = targets(task, split)
    if task.task_type.form == "numbers":
        return None
    if not task.task_type.one_label:  # a probability for each label of each row
        return outputs.astype(np.float64).ravel(), truth[:, : outputs.shape[1]].astype(bool).ravel()
    truth = truth[truth != NO_WORD]
    seen = outputs.any(axis=-1)  # a word that was truncated has no probabilities
    return outputs[seen].max(axis=-1).astype(np.float64), outputs[seen].argmax(axis=-1) == truth[seen]
