"""Ours: every candidate by itself against every target by itself; and how its scores agree with those in float32."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from benchmarks.selection.cases import OURS_SHORT, Case, Row
from benchmarks.selection.inputs import Bench, candidate_batches, network_of, place_of, target_batches, tensor_float
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
_WARMUP, _WATCHED = 5, 5


def ours(case: Case, bench: Bench) -> Row:
    """Score and count."""
    context = place_of(case)
    network = network_of(case, bench, context)
    engine = GradientEngine(network, ["last"], context, compiled=case.compiled)
    started = time.perf_counter()
    targets = kept_targets(network, context, bench)
    context.synchronize()
    seconds_of_targets = time.perf_counter() - started
    score = partial(score_one, engine, targets)
    started = time.perf_counter()
    for _ in score_batches(_batches(case, bench, network, _WARMUP), score, context):
        pass
    first_seconds = time.perf_counter() - started
    statistics = _timed(case, bench, network, context, score)
    return {
        **statistics,
        "targets": bench.targets,
        "seconds_of_targets": round(seconds_of_targets, 3),
        "seconds_of_warmup": round(first_seconds, 3),
        "bytes_per_target": round(targets.bytes_per_target, 1),
        "strategy": targets.plan.record()[0]["strategy"],
        "attention": network.backend,
        "parameters": parameters_of(network),
        "waits": _waits(case, bench, network, score),
    }


def kept_targets(network: Network, context: DeviceContext, bench: Bench) -> Targets:
    """The gradients of all targets, each by itself."""
    engine = GradientEngine(network, ["last"], context)
    kept: Targets | None = None
    for places, batch in target_batches(bench, network, TARGET_BATCH):
        gradients = engine.gradients(batch, task_losses)
        if kept is None:
            (few,) = candidate_batches(bench, network, 4, 1)
            work = Workload(bench.candidates, bench.targets, bench.targets)
            plan = make_plan(engine.gradients(few, masked_lm_losses), gradients, work)
            kept = Targets(plan, Units.single(bench.targets))
        kept.add(gradients, places)
    assert kept is not None
    return kept


def score_one(engine: GradientEngine, targets: Targets, batch: TextBatch, *, fast: bool = True) -> Tensor:
    """Every candidate of a batch against every target: (candidates, targets)."""
    gradients = engine.gradients(batch, masked_lm_losses)
    with tensor_float(fast):
        return targets.scores(gradients)


def _timed(case: Case, bench: Bench, network: Network, context: DeviceContext, score: partial[Tensor]) -> Row:
    tokens: list[int] = []
    flops: list[float] = []

    def counted() -> Iterator[TextBatch]:
        for batch in _batches(case, bench, network, max(1, bench.candidates // case.batch)):
            tokens.append(batch.real_tokens)
            flops.append(network.training_flops(batch) / 3)  # of a pass forward
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


def _batches(case: Case, bench: Bench, network: Network, count: int) -> Iterator[TextBatch]:
    text = "task" if case.engine == OURS_SHORT else "full"
    return candidate_batches(bench, network, case.batch, count, text)


def _waits(case: Case, bench: Bench, network: Network, score: partial[Tensor]) -> str | None:
    """Whether anything waits for the device while a batch is scored; None where it cannot be told."""
    if case.device != "cuda":
        return None
    batches = [batch.pin() for batch in _batches(case, bench, network, _WATCHED)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in islice(batches, _WATCHED):
            score(batch)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "none"


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
