"""The one training loop: every phase of every method is this loop with other objectives, weights and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from endtask.models.network import Network
from endtask.objectives.base import Objective
from endtask.seeds import derive
from endtask.train.schedule import learning_rate_at
from endtask.weighting.base import Weighting


@dataclass(frozen=True)
class Phase:
    """What is trained, on what, how fast and for how long."""

    network: Network
    objectives: Mapping[str, Objective]
    weighting: Weighting
    steps: int
    learning_rate: float
    weight_decay: float
    warmup_fraction: float
    max_grad_norm: float
    seed: int
    device: torch.device


@dataclass(frozen=True)
class StepRecord:
    """What one step did; losses stay on the device until someone reads them."""

    step: int  # steps done so far, this one included
    learning_rate: float
    losses: dict[str, Tensor]  # "objective/part"
    tokens: int  # without padding
    padded_tokens: int


def build_optimizer(phase: Phase) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only, as BERT's."""
    parameters = [parameter for parameter in phase.network.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": phase.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = phase.device.type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=phase.learning_rate, betas=(0.9, 0.98), eps=1e-6, fused=fused)


def train(phase: Phase, optimizer: torch.optim.Optimizer, start: int = 0) -> Iterator[StepRecord]:
    """Train from step `start` to the end, yielding after every step; printing and saving are the caller's.

    Batches and dropout depend on (seed, step) alone, so weights and optimizer state are all a resumed run needs.
    """
    phase.network.train()
    for step in range(start, phase.steps):
        rate = learning_rate_at(
            step, steps=phase.steps, warmup_fraction=phase.warmup_fraction, peak=phase.learning_rate
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(derive(phase.seed, "dropout", step))
        losses: dict[str, Tensor] = {}
        tokens = padded = 0
        for turn in phase.weighting.turns(step):
            objective = phase.objectives[turn.objective]
            batch = objective.batch(turn.step)
            tokens += batch.real_tokens
            padded += batch.input_ids.numel()
            loss = objective.loss(phase.network, batch.to(phase.device))
            (turn.weight * loss.total).backward()  # type: ignore[no-untyped-call]
            losses |= {f"{objective.name}/{part}": value.detach() for part, value in loss.parts.items()}
        torch.nn.utils.clip_grad_norm_(phase.network.parameters(), phase.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield StepRecord(step + 1, rate, losses, tokens, padded)
