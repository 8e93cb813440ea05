"""Measure endtask: every single candidate against every single target, and the agreement with scores in float32."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.selection.cases import ENDTASK_SHORT, Case, Row
from benchmarks.selection.inputs import (
    Setup,
    candidate_batches,
    device_context_of,
    network_of,
    target_batches,
    tensor_float,
)
from benchmarks.training.inputs import LEARNING_RATE
from benchmarks.training.peers import parameters_of
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.gradients.engine import GradientEngine, masked_lm_losses, task_losses
from endtask.gradients.rows import Units
from endtask.gradients.scoring import score_batches
from endtask.gradients.targets import Targets, Workload, make_plan

TARGET_BATCH = 256
_WARMUP, _CHECKED = 5, 5
_BATCHES = 2
_TARGETS = 512
_FITTING_BATCH = 128


def score_candidates(case: Case, setup: Setup) -> Row:
    """Score candidates and return speed and memory."""
    context = device_context_of(case)
    network = network_of(case, setup, context)
    engine = GradientEngine(network, ["last"], context, compiled=case.compiled)
    started = time.perf_counter()
    targets = store_targets(network, context, setup)
    context.synchronize()
    seconds_of_targets = time.perf_counter() - started
    score = partial(score_one, engine, targets)
    started = time.perf_counter()
    for _ in score_batches(_batches(case, setup, network, _WARMUP), score, context):
        pass
    first_seconds = time.perf_counter() - started
    statistics = _timed(case, setup, network, context, score)
    return {
        **statistics,
        "targets": setup.targets,
        "seconds_of_targets": round(seconds_of_targets, 3),
        "seconds_of_warmup": round(first_seconds, 3),
        "bytes_per_target": round(targets.bytes_per_target, 1),
        "strategy": targets.plan.record()[0]["strategy"],
        "attention": network.backend,
        "parameters": parameters_of(network),
        "waits": _waits_for_device(case, setup, network, score),
    }


def store_targets(network: Network, context: DeviceContext, setup: Setup) -> Targets:
    """Return the gradients of all single targets."""
    engine = GradientEngine(network, ["last"], context)
    targets: Targets | None = None
    for indices, batch in target_batches(setup, network, TARGET_BATCH):
        gradients = engine.gradients(batch, task_losses)
        if targets is None:
            (sample,) = candidate_batches(setup, network, 4, 1)
            workload = Workload(setup.candidates, setup.targets, setup.targets)
            plan = make_plan(engine.gradients(sample, masked_lm_losses), gradients, workload)
            targets = Targets(plan, Units.single(setup.targets))
        targets.add(gradients, indices)
    assert targets is not None
    return targets


def score_one(engine: GradientEngine, targets: Targets, batch: TextBatch, *, fast: bool = True) -> Tensor:
    """Return the scores of every candidate of a batch against every target: (candidates, targets)."""
    gradients = engine.gradients(batch, masked_lm_losses)
    with tensor_float(fast):
        return targets.scores(gradients)


def _timed(case: Case, setup: Setup, network: Network, context: DeviceContext, score: partial[Tensor]) -> Row:
    tokens: list[int] = []
    flops: list[float] = []

    def counted() -> Iterator[TextBatch]:
        for batch in _batches(case, setup, network, max(1, setup.candidates // case.batch)):
            tokens.append(batch.real_tokens)
            flops.append(network.training_flops(batch) / 3)  # of the forward pass
            yield batch

    context.synchronize()
    started = time.perf_counter()
    checksum, done = 0.0, 0
    for scores in score_batches(counted(), score, context):
        checksum += float(scores[0, 0])
        done += len(scores)
    seconds = time.perf_counter() - started
    return {
        "candidates": done,
        "mean_tokens": round(sum(tokens) / done, 2),
        "seconds": round(seconds, 4),
        "candidates_per_second": round(done / seconds, 1),
        "tflops_of_forward": round(sum(flops) / seconds / 1e12, 1),
        "checksum": checksum,
    }


def _batches(case: Case, setup: Setup, network: Network, count: int) -> Iterator[TextBatch]:
    text = "task" if case.engine == ENDTASK_SHORT else "full"
    return candidate_batches(setup, network, case.batch, count, text)


def _waits_for_device(case: Case, setup: Setup, network: Network, score: partial[Tensor]) -> str | None:
    """Return the first synchronization with the GPU while a batch is scored, or "none"; None on a CPU."""
    if case.device != "cuda":
        return None
    batches = [batch.pin() for batch in _batches(case, setup, network, _CHECKED)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            score(batch)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "none"


def agreement(case: Case, setup: Setup) -> Row:
    """Return rank correlations over the candidates between fast and exact scores: their mean and minimum over targets."""
    setup = replace(setup, targets=min(_TARGETS, setup.targets))
    context = device_context_of(case)
    network = network_of(case, setup, context)
    losses = fit(network, setup, context)
    fast = scores_of(network, case, setup, context, compiled=case.compiled, fast=True)
    exact_context = DeviceContext(context.device)
    network.dtype, network.backend = torch.float32, "padded"
    exact = scores_of(network, case, setup, exact_context, compiled=False, fast=False)
    correlations = rank_correlations(fast, exact)
    return {
        "targets": setup.targets,
        "candidates": len(exact),
        "fitting_steps": setup.fitting_steps,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "rank_correlation": round(float(correlations.mean()), 5),
        "lowest_rank_correlation": round(float(correlations.min()), 5),
    }


def fit(network: Network, setup: Setup, context: DeviceContext) -> list[float]:
    """Train on candidates and targets for a few steps, since gradients of random weights are untypical."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), fused=False)
    size = min(_FITTING_BATCH, setup.targets)
    labelled = [batch.to(context.device) for _, batch in target_batches(setup, network, size)]
    losses: list[Tensor] = []
    network.train()
    for step, batch in enumerate(candidate_batches(setup, network, size, setup.fitting_steps)):
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
    network: Network, case: Case, setup: Setup, context: DeviceContext, *, compiled: bool, fast: bool
) -> Tensor:
    """Return the scores of some candidates, always with the same masks: (candidates, targets)."""
    engine = GradientEngine(network, ["last"], context, compiled=compiled)
    targets = store_targets(network, context, setup)
    batches = candidate_batches(setup, network, case.batch, _BATCHES)
    return torch.cat([score_one(engine, targets, batch, fast=fast).cpu() for batch in batches])


def rank_correlations(first: Tensor, second: Tensor) -> Tensor:
    """Return Spearman's correlation for each target: twice (candidates, targets) -> (targets,).

    >>> scores = torch.tensor([[1.0, 5.0], [2.0, 4.0], [3.0, 6.0]])
    >>> rank_correlations(scores, scores * torch.tensor([2.0, -1.0])).tolist()
    [1.0, -1.0]
    """
    ranks = [scores.argsort(0).argsort(0).double() for scores in (first, second)]
    centred = [rank - rank.mean(0) for rank in ranks]
    return (centred[0] * centred[1]).sum(0) / (centred[0].square().sum(0) * centred[1].square().sum(0)).sqrt()
