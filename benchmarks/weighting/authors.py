"""The authors' way: the same step as TARTAN's code takes it, on Hugging Face's BERT.

At every step the head is fitted by ten steps with a whole pass of the encoder each, vocabulary logits are computed at all
positions, gradients are copied weight by weight, and cosines are sums of numbers that the host waits for. Where their
code is slow without need of its own (single precision, eager attention, the cache emptied at each step), the faster
way is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.training.cases import Case as TrainingCase
from benchmarks.training.peers import bert_masked_lm, parameters_of
from benchmarks.weighting.ours import (
    CLASSES,
    LEARNING_RATE,
    LENGTH,
    MASKED_SHARE,
    OBJECTIVES,
    SEED,
    SPECIAL,
    TEXTS,
    Bench,
    Case,
    Row,
    labels,
)
from endtask.seeds import generator

_HEAD_STEPS, _HEAD_RATE, _HEAD_DECAY, _ETA = 10, 1e-3, 0.1, 1e-2
_IGNORED = -100


def authors_way(case: Case, bench: Bench) -> Row:
    """Train and count."""
    clock = bench.clock(case)
    work = _Work(case, bench)
    for step in range(clock.total):
        loss = work.step(step)
        clock.tick()
    tokens = bench.steps * len(OBJECTIVES) * case.rows * LENGTH
    return {**clock.statistics(), "tokens": tokens, "parameters": parameters_of(work.model), "loss": round(loss, 4)}


class _Work:
    """Model, heads and logits of the weights."""

    def __init__(self, case: Case, bench: Bench) -> None:
        self._case, self._device = case, torch.device(case.device)
        shape = TrainingCase("", case.size, "full", case.rows, case.device, vocabulary=case.vocabulary)
        self.model = bert_masked_lm(shape, "sdpa").to(self._device).train()
        self._width = self.model.config.hidden_size
        self._head = self._new_head()
        parameters = [*self.model.parameters(), *self._head.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=False)
        self._logits = {name: 1.0 / len(OBJECTIVES) for name in OBJECTIVES}
        texts = {name: bench.texts(name, case.vocabulary) for name in OBJECTIVES}
        self._tokens = {
            name: torch.from_numpy(one.gather(np.arange(TEXTS))[0]).view(TEXTS, LENGTH) for name, one in texts.items()
        }
        self._labels = torch.from_numpy(labels())

    def step(self, step: int) -> float:
        """One step of all objectives, and of their weights; returns the loss of masked LM."""
        gradients: dict[str, list[Tensor]] = {}
        losses: dict[str, float] = {}
        for name in OBJECTIVES:
            with self._autocast():
                loss = (
                    self._task_loss(self._head, step, self._case.rows) if name == "task" else self._lm_loss(name, step)
                )
            loss.backward()  # type: ignore[no-untyped-call]
            losses[name] = loss.item()
            gradients[name] = self._taken()
        held_out = self._held_out(step)
        for name, found in gradients.items():
            self._logits[name] += _ETA * _cosine(held_out, found)
        weights = torch.tensor(list(self._logits.values())).softmax(0).tolist()
        for place, weight in enumerate(self.model.parameters()):
            weight.grad = sum(share * found[place] for share, found in zip(weights, gradients.values(), strict=True))
        self._optimizer.step()
        self._optimizer.zero_grad()
        return losses["tapt"]

    def _held_out(self, step: int) -> list[Tensor]:
        """Fit a new head by whole passes of the encoder, then take the gradient of other examples through it."""
        head = self._new_head()
        optimizer = torch.optim.AdamW(head.parameters(), lr=_HEAD_RATE, weight_decay=_HEAD_DECAY, fused=False)
        for _ in range(_HEAD_STEPS):
            with self._autocast():
                loss = self._task_loss(head, 10_000 + step, self._case.held_out, body_learns=False)
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()  # they stop when it no longer changes
            optimizer.step()
            optimizer.zero_grad()
        with self._autocast():
            loss = self._task_loss(head, 20_000 + step, self._case.held_out)
        loss.backward()  # type: ignore[no-untyped-call]
        return self._taken()

    def _taken(self) -> list[Tensor]:
        """A copy of every weight's gradient, zeros where it has none."""
        taken = []
        for weight in self.model.parameters():
            taken.append(torch.zeros_like(weight) if weight.grad is None else weight.grad.detach().clone())
            weight.grad = None
        return taken

    def _task_loss(self, head: nn.Module, step: int, size: int, *, body_learns: bool = True) -> Tensor:
        places = generator(SEED, "task", step).choice(TEXTS, size, replace=False)
        ids = self._tokens["task"][places].to(self._device)
        with torch.set_grad_enabled(body_learns):
            first = self.model.bert(input_ids=ids).last_hidden_state[:, 0]
        return functional.cross_entropy(head(first), self._labels[places].to(self._device))

    def _lm_loss(self, name: str, step: int) -> Tensor:
        random = generator(SEED, name, step)
        ids = self._tokens[name][random.choice(TEXTS, self._case.rows, replace=False)].clone()
        hidden = torch.from_numpy(random.random(ids.shape) < MASKED_SHARE)
        targets = torch.where(hidden, ids, torch.full_like(ids, _IGNORED))
        ids[hidden] = SPECIAL["mask"]
        loss: Tensor = self.model(input_ids=ids.to(self._device), labels=targets.to(self._device)).loss
        return loss

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._device.type == "cuda")

    def _new_head(self) -> nn.Sequential:
        layers: list[Any] = [nn.Dropout(0.1), nn.Linear(self._width, self._width), nn.Tanh()]
        return nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(self._width, CLASSES)).to(self._device)


def _cosine(one: list[Tensor], other: list[Tensor]) -> float:
    """Weight by weight, each sum read by the host."""
    product = sum((a * b).sum().item() for a, b in zip(one, other, strict=True))
    squares = [sum((a * a).sum().item() for a in side) for side in (one, other)]
    return float(product / ((squares[0] * squares[1]) ** 0.5 + 1e-12))
