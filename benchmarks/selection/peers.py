"""The peers of endtask: the ISS authors' code, per-example gradients by `torch.func`, kronfluence."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional
from torch.utils.data import Dataset

from benchmarks.selection.cases import LENGTH, PAPER_TARGETS, SIZES, Case, Row
from benchmarks.selection.inputs import (
    Setup,
    candidate_batches,
    device_context_of,
    network_of,
    target_batches,
    tensor_float,
)
from benchmarks.training.peers import parameters_of
from endtask.encoders.attention import attention_metadata
from endtask.encoders.batch import IGNORED, TextBatch, as_table
from endtask.encoders.lean_layers import LeanEncoder
from endtask.encoders.network import MASKED_LM, TASK, Network
from endtask.gradients.capture import choose_weights, frozen
from endtask.gradients.engine import layer_of, lower

_WARMUP, _LEAST = 3, 3
_PREPARED = 8
"""The number of prepared batches, which are read round robin."""
_MATRICES = 64  # gradients of candidates in memory at once
_QUERY_BATCH = 250
_SHORT, _LONG = 1, 12  # batches of candidates
Sample = dict[str, Tensor]


def reference(case: Case, setup: Setup) -> Row:
    """Score candidates like the ISS authors, and return speed and memory."""
    context = device_context_of(case)
    network = network_of(case, setup, context).train()
    batches = [batch.to(context.device) for batch in candidate_batches(setup, network, case.batch, _PREPARED)]
    model, weight, loss_of = _huggingface(case, network, batches) if case.network == "bert" else _lean(network, batches)
    units = max(1, setup.targets // PAPER_TARGETS)
    stored = torch.randn(units, weight.numel(), device=context.device)

    def score(number: int) -> Tensor:
        model.zero_grad()
        with context.autocast():
            loss = loss_of(number % _PREPARED)
        loss.backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None
        return (weight.grad.view(1, -1) @ stored.T).cpu()

    with tensor_float(case.precision != "float32"):
        statistics = timed(score, case.batch, setup.seconds)
    return {
        **statistics,
        "targets": setup.targets,
        "bytes_per_target": stored.nbytes / units / PAPER_TARGETS,
        "parameters": parameters_of(model),
    }


def timed(score: Callable[[int], Tensor], batch: int, limit: float) -> Row:
    """Return the candidates per second of a function that waits for its result after every batch."""
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
    """Return `BertForMaskedLM` with Hugging Face's loss."""
    from transformers import BertForMaskedLM

    model: Any = BertForMaskedLM(network.config).to(network.embeddings.device).train()
    tables = list(_tables(batches))

    def loss(number: int) -> Tensor:
        out: Tensor = model(**tables[number]).loss
        return out

    layer = SIZES[case.size].layers - 1
    return model, model.get_parameter(f"bert.encoder.layer.{layer}.attention.output.dense.weight"), loss


def _tables(batches: list[TextBatch]) -> Iterator[dict[str, Tensor]]:
    """Yield ids and labels of full sequences: (S, 128) each."""
    for batch in batches:
        assert batch.even
        assert batch.masked_positions is not None
        assert batch.masked_targets is not None
        labels = torch.full_like(batch.input_ids, IGNORED)
        labels[batch.masked_positions[: batch.masked]] = batch.masked_targets[: batch.masked]
        ids = batch.input_ids.view(-1, LENGTH)
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels.view(-1, LENGTH)}


def per_example(case: Case, setup: Setup) -> Row:
    """Score candidates by `torch.func`, and return speed and memory."""
    context = device_context_of(case)
    # The weights have the lower precision, since there is no autocast inside vmap.
    network = network_of(case, setup, context).to(context.dtype)
    assert isinstance(network.encoder, LeanEncoder)
    weight = layer_of(network.encoder, len(network.encoder.layers) - 1).attn.Wo.weight
    batches = [batch.to(context.device) for batch in candidate_batches(setup, network, case.batch, _PREPARED)]
    tables = [masked_table(batch) for batch in batches]
    stored = torch.randn(setup.targets, weight.numel(), device=context.device, dtype=context.dtype)

    def score(number: int) -> Tensor:
        gradients = gradients_of(network, batches[number % _PREPARED], *tables[number % _PREPARED])
        return (gradients.flatten(1) @ stored.T).cpu()

    with frozen(network):
        statistics = timed(score, case.batch, setup.seconds)
    statistics |= {"targets": setup.targets, "bytes_per_target": stored.nbytes / setup.targets}
    return {**statistics, "parameters": parameters_of(network)}


def gradients_of(network: Network, batch: TextBatch, positions: Tensor, answers: Tensor) -> Tensor:
    """Return the gradient of each candidate's mean loss: (S, height, width)."""
    encoder = network.encoder
    assert isinstance(encoder, LeanEncoder)
    last = len(encoder.layers) - 1
    layer = layer_of(encoder, last)
    metadata = attention_metadata(network.backend, batch)
    with torch.no_grad():
        hidden, mixed, _ = lower(encoder, last, batch, metadata, network.dtype, positions.flatten())
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
    """Return masked positions and their answers, a row for each candidate: (S, most masked) each."""
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    masked, answers = batch.masked_positions[: batch.masked], batch.masked_targets[: batch.masked]
    owners = batch.text_ids[masked]
    counts = torch.bincount(owners, minlength=batch.texts)
    slots = torch.arange(len(masked), device=masked.device) - (counts.cumsum(0) - counts)[owners]
    shape = (batch.texts, int(counts.max()))
    positions, table = masked.new_zeros(shape), answers.new_full(shape, IGNORED)
    positions[owners, slots], table[owners, slots] = masked, answers
    return positions, table


