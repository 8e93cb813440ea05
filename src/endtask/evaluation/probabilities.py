"""What a network puts out for packed texts."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.batch import lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.tokenization.packed_texts import PackedTexts, WordStarts


@torch.inference_mode()
def class_probabilities(
    network: Network, texts: PackedTexts, *, batch_size: int, context: DeviceContext, head: str = TASK
) -> NDArray[np.float32]:
    """Probabilities (examples, classes) in order; those of an example's windows are averaged.

    Label sets have a probability for each label, numbers the standardised score as their only column, tags a row for
    each word, all 0 for a word without a token.

    Batches hold texts of like length to spare padding. Never compiled: shapes differ from batch to batch, and one pass
    over a split is over before a compiler is.
    """
    network.eval()
    order = np.argsort(texts.lengths, kind="stable")
    task_type = network.type_of(head)
    words = WordStarts(texts) if task_type.per_token else None
    rows = len(texts) if words is None else int(words.words.sum())
    outputs = np.zeros((rows, 0), dtype=np.float32)
    with context.autocast(), network.uncompiled():
        layout = network.layout(int(texts.lengths.max()))
        for start in range(0, len(order), batch_size):
            positions = order[start : start + batch_size]
            batch = lay_out(texts, positions, layout)
            where = positions
            hidden = network(on_device := batch.to(context.device))
            logits = network.task_logits(hidden, on_device, head).float()  # (texts or tokens, classes)
            if words is not None:
                where, tokens = words.gather(positions, batch.offsets[:-1].numpy().astype(np.int64))
                logits = logits[torch.from_numpy(tokens).to(logits.device)]
            if not outputs.shape[1]:  # how many classes there are, the head says
                outputs = np.zeros((rows, logits.shape[1]), dtype=np.float32)
            outputs[where] = task_type.activation(logits).cpu().numpy()
    return outputs if words is not None else _mean_over_windows(outputs, texts)


def _mean_over_windows(outputs: NDArray[np.float32], texts: PackedTexts) -> NDArray[np.float32]:
    windows = texts.windows
    sums = np.add.reduceat(outputs, np.cumsum(windows) - windows, axis=0)  # (examples, classes)
    means: NDArray[np.float32] = (sums / windows[:, None]).astype(np.float32)
    return means
