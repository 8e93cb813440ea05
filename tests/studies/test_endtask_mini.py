"""The study of endtask-mini at toy size: filter, transfer of tokens in parts, exact resume, and a loadable model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.results_file import read_results
from endtask.config import ModelSettings
from endtask.encoders.checkpoint import load_network, open_checkpoint
from endtask.encoders.weights import load_tensors
from endtask.io import installed_package
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.tokenizer import load_tokenizer
from studies import endtask_mini

LEAKED = "this whole sentence of the test set must never be read by a model in its training"
STEPS = 60


@pytest.fixture(scope="module")
def study() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endtask_mini, "HELD_OUT_EVERY", 20)
        patch.setattr(endtask_mini, "ProcessPoolExecutor", _InProcess)
        yield endtask_mini


@pytest.fixture(scope="module")
def work(study: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus in which each animal has a sound of its own, prepared."""
    data = tmp_path_factory.mktemp("data")
    task = data / "tasks" / "toy"
    task.mkdir(parents=True)
    (task / "test.jsonl").write_text(json.dumps({"text": LEAKED, "label": "a"}) + "\n")
    (task / "train.jsonl").write_text(
        json.dumps({"text": "a train text may be read as often as one wants", "label": "a"})
    )
    sounds = {"cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack"}
    rows = [f"in house {number} the {who} says {what} ." for number in range(60) for who, what in sounds.items()]
    rows.insert(7, f"here it is : {LEAKED} , and on")
    (data / "corpus").mkdir()
    (data / "corpus" / "toy.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    folder = data / "work"
    study.prepare(data, folder, ["corpus"], None, 200)
    return folder


class _InProcess:
    """A pool without processes, which would take longer to start than all the work."""

    def __init__(self, workers: int, initializer: Any = None, initargs: tuple[Any, ...] = ()) -> None:
        if initializer:
            initializer(*initargs)

    def __enter__(self) -> _InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    map = staticmethod(map)


def train(study: ModuleType, work: Path, name: str, seconds: float = float("inf")) -> dict[str, Any]:
    settings = study.settings_of(learning_rate=5e-3, batch_tokens=1024, size="tiny", device="cpu")
    settings = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update={"checkpoint_steps": 20})})
    report: dict[str, Any] = study.train(work, work / name, settings, STEPS, seconds)
    return report


def test_passages_with_a_test_text_are_dropped_and_nothing_else(work: Path) -> None:
    counts = json.loads((work / "counts.json").read_text())
    assert counts["contaminated_by_source"] == {"toy": 1}
    assert counts["passages_read"] == 241
    assert counts["train"]["passages"] + counts["held_out"]["passages"] == 240


def test_tokens_travel_in_parts(study: ModuleType, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(study, "PART_BYTES", 300)
    study.split(work, tmp_path / "parts")
    parts = sorted((tmp_path / "parts").glob("part-*.xz"), reverse=True)
    assert len(parts) > 1
    there = tmp_path / "parts" / "rest"
    study.join(parts, there)
    before, after = PackedTexts(work / "train"), PackedTexts(there / "train")
    assert all(np.array_equal(before[index], after[index]) for index in range(len(before)))
    with pytest.raises(study.InputError, match="a part is missing"):
        study.join(parts[1:], there)


@pytest.mark.long
@pytest.mark.slow
def test_a_stopped_training_resumes_exactly_and_the_saved_model_knows_its_text(
    study: ModuleType, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(study, work, "whole")
    stopped = train(study, work, "run", seconds=0.0)
    assert (whole["step"], stopped["step"]) == (STEPS, 20)
    resumed = train(study, work, "run")
    assert resumed["held_out_loss"] == whole["held_out_loss"] < stopped["held_out_loss"]
    ours, theirs = (load_tensors(work / name / "checkpoint.safetensors")[0] for name in ("whole", "run"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    monkeypatch.setattr(installed_package, "_SHIPPED", tmp_path)
    study.save(work, work / "run", tmp_path / "toy_mini", "tiny")
    path = "package:toy-mini"
    tokenizer, checkpoint = load_tokenizer(path), open_checkpoint(path)
    assert checkpoint.config.vocab_size >= len(tokenizer) + study.SPARE_ROWS
    network = load_network(checkpoint, ModelSettings(), pad_id=tokenizer.pad_token_id, labels=("a", "b"), seed=0)
    assert all(weight.dtype == torch.float32 for weight in network.parameters())
    loss = study.measure(work, tmp_path / "toy_mini", tmp_path)
    assert loss == pytest.approx(whole["held_out_loss"], abs=0.1)  # spare vectors take a little of the softmax
    summary = read_results("endtask_mini", tmp_path).summary
    assert (summary["steps"], summary["gpu_seconds"]) == (STEPS, pytest.approx(stopped["seconds"] + resumed["seconds"]))
    assert guesses(tokenizer, tmp_path / "toy_mini") == ["says", "house"]


def guesses(tokenizer: Any, folder: Path) -> list[str]:
    """What stands at [MASK], by the stock model of Hugging Face."""
    from transformers import AutoModelForMaskedLM

    model = AutoModelForMaskedLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    found = []
    for text in ("in house 5 the cow [MASK] moo .", "in [MASK] 5 the duck says quack ."):
        ids = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            logits = model(**ids).logits[0]
        found.append(tokenizer.decode(logits[ids["input_ids"][0] == tokenizer.mask_token_id].argmax(-1)))
    return found
