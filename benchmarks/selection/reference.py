"""The authors' way: one gradient for each mini-batch of candidates, by a full backward pass, in train mode.

As in the published code of ISS: dropout is on, the loss of a mini-batch is its mean masked-LM loss, autograd runs
through the whole network, the gradient of the last layer's attention output projection is multiplied with the stored
gradients of mini-batches of targets, and the scores go to the CPU after every mini-batch. Their BERT computes
vocabulary logits at every position; `lean` does so at the masked ones only, which is faster. Batches lie ready on the
device, and the stored gradients are random numbers: the time of a product does not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.selection.cases import LENGTH, PAPER_TARGETS, SIZES, Case, Row
from benchmarks.selection.inputs import Bench, candidate_batches, network_of, place_of, tensor_float
from benchmarks.training.bert import parameters_of
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import Network
from endtask.gradients.capture import choose_weights

_WARMUP, _LEAST = 3, 3
_PREPARED = 8
"""Batches that lie ready, read in turn."""


def reference(case: Case, bench: Bench) -> Row:
    """Score and count."""
    place = place_of(case)
    network = network_of(case, bench, place).train()
    batches = [batch.to(place.device) for batch in candidate_batches(bench, network, case.batch, _PREPARED)]
    model, weight, loss_of = _huggingface(case, network, batches) if case.network == "bert" else _lean(network, batches)
    units = max(1, bench.targets // PAPER_TARGETS)
    stored = torch.randn(units, weight.numel(), device=place.device)

    def score(number: int) -> Tensor:
        model.zero_grad()
        with place.autocast():
            loss = loss_of(number % _PREPARED)
        loss.backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None
        return (weight.grad.view(1, -1) @ stored.T).cpu()

    with tensor_float(case.precision != "float32"):
        statistics = timed(score, case.batch, bench.seconds)
    return {
        **statistics,
        "targets": bench.targets,
        "bytes_per_target": stored.nbytes / units / PAPER_TARGETS,
        "parameters": parameters_of(model),
    }


def timed(score: Callable[[int], Tensor], batch: int, limit: float) -> Row:
    """Candidates per second of something that waits for its result after every batch."""
    for number in range(_WARMUP):
        score(number)
    started = time.perf_counter()
    done = 0
    checksum = 0.0
    while done < _LEAST or time.perf_counter() - started < limit:
        checksum += float(score(done).flatten()[0])
        done += 1
    seconds = time.perf_counter() - started
    return {
        "candidates": done * batch,
        "seconds": round(seconds, 4),
        "candidates_per_second": round(done * batch / seconds, 1),
        "checksum": checksum,
    }


Prepared = tuple[nn.Module, nn.Parameter, Callable[[int], Tensor]]


def _lean(network: Network, batches: list[TextBatch]) -> Prepared:
    (weight,) = choose_weights(network, ["last"]).values()

    def loss(number: int) -> Tensor:
        return network.masked_lm_loss(network(batches[number]), batches[number])

    return network, weight, loss


def _huggingface(case: Case, network: Network, batches: list[TextBatch]) -> Prepared:
    """`BertForMaskedLM` with Hugging Face's own loss."""
    from transformers import BertForMaskedLM

    model: Any = BertForMaskedLM(network.config).to(network.embeddings.device).train()
    tables = list(_tables(batches))

    def loss(number: int) -> Tensor:
        out: Tensor = model(**tables[number]).loss
        return out

    layer = SIZES[case.size].layers - 1
    return model, model.get_parameter(f"bert.encoder.layer.{layer}.attention.output.dense.weight"), loss


def _tables(batches: list[TextBatch]) -> Iterator[dict[str, Tensor]]:
    """Ids and labels of full sequences: (S, 128) each."""
    for batch in batches:
        assert batch.even
        assert batch.masked_positions is not None
        assert batch.masked_targets is not None
        labels = torch.full_like(batch.input_ids, IGNORED)
        labels[batch.masked_positions[: batch.masked]] = batch.masked_targets[: batch.masked]
        ids = batch.input_ids.view(-1, LENGTH)
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels.view(-1, LENGTH)}
