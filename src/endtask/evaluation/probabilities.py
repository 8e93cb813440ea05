"""What a trained network gives for packed texts: probabilities by example or word."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.evaluation.vectors import batches_by_length
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
