"""Aligned objectives in a whole run: packed, trained, resumed, exported, with and without their head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

import endtask
from endtask.config import Settings, resolve
from endtask.encoders.network import TASK
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.pipeline.run import Run
from endtask.tokenization.aligned_texts import AlignedTexts
from endtask.training.initial_network import aligned_class, copy_aligned_head, network_for
from endtask.training.metrics_file import read_metrics
from endtask.training.pretrain_phase import pretrain_phase
from tests.aligned_toy import linked_rows
from tests.toy_run import toy_settings, write_rows

OBJECTIVES = {
    "mlm": {"kind": "mlm", "texts": "aligned"},
    "links": {"kind": "hyperlinks"},
    "letters": {"kind": "acronyms"},
    "next": {"kind": "next_sentence"},
    "own": {"kind": "hyperlinks", "span_labels": "bio"},
}
MODEL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{**row, "text": f"{row['text']} They saw Green River Bridge."} for row in linked_rows()]
    return write_rows(tmp_path_factory.mktemp("linked") / "linked.jsonl", rows)


def tree_for(toy: Path, output: Path, linked: Path, aligned: dict[str, Any] | None = None, **train: Any) -> Any:
    settings = toy_settings(toy, output, model=MODEL)
    settings["aligned"] = {"sources": [{"path": str(linked)}], **(aligned or {})}
    settings["select"] = {"name": "none"}
    common = {"max_length": 48, "batch_size": 8, "checkpoint_steps": 2, "weighting": "equal", "objectives": OBJECTIVES}
    settings["pretrain"] = {**common, **train}
    settings["finetune"] = {**settings["finetune"], "seeds": [0], "epochs": 1}
    return settings


@pytest.fixture(scope="module")
def done(toy: Path, linked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with all aligned objectives."""
    return endtask.run(tree_for(toy, tmp_path_factory.mktemp("aligned") / "run", linked)).folder


def test_every_objective_is_trained_and_has_its_curve(done: Path) -> None:
    rows = read_metrics(done / "pretrain" / "metrics.jsonl")
    names = {"mlm/mlm", "links/spans", "letters/match", "next/match", "own/spans"}
    assert names <= rows[-1].keys()
    assert rows[-1]["links/spans"] < rows[0]["links/spans"]


