"""Stacked heads of our own architecture on a CPU: products of matrices by torch, all between them by one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from endtask.encoders.heads import ModernTaskHead
from endtask.encoders.lean_layers import PredictionHead
from endtask.few_examples.noise import Noise
from endtask.few_examples.stacked_heads import Asked, StackedHead, Weights

_DENSE, _NORM = "head.dense.weight", "head.norm.weight"
_CLASSIFIER, _BIAS = "classifier.weight", "classifier.bias"


def can_be_fused(head: nn.Module) -> bool:
    """Whether a head is dense-GELU-norm, dropout, linear, without further biases, in single precision on a CPU."""
    if not (isinstance(head, ModernTaskHead) and isinstance(head.head, PredictionHead)):
        return False
    weights = dict(head.named_parameters())
    plain = all(weight.device.type == "cpu" and weight.dtype == torch.float32 for weight in weights.values())
    return plain and set(weights) == {_DENSE, _NORM, _CLASSIFIER, _BIAS}


class FusedHead(StackedHead):
    """R heads for which `can_be_fused` holds; the dense matrices stand transposed, as the products read them."""

    def __init__(self, head: nn.Module, states: Sequence[Mapping[str, Tensor]]) -> None:
        super().__init__(head, states)
        assert isinstance(head.head, PredictionHead)
        self._epsilon = np.float32(head.head.norm.eps)
        self.weights[_DENSE] = self.weights[_DENSE].transpose(1, 2).contiguous()  # (R, in, out)

    @torch.no_grad()
    def logits(self, vectors: Tensor, factors: Mapping[str, Tensor] | None = None) -> Tensor:
        """(R, rows, hidden) -> (R, rows, classes), without dropout."""
        assert not factors
        return self._read_out(self.weights, vectors)

    @torch.no_grad()
    def gradients(self, asked: Asked, noise: Noise) -> Weights:
        """Of the mean loss of each run, under the noise of a step."""
        from endtask.few_examples.fused_kernels import turn_into_gradients  # Numba, which nothing on a GPU needs

        norm, classifier = self.weights[_NORM][:, None], self.weights[_CLASSIFIER]  # (R, 1, hidden), (R, C, hidden)
        kept, noise_of = noise.kept(self.dropouts[0], *asked.vectors.shape[1:])
        hidden = torch.bmm(asked.vectors, self.weights[_DENSE])
        readout, bias = torch.zeros_like(classifier), torch.zeros_like(self.weights[_BIAS])
        turn_into_gradients(
            hidden.numpy(),
            kept,
            noise_of,
            np.float32(1 / (1 - noise.probability)),
            asked.classes.numpy(),
            (classifier * norm).numpy(),
            self.weights[_BIAS].numpy(),
            self._epsilon,
            readout.numpy(),
            bias.numpy(),
        )
        return {
            _DENSE: torch.bmm(asked.vectors.transpose(1, 2), hidden),
            _NORM: (readout * classifier).sum(1),
            _CLASSIFIER: readout * norm,
            _BIAS: bias,
        }

    @torch.no_grad()
    def logits_of(self, number: int, weights: Weights, vectors: Tensor) -> Tensor:
        """Of a single head without dropout, with its part of `weights`: (rows, hidden) -> (rows, classes)."""
        own = {name: value[number : number + 1] for name, value in weights.items()}
        return self._read_out(own, vectors[None])[0]

    def _read_out(self, weights: Weights, vectors: Tensor) -> Tensor:
        from endtask.few_examples.fused_kernels import read_out

        hidden = torch.bmm(vectors, weights[_DENSE])
        readout = weights[_CLASSIFIER] * weights[_NORM][:, None]  # (R, C, hidden)
        logits = torch.empty(*hidden.shape[:2], readout.shape[1])
        read_out(hidden.numpy(), readout.numpy(), weights[_BIAS].numpy(), self._epsilon, logits.numpy())
        return logits
