"""Training texts behind a prediction: nearest by the model's vectors, and the most influential in its last layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.encoders.unit_vectors import unit_vectors
from endtask.serving.predictor import Predictor, Text

if TYPE_CHECKING:
    from torch import nn

Table = NDArray[np.float32]
BATCH = 64


@dataclass(frozen=True)
class NearText:
    """A training text by its number, with its cosine similarity to the text or its influence on the answer."""

    index: int
    value: float


@dataclass(frozen=True)
class TrainingEvidence:
    """The nearest training texts, and those that support the answer most and oppose it most.

    The influence of a training text is the change of the answer's logit in one gradient step of unit length on that
    text, in the last layer alone: the value of a representer point (Yeh et al., 2018), without its constant factor.
    """

    nearest: tuple[NearText, ...]
    supporting: tuple[NearText, ...]
    opposing: tuple[NearText, ...]


class TrainingTexts:
    """What the last layer reads of each training text, and the gradient of its loss at the layer's outputs."""

    def __init__(self, states: Table, gradients: Table) -> None:
        self._states, self._gradients = states, gradients
        self._units = unit_vectors(states)

    @classmethod
    def join(cls, parts: Sequence[tuple[Table, Table]]) -> TrainingTexts:
        """Return the training texts of some batches of `state_rows`."""
        return cls(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))

    def evidence(self, state: NDArray[np.float32], answer: int, top: int) -> TrainingEvidence:
        """Return the evidence for one output, given what the last layer reads of a text."""
        similarities = self._units @ unit_vectors(state)
        influence = -self._gradients[:, answer] * (self._states @ state + 1.0)  # 1 for the bias
        return TrainingEvidence(
            _best(similarities, top),
            tuple(near for near in _best(influence, top) if near.value > 0),
            tuple(NearText(near.index, -near.value) for near in _best(-influence, top) if near.value > 0),
        )


def can_explain(predictor: Predictor) -> bool:
    """Return whether a model has a last layer that reads one vector for each text."""
    return not predictor.task_type.per_token and _last_layer(predictor) is not None


def state_rows(predictor: Predictor, texts: Sequence[Text], labels: Sequence[Any]) -> tuple[Table, Table]:
    """Return for labelled texts what the last layer reads, and the gradients of the loss at its outputs."""
    states, logits = last_states(predictor, texts)
    number = {label: index for index, label in enumerate(predictor.labels)}
    if predictor.task_type.form == "numbers":
        return states, logits - np.asarray(labels, dtype=np.float32)[:, None]
    truth = np.zeros_like(logits)
    for row, label in enumerate(labels):
        for name in (label,) if isinstance(label, str) else label:
            if name in number:
                truth[row, number[name]] = 1
    return states, _activated(predictor, logits) - truth


def last_states(predictor: Predictor, texts: Sequence[Text]) -> tuple[Table, Table]:
    """Return what the last layer reads of each text, and its outputs."""
    layer = _last_layer(predictor)
    assert layer is not None
    seen: list[Table] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].float().cpu().numpy()))
    try:
        logits = np.stack(predictor.logits(texts))
    finally:
        hook.remove()
    return np.concatenate(seen), logits


def _last_layer(predictor: Predictor) -> nn.Linear | None:
    """Return the linear layer that makes the outputs."""
    from torch import nn

    network: Any = predictor.network
    if not isinstance(network, nn.Module):
        return None
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return layers[-1] if layers and layers[-1].out_features == len(predictor.labels) else None


def _activated(predictor: Predictor, logits: Table) -> Table:
    import torch

    activated: Table = predictor.task_type.activation(torch.from_numpy(logits)).numpy()
    return activated


def _best(values: NDArray[np.float32], top: int) -> tuple[NearText, ...]:
    """Return the largest values; equal ones in the order of the texts."""
    order = np.argsort(-values, kind="stable")[:top]
    return tuple(NearText(int(index), float(values[index])) for index in order)
