"""Ours: every candidate by itself against every target by itself, through `endtask.gradients`.

Reading, masking and laying out the candidates is part of the time, as is the way of the scores to the CPU. Making the
targets ready is done once and timed apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from benchmarks.selection.cases import OURS_SHORT, Case, Row
from benchmarks.selection.inputs import Bench, candidate_batches, network_of, place_of, target_batches, tensor_float
from benchmarks.training.bert import parameters_of
from endtask.encoders.batch import TextBatch
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
