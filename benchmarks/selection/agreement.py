"""How well scores in the fast precision rank as scores in float32 do, on a network fitted for a while."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.selection.cases import Case, Row
from benchmarks.selection.inputs import Bench, candidate_batches, network_of, place_of, target_batches
from benchmarks.selection.ours import kept_targets, score_one
from benchmarks.training.inputs import LEARNING_RATE
from endtask.encoders.batch import IGNORED
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.gradients.engine import GradientEngine

_BATCHES = 2
_TARGETS = 512
_FITTING_BATCH = 128


def agreement(case: Case, bench: Bench) -> Row:
    """Rank correlations over the candidates, target by target."""
    few = replace(bench, targets=min(_TARGETS, bench.targets))
    context = place_of(case)
    network = network_of(case, few, context)
    losses = fit(network, few, context)
    fast = scores_of(network, case, few, context, compiled=case.compiled, fast=True)
    exact_place = DeviceContext(context.device)
    network.dtype, network.backend = torch.float32, "padded"
    exact = scores_of(network, case, few, exact_place, compiled=False, fast=False)
    each = rank_correlations(fast, exact)
    return {
        "targets": few.targets,
        "candidates": len(exact),
        "fitting_steps": few.fitting_steps,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "rank_correlation": round(float(each.mean()), 5),
        "lowest_rank_correlation": round(float(each.min()), 5),
    }


def fit(network: Network, bench: Bench, context: DeviceContext) -> list[float]:
    """Train on candidates and targets for a few steps, so that gradients are not those of random weights."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), fused=False)
    size = min(_FITTING_BATCH, bench.targets)
    labelled = [batch.to(context.device) for _, batch in target_batches(bench, network, size)]
    losses: list[Tensor] = []
    network.train()
    for step, batch in enumerate(candidate_batches(bench, network, size, bench.fitting_steps)):
        batch, targets = batch.to(context.device), labelled[step % len(labelled)]
        with context.autocast():
            logits = network.task_logits(network(targets), targets)
            assert targets.labels is not None
            task = torch.nn.functional.cross_entropy(logits, targets.labels, ignore_index=IGNORED)
            loss = network.masked_lm_loss(network(batch), batch) + task
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [round(float(loss), 4) for loss in losses]


def scores_of(
    network: Network, case: Case, bench: Bench, context: DeviceContext, *, compiled: bool, fast: bool
) -> Tensor:
    """Scores of some candidates, always with the same masks: (candidates, targets)."""
    engine = GradientEngine(network, ["last"], context, compiled=compiled)
    targets = kept_targets(network, context, bench)
    batches = candidate_batches(bench, network, case.batch, _BATCHES)
    return torch.cat([score_one(engine, targets, batch, fast=fast).cpu() for batch in batches])


def rank_correlations(one: Tensor, other: Tensor) -> Tensor:
    """Spearman's, for each target: two times (candidates, targets) -> (targets,).

    >>> scores = torch.tensor([[1.0, 5.0], [2.0, 4.0], [3.0, 6.0]])
    >>> rank_correlations(scores, scores * torch.tensor([2.0, -1.0])).tolist()
    [1.0, -1.0]
    """
    ranks = [scores.argsort(0).argsort(0).double() for scores in (one, other)]
    centred = [rank - rank.mean(0) for rank in ranks]
    return (centred[0] * centred[1]).sum(0) / (centred[0].square().sum(0) * centred[1].square().sum(0)).sqrt()
