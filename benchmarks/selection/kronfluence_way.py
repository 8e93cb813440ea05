"""kronfluence: plain gradient products (its strategy `identity`) of single candidates and targets with BERT.

It reads all targets first and then the candidates, in one call; so the rate is that of the candidates by which a longer
call exceeds a shorter one. All targets are kept as whole gradients, for one reading of the candidates.
"""

from __future__ import annotations

import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from benchmarks.selection.cases import LENGTH, SIZES, Case, Row
from benchmarks.selection.inputs import Bench, candidate_batches, network_of, place_of, target_batches
from benchmarks.training.bert import parameters_of
from endtask.encoders.batch import IGNORED, as_table
from endtask.encoders.network import MASKED_LM, TASK, Network

_QUERY_BATCH = 250
_SHORT, _LONG = 1, 12  # batches of candidates
Sample = dict[str, Tensor]


def kronfluence(case: Case, bench: Bench) -> Row:
    """Score and count, where it is installed."""
    if find_spec("kronfluence") is None:
        return {"error": "not installed"}
    place = place_of(case)
    network = network_of(case, bench, place)
    weight = f"encoder.encoder.layer.{SIZES[case.size].layers - 1}.attention.output.dense"
    targets, candidates = target_samples(bench, network), candidate_samples(bench, network, case.batch * _LONG)
    analyzer = _analyzer(network, weight, bench.scratch / "kronfluence", on_cpu=case.device == "cpu")

    def seconds(count: int) -> float:
        place.synchronize()
        started = time.perf_counter()
        _score(analyzer, targets, Samples(candidates[:count]), case, place.dtype)
        place.synchronize()
        return time.perf_counter() - started

    seconds(case.batch)  # to warm up
    short, long = seconds(case.batch * _SHORT), seconds(case.batch * _LONG)
    counted = case.batch * (_LONG - _SHORT)
    return {
        "candidates": counted,
        "seconds": round(long - short, 4),
        "candidates_per_second": round(counted / max(1e-9, long - short), 1),
        "seconds_of_targets": round(short, 3),
        "targets": bench.targets,
        "bytes_per_target": 4 * SIZES[case.size].hidden ** 2,
        "parameters": parameters_of(network),
    }


class Samples(Dataset[Sample]):
    """Texts one by one."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        return self._samples[index]


def candidate_samples(bench: Bench, network: Network, count: int) -> list[Sample]:
    """Masked full sequences with their answers: (128,) each."""
    (batch,) = candidate_batches(bench, network, count, 1)
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    answers = torch.full_like(batch.input_ids, IGNORED)
    answers[batch.masked_positions[: batch.masked]] = batch.masked_targets[: batch.masked]
    ids = batch.input_ids.view(-1, LENGTH)
    return [
        {"input_ids": text, "attention_mask": torch.ones_like(text), "answers": answer}
        for text, answer in zip(ids, answers.view(-1, LENGTH), strict=True)
    ]


def target_samples(bench: Bench, network: Network) -> Samples:
    """Labelled texts, padded to 128 tokens."""
    samples = []
    for _, batch in target_batches(bench, network, _QUERY_BATCH):
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
    """The sum over the candidates of each one's own mean loss."""
    hidden = _hidden(model, batch)  # (S, 128, hidden)
    wanted = batch["answers"] != IGNORED
    logits = model.heads[MASKED_LM].logits(hidden[wanted], model.embeddings)  # type: ignore[operator]
    each = functional.cross_entropy(logits, batch["answers"][wanted], reduction="none")
    return (each / wanted.sum(1, keepdim=True).expand_as(wanted)[wanted]).sum()


def task_loss(model: Network, batch: Sample) -> Tensor:
    """The sum over the targets of their losses, read off the first token."""
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
    nothing = FactorArguments(strategy="identity")
    analyzer.fit_all_factors("identity", Samples([]), factor_args=nothing, per_device_batch_size=1)
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
