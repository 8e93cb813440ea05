"""Class probabilities of packed texts."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.models.batch import lay_out
from endtask.models.network import TASK, Network
from endtask.models.place import Place
from endtask.text.packed import PackedTexts


@torch.inference_mode()
def class_probabilities(
    network: Network, texts: PackedTexts, *, batch_size: int, place: Place, head: str = TASK
) -> NDArray[np.float32]:
    """Probabilities (examples, classes) in order; those of an example's windows are averaged.

    Batches hold texts of like length to spare padding. Never compiled: shapes differ from batch to batch, and one pass
    over a split is over before a compiler is.
    """
    network.eval()
    order = np.argsort(texts.lengths, kind="stable")
    probabilities = np.zeros((len(texts), network.config.num_labels), dtype=np.float32)
    with place.autocast(), network.uncompiled():
        layout = network.layout(int(texts.lengths.max()))
        for start in range(0, len(order), batch_size):
            positions = order[start : start + batch_size]
            batch = lay_out(texts, positions, layout).to(place.device)
            logits = network.task_logits(network(batch), batch, head)  # (texts, classes)
            probabilities[positions] = logits.float().softmax(-1).cpu().numpy()
    windows = texts.windows
    sums = np.add.reduceat(probabilities, np.cumsum(windows) - windows, axis=0)  # (examples, classes)
    means: NDArray[np.float32] = (sums / windows[:, None]).astype(np.float32)
    return means
