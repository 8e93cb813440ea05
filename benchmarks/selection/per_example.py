"""Per-example gradients by `torch.func`: `vmap` of `grad` over the last layer's attention output projection.

All below it runs once for the whole batch, without autograd and not compiled. Above, each candidate's gradient is a
matrix of its own, and is multiplied with the targets' matrices. Those are random numbers; the time of a product does
not depend on them. Only the positions that are masked in a candidate are read, at most as many as in any of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from benchmarks.selection.cases import Case, Row
from benchmarks.selection.inputs import Bench, candidate_batches, network_of, place_of
from benchmarks.selection.reference import timed
from benchmarks.training.bert import parameters_of
from endtask.encoders.attention import guide_for
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.lean_layers import LeanEncoder
from endtask.encoders.network import Network
from endtask.gradients.capture import frozen
from endtask.gradients.engine import layer_of, lower

_PREPARED = 8
_MATRICES = 64  # gradients of candidates held at once


def per_example(case: Case, bench: Bench) -> Row:
    """Score and count."""
    place = place_of(case)
    # Weights themselves are narrow: inside vmap there is no autocast.
    network = network_of(case, bench, place).to(place.dtype)
    assert isinstance(network.encoder, LeanEncoder)
    weight = layer_of(network.encoder, len(network.encoder.layers) - 1).attn.Wo.weight
    batches = [batch.to(place.device) for batch in candidate_batches(bench, network, case.batch, _PREPARED)]
    read = [masked_table(batch) for batch in batches]
    stored = torch.randn(bench.targets, weight.numel(), device=place.device, dtype=place.dtype)

    def score(number: int) -> Tensor:
        gradients = gradients_of(network, batches[number % _PREPARED], *read[number % _PREPARED])
        return (gradients.flatten(1) @ stored.T).cpu()

    with frozen(network):
        statistics = timed(score, case.batch, bench.seconds)
    statistics |= {"targets": bench.targets, "bytes_per_target": stored.nbytes / bench.targets}
    return {**statistics, "parameters": parameters_of(network)}


def gradients_of(network: Network, batch: TextBatch, positions: Tensor, answers: Tensor) -> Tensor:
    """The gradient of each candidate's own mean loss: (S, height, width)."""
    encoder = network.encoder
    assert isinstance(encoder, LeanEncoder)
    last = len(encoder.layers) - 1
    layer = layer_of(encoder, last)
    guide = guide_for(network.backend, batch)
    with torch.no_grad():
        hidden, mixed, _ = lower(encoder, last, batch, guide, network.dtype, positions.flatten())
    head = network.heads["masked_lm"]

    def loss(weight: Tensor, hidden: Tensor, mixed: Tensor, answers: Tensor) -> Tensor:
        stream = layer.after_attention(hidden + functional.linear(mixed, weight))
        logits = head.logits(encoder.final_norm(stream), network.embeddings)  # type: ignore[operator]
        total = functional.cross_entropy(logits, answers, ignore_index=IGNORED, reduction="sum")
        return total / (answers != IGNORED).sum().clamp(min=1)

    each = vmap(grad(loss), in_dims=(None, 0, 0, 0), chunk_size=_MATRICES)
    shape = (*positions.shape, -1)  # (S, most masked, hidden)
    gradients: Tensor = each(layer.attn.Wo.weight.detach(), hidden.view(shape), mixed.view(shape), answers)
    return gradients


def masked_table(batch: TextBatch) -> tuple[Tensor, Tensor]:
    """Masked positions and their answers, one line per candidate: (S, most masked) each."""
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    where, answers = batch.masked_positions[: batch.masked], batch.masked_targets[: batch.masked]
    owners = batch.text_ids[where]
    counts = torch.bincount(owners, minlength=batch.texts)
    slots = torch.arange(len(where), device=where.device) - (counts.cumsum(0) - counts)[owners]
    shape = (batch.texts, int(counts.max()))
    positions, table = where.new_zeros(shape), answers.new_full(shape, IGNORED)
    positions[owners, slots], table[owners, slots] = where, answers
    return positions, table
