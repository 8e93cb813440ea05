"""The one training loop: every phase of every method is this loop with other objectives, weights and settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from endtask.seeds import derive
from endtask.training.graph_replay import Backward
from endtask.training.optimizer import Clipping, Optimizer
from endtask.training.phase import Phase
from endtask.training.prefetch import PreparedBatch, costs_by_objective, prefetched_batches
from endtask.weighting.gradients import ModuleGradients, SharedHeads


@dataclass(frozen=True)
class StepRecord:
    """What one step did; losses and norm stay on the device until someone reads them."""

    step: int  # steps done so far, this one included
    learning_rate: float
    losses: dict[str, Tensor]  # "objective/part"
    grad_norm: Tensor
    tokens: int  # without padding
    padded_tokens: int
    flops: float  # matrix products, padding left out
    by_objective: dict[str, tuple[int, float]] = field(default_factory=dict)  # tokens and FLOPs of who had a turn


def build_optimizer(phase: Phase) -> Optimizer:
    """The optimizer of a phase."""
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
        return "each head apart"  # heads learn by unweighted losses, whose long gradients would shorten the encoder's
    return "heads apart" if phase.clip_heads_apart else "together"


def train(phase: Phase, optimizer: Optimizer, start: int = 0, end: int | None = None) -> Iterator[StepRecord]:
    """Train from step `start` to the last or to `end`, yielding after every step; printing and saving are the caller's.

    Batches and dropout depend on (seed, step) alone, so weights, optimizer and weighting state are all a resumed run
    needs. Nothing in here waits for the device. Where a phase has a refresh hook, its caller runs it between two calls.
    """
    phase.network.train()
    gradients, heads = ModuleGradients(phase.network.encoder), SharedHeads(phase.network.heads, phase.objectives)
    backward = Backward(phase.network, phase.context)
    with prefetched_batches(phase, start, end) as batches:
        for step, prepared in enumerate(batches, start):
            _seed_dropout(derive(phase.seed, "dropout", step), phase.context.device)
            losses = _gradients(phase, step, prepared, gradients, heads, backward)
            factor = phase.rate_factor(step)
            outcome = optimizer.step(factor)
            phase.weighting.after_step(step, outcome.skipped)
            losses |= phase.weighting.values()
            yield StepRecord(
                step + 1,
                factor * optimizer.rate_scale * phase.learning_rate,
                losses,
                outcome.grad_norm,
                sum(one.tokens for one in prepared),
                sum(one.padded_tokens for one in prepared),
                sum(one.flops for one in prepared),
                costs_by_objective(prepared),
            )


def _seed_dropout(seed: int, device: torch.device) -> None:
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` formats a stack trace for every other device
    else:
        torch.manual_seed(seed)


def _gradients(
    phase: Phase,
    step: int,
    prepared: list[PreparedBatch],
    gradients: ModuleGradients,
    heads: SharedHeads,
    backward: Backward,
) -> dict[str, Tensor]:
    """Leave the step's gradient in the weights; returns the parts of the losses, means over the batches."""
    sees_gradients = phase.weighting.sees_gradients(step)
    parts: dict[str, list[Tensor]] = {}
    gradients.start()
    heads.start()
    for one in prepared:
        name = one.scheduled.objective
        # Batches of a step share its weight. Heads learn from their own objectives alone, so that a learned weight
        # has no part in their rate (TARTAN, Algorithm 1).
        weight = (1.0 if sees_gradients else one.scheduled.weight) / phase.batches_in(step)
        for part, value in backward(phase.objectives[name], one.batch, weight).items():
            parts.setdefault(f"{name}/{part}", []).append(value)
        if sees_gradients:
            gradients.collect(name)
            heads.collect(name)
    losses = {name: values[0] if len(values) == 1 else torch.stack(values).mean() for name, values in parts.items()}
    if sees_gradients:
        phase.weighting.see_losses(step, losses)
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
