"""Many heads of one shape as one module whose weights have one more axis, trained together."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from endtask.encoders.batch import IGNORED
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM
from endtask.seeds import generator

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class StackedBatch:
    """Vectors (R, U, hidden) of R trials and their target classes (R, U); `IGNORED` where there is none."""

    vectors: Tensor
    classes: Tensor

    def mean_loss(self, logits: Tensor, *, largest: float | None = None) -> Tensor:
        """Return the mean cross-entropy of each trial, each prediction clipped at `largest`: (R,)."""
        each = functional.cross_entropy(
            logits.float().flatten(0, 1), self.classes.flatten(), ignore_index=IGNORED, reduction="none"
        ).view_as(self.classes)
        each = each if largest is None else each.clamp(max=largest)
        return each.sum(1) / (self.classes != IGNORED).sum(1).clamp(min=1)


def dropout_factors(seed: int, step: int, name: str, rows: int, width: int, probability: float) -> Tensor:
    """Return what the vectors of a step are multiplied by: 0, or 1 / (1 - probability); (rows, width).

    It depends on seed and step alone, whatever is trained together with a trial. The first rows are the same however
    many there are, so that padding changes nothing.

    >>> dropout_factors(0, 3, "dropout", 1, 4, 0.5).unique()
    tensor([0., 2.])
    >>> few, many = (dropout_factors(0, 3, "dropout", rows, 4, 0.5) for rows in (2, 5))
    >>> torch.equal(few, many[:2])
    True
    """
    drawn = generator(seed, RANDOM_STREAM, "dropout", name, step).random((rows, width), dtype=np.float32)
    return torch.from_numpy((drawn >= probability).astype(np.float32) / np.float32(1 - probability))


@dataclass(frozen=True)
class StepDropout:
    """The dropout of one step of several trials, whose seeds these are; trials of one seed share theirs."""

    seeds: Sequence[int]
    step: int
    probability: float

    def factors(self, names: Sequence[str], rows: int, width: int) -> Weights:
        """Return factors by the name of the dropout layer: (trials, rows, width)."""
        if self.probability == 0:
            return {}
        found = {}
        for name in names:
            by_seed = {
                seed: dropout_factors(seed, self.step, name, rows, width, self.probability)
                for seed in dict.fromkeys(self.seeds)
            }
            found[name] = torch.stack([by_seed[seed] for seed in self.seeds])
        return found


class GivenDropout(nn.Module):
    """Dropout by factors that are passed like weights, so that equal factors mean equal noise."""

    factors: Tensor  # (rows, hidden), or a 1 for none

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factors", torch.ones(()))

    def forward(self, hidden: Tensor) -> Tensor:
        """(rows, hidden) -> the same"""
        return hidden * self.factors


class StackedHead:
    """R heads of one architecture: `weights` by name, with R as the first axis.

    >>> head = StackedHead(nn.Linear(2, 3), [nn.Linear(2, 3).state_dict() for _ in range(4)])
    >>> head.logits(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, head: nn.Module, states: Sequence[Mapping[str, Tensor]]) -> None:
        self._head = with_given_dropout(head)
        modules = self._head.named_modules()
        self.dropouts = [f"{name}.factors" for name, module in modules if isinstance(module, GivenDropout)]
        names = [name for name, _ in self._head.named_parameters()]
        self.weights: Weights = {name: torch.stack([state[name] for state in states]).detach() for name in names}

    def logits(self, vectors: Tensor, factors: Mapping[str, Tensor] | None = None) -> Tensor:
        """(R, rows, hidden) -> (R, rows, classes); dropout only if its factors (R, rows, hidden) are given."""

        def single(weights: Weights, dropout: Weights, rows: Tensor) -> Tensor:
            logits: Tensor = functional_call(self._head, {**weights, **dropout}, (rows,))
            return logits

        out: Tensor = vmap(single)(self.weights, dict(factors or {}), vectors)
        return out

    def gradients(self, batch: StackedBatch, dropout: StepDropout) -> Weights:
        """Return the gradients of each trial's mean loss."""
        factors = dropout.factors(self.dropouts, *batch.vectors.shape[1:])
        weights = list(self.weights.values())
        for weight in weights:
            weight.requires_grad_(True)
        logits = self.logits(batch.vectors, {name: each.to(batch.vectors.device) for name, each in factors.items()})
        found = torch.autograd.grad(batch.mean_loss(logits).sum(), weights)
        for weight in weights:
            weight.requires_grad_(False)
        return dict(zip(self.weights, found, strict=True))

    def logits_of(self, number: int, weights: Weights, vectors: Tensor) -> Tensor:
        """Return the logits of a single head without dropout: (rows, hidden) -> (rows, classes)."""
        own = {name: value[number] for name, value in weights.items()}
        logits: Tensor = functional_call(self._head, own, (vectors,))
        return logits


def with_given_dropout(head: nn.Module) -> nn.Module:
    """Return a copy of a head whose dropout layers take their factors from outside."""
    head = copy.deepcopy(head)
    for name in [name for name, module in head.named_modules() if isinstance(module, nn.Dropout)]:
        parent, _, own = name.rpartition(".")
        setattr(head.get_submodule(parent), own, GivenDropout())
    return head.eval()
