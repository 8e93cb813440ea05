"""Many heads of one shape as one module whose weights have an axis more, trained in one go."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from endtask.encoders.batch import IGNORED
from endtask.few_examples.noise import Noise

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Asked:
    """Vectors (R, U, hidden) of R runs and the classes (R, U) they ask for; `IGNORED` where nothing is asked."""

    vectors: Tensor
    classes: Tensor

    def mean_loss(self, logits: Tensor, *, most: float | None = None) -> Tensor:
        """The mean cross-entropy of each run over what it asks, of each answer no more than `most`: (R,)."""
        each = functional.cross_entropy(
            logits.float().flatten(0, 1), self.classes.flatten(), ignore_index=IGNORED, reduction="none"
        ).view_as(self.classes)
        each = each if most is None else each.clamp(max=most)
        return each.sum(1) / (self.classes != IGNORED).sum(1).clamp(min=1)


class GivenDropout(nn.Module):
    """Dropout by factors that are given with the weights, so that equal factors mean equal noise."""

    factors: Tensor  # (rows, hidden), or a 1 for none

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factors", torch.ones(()))

    def forward(self, hidden: Tensor) -> Tensor:
        """(rows, hidden) -> the same"""
        return hidden * self.factors


class StackedHead:
    """R heads of the architecture's own kind: `weights` by name, with R in front.

    >>> head = StackedHead(nn.Linear(2, 3), [nn.Linear(2, 3).state_dict() for _ in range(4)])
    >>> head.logits(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, head: nn.Module, states: Sequence[Mapping[str, Tensor]]) -> None:
        self._head = with_given_dropout(head)
        self.dropouts = [f"{name}.factors" for name, part in self._head.named_modules() if is_given(part)]
        names = [name for name, _ in self._head.named_parameters()]
        self.weights: Weights = {name: torch.stack([state[name] for state in states]).detach() for name in names}

    def logits(self, vectors: Tensor, factors: Mapping[str, Tensor] | None = None) -> Tensor:
        """(R, rows, hidden) -> (R, rows, classes); dropout only where its factors (R, rows, hidden) are given."""

        def one(weights: Weights, noise: Weights, rows: Tensor) -> Tensor:
            logits: Tensor = functional_call(self._head, {**weights, **noise}, (rows,))
            return logits

        out: Tensor = vmap(one)(self.weights, dict(factors or {}), vectors)
        return out

    def gradients(self, asked: Asked, noise: Noise) -> Weights:
        """Of the mean loss of each run, under the noise of a step."""
        factors = noise.factors(self.dropouts, *asked.vectors.shape[1:])
        weights = list(self.weights.values())
        for weight in weights:
            weight.requires_grad_(True)
        logits = self.logits(asked.vectors, {name: one.to(asked.vectors.device) for name, one in factors.items()})
        found = torch.autograd.grad(asked.mean_loss(logits).sum(), weights)
        for weight in weights:
            weight.requires_grad_(False)
        return dict(zip(self.weights, found, strict=True))

    def logits_of(self, number: int, weights: Weights, vectors: Tensor) -> Tensor:
        """Of a single head without dropout, with its part of `weights`: (rows, hidden) -> (rows, classes)."""
        own = {name: value[number] for name, value in weights.items()}
        logits: Tensor = functional_call(self._head, own, (vectors,))
        return logits


def with_given_dropout(head: nn.Module) -> nn.Module:
    """A copy of a head whose dropouts take their factors from outside."""
    head = copy.deepcopy(head)
    for name in [name for name, part in head.named_modules() if isinstance(part, nn.Dropout)]:
        parent, _, own = name.rpartition(".")
        setattr(head.get_submodule(parent), own, GivenDropout())
    return head.eval()


def is_given(part: nn.Module) -> bool:
    """Whether a part is a dropout whose factors are given."""
    return isinstance(part, GivenDropout)