def kronfluence(case: Case, setup: Setup) -> Row:
    """Score candidates by kronfluence, if it is installed, and return speed and memory."""
    if find_spec("kronfluence") is None:
        return {"error": "not installed"}
    context = device_context_of(case)
    network = network_of(case, setup, context)
    weight = f"encoder.encoder.layer.{SIZES[case.size].layers - 1}.attention.output.dense"
    targets, candidates = target_samples(setup, network), candidate_samples(setup, network, case.batch * _LONG)
    analyzer = _analyzer(network, weight, setup.scratch / "kronfluence", on_cpu=case.device == "cpu")

    def seconds(count: int) -> float:
        context.synchronize()
        started = time.perf_counter()
        _score(analyzer, targets, Samples(candidates[:count]), case, context.dtype)
        context.synchronize()
        return time.perf_counter() - started

    seconds(case.batch)  # to warm up
    short, long = seconds(case.batch * _SHORT), seconds(case.batch * _LONG)
    counted = case.batch * (_LONG - _SHORT)
    return {
        "candidates": counted,
        "seconds": round(long - short, 4),
        "candidates_per_second": round(counted / max(1e-9, long - short), 1),
        "seconds_of_targets": round(short, 3),
        "targets": setup.targets,
        "bytes_per_target": 4 * SIZES[case.size].hidden ** 2,
        "parameters": parameters_of(network),
    }


class Samples(Dataset[Sample]):
    """A data set of single texts."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        return self._samples[index]


def candidate_samples(setup: Setup, network: Network, count: int) -> list[Sample]:
    """Return masked full sequences with their answers: (128,) each."""
    (batch,) = candidate_batches(setup, network, count, 1)
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    answers = torch.full_like(batch.input_ids, IGNORED)
    answers[batch.masked_positions[: batch.masked]] = batch.masked_targets[: batch.masked]
    ids = batch.input_ids.view(-1, LENGTH)
    return [
        {"input_ids": text, "attention_mask": torch.ones_like(text), "answers": answer}
        for text, answer in zip(ids, answers.view(-1, LENGTH), strict=True)
    ]


def target_samples(setup: Setup, network: Network) -> Samples:
    """Return labelled texts, padded to 128 tokens."""
    samples = []
    for _, batch in target_batches(setup, network, _QUERY_BATCH):
        table = as_table(batch, network.config.pad_token_id)
        padded = {
            name: functional.pad(table[name], (0, LENGTH - batch.longest)) for name in ("input_ids", "attention_mask")
        }
        assert batch.labels is not None
        samples += [
            {"input_ids": ids, "attention_mask": mask, "label": label}
            for ids, mask, label in zip(padded["input_ids"], padded["attention_mask"], batch.labels, strict=True)
        ]
    return Samples(samples)


def masked_loss(model: Network, batch: Sample) -> Tensor:
    """Return the sum of the candidates' mean losses."""
    hidden = _hidden(model, batch)  # (S, 128, hidden)
    masked = batch["answers"] != IGNORED
    logits = model.heads[MASKED_LM].logits(hidden[masked], model.embeddings)  # type: ignore[operator]
    losses = functional.cross_entropy(logits, batch["answers"][masked], reduction="none")
    return (losses / masked.sum(1, keepdim=True).expand_as(masked)[masked]).sum()


def task_loss(model: Network, batch: Sample) -> Tensor:
    """Return the sum of the targets' losses; the head reads the first token."""
    logits = model.heads[TASK](_hidden(model, batch)[:, 0])
    return functional.cross_entropy(logits, batch["label"], reduction="sum")


def _hidden(model: Network, batch: Sample) -> Tensor:
    out: Tensor = model.encoder(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    return out


def _analyzer(network: Network, weight: str, folder: Path, *, on_cpu: bool) -> Any:
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments
    from kronfluence.task import Task

    class Products(Task):  # type: ignore[misc]
        def compute_train_loss(self, batch: Sample, model: nn.Module, sample: bool = False) -> Tensor:
            return masked_loss(model, batch)  # type: ignore[arg-type]

        def compute_measurement(self, batch: Sample, model: nn.Module) -> Tensor:
            return task_loss(model, batch)  # type: ignore[arg-type]

        def get_influence_tracked_modules(self) -> list[str]:
            return [weight]

    shutil.rmtree(folder, ignore_errors=True)
    task = Products()
    model = prepare_model(network, task)
    analyzer = Analyzer("selection", model, task, cpu=on_cpu, disable_tqdm=True, output_dir=str(folder))
    identity = FactorArguments(strategy="identity")
    analyzer.fit_all_factors("identity", Samples([]), factor_args=identity, per_device_batch_size=1)
    return analyzer


def _score(analyzer: Any, targets: Samples, candidates: Samples, case: Case, dtype: torch.dtype) -> None:
    from kronfluence.arguments import ScoreArguments

    query_batch = min(_QUERY_BATCH, len(targets))
    arguments = ScoreArguments(
        amp_dtype=None if dtype == torch.float32 else dtype,
        query_gradient_accumulation_steps=-(-len(targets) // query_batch),
    )
    analyzer.compute_pairwise_scores(
        "scores",
        "identity",
        targets,
        candidates,
        per_device_query_batch_size=query_batch,
        per_device_train_batch_size=case.batch,
        score_args=arguments,
        overwrite_output_dir=True,
    )
