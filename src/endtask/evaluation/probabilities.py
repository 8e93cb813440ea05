"""What a network puts out for packed texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.word_alignment import WordStarts


@torch.inference_mode()
def class_probabilities(
    network: Network, texts: PackedTexts, *, batch_size: int, context: DeviceContext, head: str = TASK
) -> NDArray[np.float32]:
    """Probabilities (examples, classes) in order; those of an example's windows are averaged.

    Of kind `labels` each label has a probability of its own; of kind `score` the only column is the standardised score;
    of kind `tags` there is a row for each word, all 0 for a word without a token.

    Batches hold texts of like length to spare padding. Never compiled: shapes differ from batch to batch, and one pass
    over a split is over before a compiler is.
    """
    network.eval()
    order = np.argsort(texts.lengths, kind="stable")
    kind = network.kind_of(head)
    words = WordStarts(texts) if kind == "tags" else None
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
            outputs[where] = _ACTIVATIONS.get(kind, _softmax)(logits).cpu().numpy()
    return outputs if words is not None else _mean_over_windows(outputs, texts)


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(-1)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"labels": torch.sigmoid, "score": lambda logits: logits}


def _mean_over_windows(outputs: NDArray[np.float32], texts: PackedTexts) -> NDArray[np.float32]:
    windows = texts.windows
    sums = np.add.reduceat(outputs, np.cumsum(windows) - windows, axis=0)  # (examples, classes)
    means: NDArray[np.float32] = (sums / windows[:, None]).astype(np.float32)
    return means