def test_heads_are_saved_with_stage_1_and_left_out_of_the_model(done: Path) -> None:
    weights, _ = load_tensors(done / "pretrain" / "weights.safetensors")
    heads = {name.split(".")[1] for name in weights if name.startswith("heads.")}
    aligned = {"aligned_links", "aligned_letters", "aligned_letters+words", "aligned_next", "aligned_own"}
    assert heads == {"masked_lm", "task", *aligned}
    model, report = AutoModelForSequenceClassification.from_pretrained(done / "model", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.config.num_labels == 3


def test_packed_texts_are_counted_and_a_changed_corpus_is_met(
    done: Path, toy: Path, linked: Path, tmp_path: Path
) -> None:
    counts = json.loads((done / "pack" / "manifest.json").read_text())["counts"]["aligned"]
    texts = AlignedTexts(done / "pack" / "aligned")
    assert counts["texts"] == len(texts)
    assert len(texts.links.values) > 60
    settings = resolve(tree_for(toy, done, linked))
    assert Run(settings).first_clash() is None
    unguided = {**OBJECTIVES, "letters": {"kind": "acronyms", "guided": False}}
    other = write_rows(tmp_path / "linked.jsonl", [{"text": "another text here", "links": []}])
    assert Run(resolve(tree_for(toy, done, other))).first_clash() == "pack"
    assert Run(resolve(tree_for(toy, done, linked, objectives=unguided))).first_clash() == "pretrain"


@pytest.mark.parametrize("weighting", ["equal", "alternate"])
def test_a_run_stopped_after_any_step_ends_with_the_same_bits(
    weighting: str, toy: Path, linked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = endtask.run(tree_for(toy, tmp_path / "whole", linked, weighting=weighting), until="pretrain")
    settings = tree_for(toy, tmp_path / "killed", linked, weighting=weighting)
    endtask.run(settings, until="pack")
    import endtask.training.phase_runner as phase_run

    counted, count = phase_run._count, 0

    def killed(memory: Any, record: Any) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        counted(memory, record)

    monkeypatch.setattr(phase_run, "_count", killed)
    with pytest.raises(KeyboardInterrupt):
        endtask.run(settings, until="pretrain")
    monkeypatch.undo()
    endtask.run(settings, until="pretrain")
    one, other = (
        load_tensors(folder / "pretrain" / "weights.safetensors")[0] for folder in (whole.folder, tmp_path / "killed")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("architecture", ["bert"])
def test_objectives_train_with_other_options_and_encoders(
    architecture: str, toy: Path, linked: Path, tmp_path: Path
) -> None:
    objectives = {
        "links": {"kind": "hyperlinks", "span_labels": "bio"},
        "letters": {"kind": "acronyms", "guided": False},
        "next": {"kind": "next_sentence"},
    }
    settings = tree_for(toy, tmp_path / "run", linked, objectives=objectives, max_length=64)
    settings["model"] = {**MODEL, "architecture": architecture}
    settings["budget"] = "2steps"
    assert endtask.run(settings, until="pretrain").stages["pretrain"]["steps"] == 2


@pytest.mark.parametrize(
    ("rows", "objective", "message"),
    [
        ([{"text": "River stone. Green cloud."}], {"kind": "hyperlinks"}, "there is no span.*links"),
        ([{"text": "River stone. Green cloud."}], {"kind": "next_sentence"}, "no two documents"),
        ([{"text": "7 8 9."}], {"kind": "acronyms"}, "two words in a row"),
    ],
)
def test_text_that_gives_nothing_is_refused(
    rows: list[dict[str, Any]], objective: dict[str, str], message: str, toy: Path, tmp_path: Path
) -> None:
    source = write_rows(tmp_path / "rows.jsonl", rows)
    settings = tree_for(toy, tmp_path / "run", source, objectives={"own": objective})
    with pytest.raises(InputError, match=f"aligned.sources.*{message}"):
        endtask.run(settings, until="pretrain")


def test_an_unknown_source_of_subword_sampling_is_named(toy: Path, linked: Path, tmp_path: Path) -> None:
    settings = tree_for(toy, tmp_path / "run", linked, {"subword_sampling": ["linkd"]})
    settings["tokenizer"] = {"kind": "unigram", "vocab_size": 200}
    with pytest.raises(InputError, match=r"no source 'linkd'.*linked"):
        endtask.run(settings, until="pack")


def kept(toy: Path, linked: Path, done: Path, objectives: dict[str, Any]) -> tuple[Run, Settings]:
    tree = tree_for(toy, done, linked, objectives=objectives)
    settings = resolve({**tree, "finetune": {**tree["finetune"], "head": "aligned"}})
    return Run(settings), settings


def test_a_head_is_kept_by_the_names_of_its_classes(toy_pairs: Path, linked: Path, done: Path) -> None:
    run, settings = kept(toy_pairs, linked, done, {"letters": {"kind": "acronyms"}})
    network = network_for(run.task, done / "pack", settings)
    network.config.id2label = {0: "yes", 1: "no"}
    network.heads[TASK] = network.architecture.task_head(network.config)
    copy_aligned_head(network, settings)
    source, target = network.heads["aligned_letters"].classifier, network.heads[TASK].classifier
    assert torch.equal(target.weight, source.weight[[1, 0]])
    assert torch.equal(network.heads[TASK].head.dense.weight, network.heads["aligned_letters"].head.dense.weight)


def test_a_head_of_other_classes_is_not_kept(toy: Path, linked: Path, done: Path) -> None:
    run, settings = kept(toy, linked, done, {"letters": {"kind": "acronyms"}})
    network = network_for(run.task, done / "pack", settings)
    with pytest.raises(InputError, match=r"finetune.head.*food, space, sport"):
        copy_aligned_head(network, settings)


def test_names_of_classes_are_understood() -> None:
    boundaries, bio = ("none", "start", "end", "both"), ("O", "B", "I")
    assert [aligned_class(label, boundaries) for label in ("O", "S", "e", "S&E", "none")] == [0, 1, 2, 3, 0]
    assert [aligned_class(label, bio) for label in ("O", "B-gene", "I-gene", "B", "other")] == [0, 1, 2, 1, None]


def test_the_costs_of_a_phase_can_be_planned(toy: Path, linked: Path, done: Path) -> None:
    from endtask.config import Budget
    from endtask.training.budget_plan import measure_cost

    settings = resolve(tree_for(toy, done, linked))
    phase = pretrain_phase(Run(settings).task, done / "pack", settings)
    cost = measure_cost(phase, Budget.parse("100ktok"))
    assert cost.tokens > 100
    assert cost.flops > 0
