"""Measure the step of the TARTAN authors' code, on Hugging Face's BERT.

Every step fits the head by ten steps with a pass of the whole encoder each, computes vocabulary logits at all positions,
copies gradients weight by weight, and sums cosines from numbers that the host waits for. Costs of their code that the
method does not need (single precision, eager attention, the cache emptied at each step) are avoided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.training.cases import Case as TrainingCase
from benchmarks.training.peers import bert_masked_lm, parameters_of
from benchmarks.weighting.endtask_engine import (
    CLASSES,
    LEARNING_RATE,
    LENGTH,
    MASKED_SHARE,
    OBJECTIVES,
    SEED,
    SPECIAL,
    TEXTS,
    Case,
    Row,
    Setup,
    labels,
)
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts

_HEAD_STEPS, _HEAD_RATE, _HEAD_DECAY, _ETA = 10, 1e-3, 0.1, 1e-2
_IGNORED = -100


def train_like_authors(case: Case, setup: Setup) -> Row:
    """Train and return times and counts."""
    clock = setup.clock(case)
    trainer = _Trainer(case, setup)
    for step in range(clock.total):
        loss = trainer.step(step)
        clock.tick()
    tokens = setup.steps * len(OBJECTIVES) * case.rows * LENGTH
    return {**clock.statistics(), "tokens": tokens, "parameters": parameters_of(trainer.model), "loss": round(loss, 4)}


class _Trainer:
    """The model, its heads, and the logits of the objectives' weights."""

    def __init__(self, case: Case, setup: Setup) -> None:
        self._case, self._device = case, torch.device(case.device)
        shape = TrainingCase("", case.size, "full", case.rows, case.device, vocabulary=case.vocabulary)
        self.model = bert_masked_lm(shape, "sdpa").to(self._device).train()
        self._width = self.model.config.hidden_size
        self._head = self._new_head()
        parameters = [*self.model.parameters(), *self._head.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=False)
        self._logits = {name: 1.0 / len(OBJECTIVES) for name in OBJECTIVES}
        self._tokens = {name: _token_table(setup.texts(name, case.vocabulary)) for name in OBJECTIVES}
        self._labels = torch.from_numpy(labels())

    def step(self, step: int) -> float:
        """Train all objectives and their weights for a step; return the loss of masked LM."""
        gradients: dict[str, list[Tensor]] = {}
        losses: dict[str, float] = {}
        for name in OBJECTIVES:
            with self._autocast():
                if name == "task":
                    loss = self._task_loss(self._head, step, self._case.rows)
                else:
                    loss = self._lm_loss(name, step)
            loss.backward()  # type: ignore[no-untyped-call]
            losses[name] = loss.item()
            gradients[name] = self._take_gradients()
        held_out = self._held_out_gradients(step)
        for name, gradient in gradients.items():
            self._logits[name] += _ETA * _cosine(held_out, gradient)
        weights = torch.tensor(list(self._logits.values())).softmax(0).tolist()
        for index, parameter in enumerate(self.model.parameters()):
            parameter.grad = sum(
                weight * gradient[index] for weight, gradient in zip(weights, gradients.values(), strict=True)
            )
        self._optimizer.step()
        self._optimizer.zero_grad()
        return losses["tapt"]

    def _held_out_gradients(self, step: int) -> list[Tensor]:
        """Fit a new head by passes of the whole encoder, and return the gradients of other examples through it."""
        head = self._new_head()
        optimizer = torch.optim.AdamW(head.parameters(), lr=_HEAD_RATE, weight_decay=_HEAD_DECAY, fused=False)
        for _ in range(_HEAD_STEPS):
            with self._autocast():
                loss = self._task_loss(head, 10_000 + step, self._case.held_out, train_encoder=False)
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()  # the authors' code checks for convergence
            optimizer.step()
            optimizer.zero_grad()
        with self._autocast():
            loss = self._task_loss(head, 20_000 + step, self._case.held_out)
        loss.backward()  # type: ignore[no-untyped-call]
        return self._take_gradients()

    def _take_gradients(self) -> list[Tensor]:
        """Return copies of all gradients, zeros for weights without one, and clear them."""
        gradients = []
        for weight in self.model.parameters():
            gradients.append(torch.zeros_like(weight) if weight.grad is None else weight.grad.detach().clone())
            weight.grad = None
        return gradients

    def _task_loss(self, head: nn.Module, step: int, size: int, *, train_encoder: bool = True) -> Tensor:
        indices = generator(SEED, "task", step).choice(TEXTS, size, replace=False)
        ids = self._tokens["task"][indices].to(self._device)
        with torch.set_grad_enabled(train_encoder):
            first = self.model.bert(input_ids=ids).last_hidden_state[:, 0]
        return functional.cross_entropy(head(first), self._labels[indices].to(self._device))

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


def _token_table(texts: PackedTexts) -> Tensor:
    """Return the tokens of all texts: (texts, length)."""
    return torch.from_numpy(texts.gather(np.arange(TEXTS))[0]).view(TEXTS, LENGTH)


def _cosine(first: list[Tensor], second: list[Tensor]) -> float:
    """Return the cosine of gradients, weight by weight; the host waits for each sum."""
    product = sum((a * b).sum().item() for a, b in zip(first, second, strict=True))
    squares = [sum((a * a).sum().item() for a in gradients) for gradients in (first, second)]
    return float(product / ((squares[0] * squares[1]) ** 0.5 + 1e-12))
