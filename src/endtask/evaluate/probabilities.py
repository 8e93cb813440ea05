"""Class probabilities of packed texts."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.models.batch import gather_texts
from endtask.models.network import Network
from endtask.text.packed import PackedTexts


@torch.inference_mode()
def class_probabilities(
    network: Network, texts: PackedTexts, *, batch_size: int, device: torch.device
) -> NDArray[np.float32]:
    """Probabilities (texts, classes), texts in order; batches hold texts of like length to spare padding."""
    network.eval().to(device)
    order = np.argsort(texts.lengths, kind="stable")
    probabilities = np.zeros((len(texts), network.config.num_labels), dtype=np.float32)
    for start in range(0, len(order), batch_size):
        positions = order[start : start + batch_size]
        batch = gather_texts(texts, positions, network.config.pad_token_id).to(device)
        logits = network.task_logits(network(batch), batch)  # (B, classes)
        probabilities[positions] = logits.softmax(-1).float().cpu().numpy()
    return probabilities
