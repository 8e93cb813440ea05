"""The outputs of a network for packed texts, and the answers decoded from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.evaluation.task_metrics import Measure
from endtask.evaluation.vectors import batches_by_length
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, targets
from endtask.tokenization.packed_texts import PackedTexts, WordStarts

BATCH_SIZE, GPU_BATCH_SIZE = 64, 512
"""Texts in a forward pass."""


@torch.inference_mode()
def class_probabilities(
    network: Network, texts: PackedTexts, *, context: DeviceContext, batch_size: int | None = None, head: str = TASK
) -> NDArray[np.float32]:
    """Return probabilities (examples, classes) in order, averaged over the windows of an example.

    Label sets have a probability for each label, numbers the standardized score as their only column, tags a row for
    each word, all 0 for a word without a token. Never compiled: one pass over a split takes less time.
    """
    batch_size = batch_size or (BATCH_SIZE if context.device.type == "cpu" else GPU_BATCH_SIZE)
    network.eval()
    task_type = network.type_of(head)
    words = WordStarts(texts) if task_type.per_token else None
    rows = len(texts) if words is None else int(words.words.sum())
    outputs = np.zeros((rows, 0), dtype=np.float32)
    with context.autocast(), network.uncompiled():
        for positions, batch in batches_by_length(network, texts, batch_size):
            rows_of_batch = positions
            hidden = network(on_device := batch.to(context.device))
            logits = network.task_logits(hidden, on_device, head).float()  # (texts or tokens, classes)
            if words is not None:
                rows_of_batch, tokens = words.gather(positions, batch.offsets[:-1].numpy().astype(np.int64))
                logits = logits[torch.from_numpy(tokens).to(logits.device)]
            if not outputs.shape[1]:  # the head knows the number of classes
                outputs = np.zeros((rows, logits.shape[1]), dtype=np.float32)
            outputs[rows_of_batch] = task_type.activation(logits).cpu().numpy()
    return outputs if words is not None else _mean_over_windows(outputs, texts)


def _mean_over_windows(outputs: NDArray[np.float32], texts: PackedTexts) -> NDArray[np.float32]:
    windows = texts.windows
    sums = np.add.reduceat(outputs, np.cumsum(windows) - windows, axis=0)  # (examples, classes)
    means: NDArray[np.float32] = (sums / windows[:, None]).astype(np.float32)
    return means


Outputs = NDArray[np.float32]
"""What `class_probabilities` returns."""


@dataclass(frozen=True)
class Answered:
    """The outputs of a seed's weights for a split, and the decoded answers."""

    answers: Answers
    outputs: Outputs
    threshold: float = 0.5


_SMALLEST = 1e-7  # a probability of 0 would make the perplexity infinite
_THRESHOLDS = np.linspace(0.05, 0.95, 19)


def answers_of(task: Task, split: str, outputs: Outputs, *, threshold: float = 0.5) -> Answers:
    """Return the answers in the form of `targets`.

    Best class or tag, score on the task's own scale, or labels above a threshold.
    """
    answers: Answers = task.task_type.decode(task, split, outputs, threshold)
    return answers


def perplexity(task: Task, split: str, outputs: Outputs) -> float | None:
    """Return exp of the mean cross-entropy of the true classes or tags; truncated words do not count."""
    if not task.task_type.one_label:
        return None
    truth = targets(task, split)
    truth = truth[truth != NO_WORD]
    scored = outputs.any(axis=-1) & (truth < outputs.shape[-1])
    if not scored.any():
        return None
    probabilities = outputs[scored, truth[scored]].astype(np.float64)
    return float(np.exp(-np.log(np.maximum(probabilities, _SMALLEST)).mean()))


def best_threshold(task: Task, split: str, outputs: Outputs, measure: Measure) -> float:
    """Return the threshold of labels with the best score, in steps of 0.05; of equal ones the nearest to 0.5."""
    truth = targets(task, split)
    scores = {
        float(threshold): measure.score(truth, answers_of(task, split, outputs, threshold=float(threshold)))
        for threshold in _THRESHOLDS.round(2)
    }
    return max(scores, key=lambda threshold: (scores[threshold], -abs(threshold - 0.5)))
