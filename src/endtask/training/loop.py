"""The training loop of every phase; phases differ in objectives, weighting and settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from endtask.seeds import derive
from endtask.training.distributed import last_of_objective
from endtask.training.graph_replay import Backward
from endtask.training.optimizer import Clipping, Optimizer
from endtask.training.phase import Phase
from endtask.training.prefetch import PreparedBatch, costs_by_objective, prefetched_batches
from endtask.weighting.gradients import ModuleGradients, SharedHeads


@dataclass(frozen=True)
class StepRecord:
    """Losses, norm and costs of a step; the tensors stay on the device."""

    step: int  # steps done so far, this one included
    learning_rate: float
    losses: dict[str, Tensor]  # "objective/part"
    grad_norm: Tensor
    tokens: int  # without padding
    padded_tokens: int
    flops: float  # matrix products, without padding
    by_objective: dict[str, tuple[int, float]] = field(default_factory=dict)  # tokens and FLOPs


def build_optimizer(phase: Phase) -> Optimizer:
    """Return the optimizer of a phase."""
    return Optimizer(
        phase.network,
        phase.settings,
        phase.context.device,
        learning_rate=phase.learning_rate,
        head_weight_decay=phase.head_weight_decay,
        clip=_clipping(phase),
    )


def _clipping(phase: Phase) -> Clipping:
    if phase.weighting.sees_gradients(0):
        return "each_head"  # heads learn from unweighted losses, whose large gradients would shrink the encoder's
    return "task_heads" if phase.clip_heads_apart else "global"


def train(phase: Phase, optimizer: Optimizer, start: int = 0, end: int | None = None) -> Iterator[StepRecord]:
    """Train from step `start` to `end` or the last step, and yield a record of each; the caller logs and saves.

    Batches and dropout depend on (seed, step) alone, so a resumed run needs weights, optimizer and weighting state
    only. The loop never waits for the device. A caller applies the phase's refresh hook between two calls.
    """
    phase.network.train()
    gradients, heads = ModuleGradients(phase.network.encoder), SharedHeads(phase.network.heads, phase.objectives)
    backward = Backward(phase.network, phase.context)
    with prefetched_batches(phase, start, end) as steps:
        for step, batches in enumerate(steps, start):
            _seed_dropout(derive(phase.seed, "dropout", step, *_path(phase)), phase.context.device)
            losses = _compute_gradients(phase, step, batches, gradients, heads, backward)
            factor = phase.rate_factor(step)
            outcome = optimizer.step(factor)
            phase.weighting.after_step(step, outcome.skipped)
            losses |= phase.weighting.values()
            yield StepRecord(
                step + 1,
                factor * optimizer.rate_scale * phase.learning_rate,
                losses,
                outcome.grad_norm,
                sum(batch.tokens for batch in batches),
                sum(batch.padded_tokens for batch in batches),
                sum(batch.flops for batch in batches),
                costs_by_objective(batches),
            )


def _path(phase: Phase) -> tuple[int, ...]:
    """Return what tells the dropout of this process from that of the first, which is that of a single process."""
    processes = phase.context.processes
    return () if processes.is_first else (processes.rank,)


def _seed_dropout(seed: int, device: torch.device) -> None:
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` also formats a stack trace for other devices
    else:
        torch.manual_seed(seed)


def _compute_gradients(
    phase: Phase,
    step: int,
    batches: list[PreparedBatch],
    gradients: ModuleGradients,
    heads: SharedHeads,
    backward: Backward,
) -> dict[str, Tensor]:
    """Set the gradients of a step; return the parts of the losses as means over its batches."""
    sees_gradients = phase.weighting.sees_gradients(step)
    parts: dict[str, list[Tensor]] = {}
    gradients.start()
    heads.start()
    names = [batch.scheduled.objective for batch in batches]
    for batch, name, is_last in zip(batches, names, last_of_objective(names), strict=True):
        # The batches of a step share its weight. Heads learn from unweighted losses of their own objectives, so a
        # learned weight does not change their learning rate (TARTAN, Algorithm 1).
        weight = (1.0 if sees_gradients else batch.scheduled.weight) / phase.batches_in(step)
        for part, value in backward(phase.objectives[name], batch.batch, weight, is_last=is_last).items():
            parts.setdefault(f"{name}/{part}", []).append(value)
        if sees_gradients:
            gradients.collect(name)
            heads.collect(name)
    losses = {name: values[0] if len(values) == 1 else torch.stack(values).mean() for name, values in parts.items()}
    losses = phase.context.processes.sums(losses)
    if sees_gradients:
        phase.weighting.observe_losses(step, losses)
        weights = phase.weighting.weigh(step, gradients.by_objective)
        gradients.spread(weights)
        heads.spread(weights)
    if phase.update_unused_heads:
        _fill_missing_gradients(phase)
    return losses


def _fill_missing_gradients(phase: Phase) -> None:
    heads = {head for objective in phase.objectives.values() for head in objective.heads}
    for weight in (weight for head in sorted(heads) for weight in phase.network.heads[head].parameters()):
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
