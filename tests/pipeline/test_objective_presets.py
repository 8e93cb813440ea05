"""Every preset with objectives runs from the command line, on toy data and with a few steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.encoders.weights import load_tensors
from endtask.reporting.costs import stage_costs
from endtask.reporting.page import summary
from endtask.reporting.run_folder import RunFolder
from endtask.training.metrics_file import read_metrics
from tests.conftest import Answer

pytestmark = pytest.mark.slow

Command = Callable[..., Answer]
SMALL = {
    "tokenizer.vocab_size": 200,
    "model.hidden_size": 16,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.max_position_embeddings": 32,
    "pretrain.max_length": 16,
    "pretrain.batch_size": 8,
    "pretrain.gradient_accumulation_steps": 1,
    "finetune.max_length": 16,
    "finetune.batch_size": 16,
    "finetune.epochs": 1,
    "finetune.seeds": [0],
    "retrieve.top_k": 5,
    "domain.amount": "1x",
    "threads": 1,
    "device": "cpu",
}
FROM_SCRATCH = [
    "tapt-scratch",
    "dapt-scratch",
    "dapt-tapt-scratch",
    "mt-tartan-scratch",
    "meta-tartan-scratch",
    "meta-tlm",
]
SCORED = {"pretrain.eval_steps": 2}


def run(command: Command, preset: str, toy: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """Run a preset and give the report's figures."""
    values = {**SMALL, **changes}
    if "tartan" in preset:
        values |= SCORED
    if preset.startswith("meta-tlm"):
        values["pretrain.objectives.task.batch_size"] = 8
    overrides = [part for key, value in values.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    answer = command(
        *("run", "--preset", preset, "--task", toy / "task", "--corpus", toy / "corpus.jsonl"),
        *("--budget", "6steps", "--output", output, *overrides),
    )
    assert answer.code == 0, answer.err
    return summary(output)


def test_learned_weights_on_a_selection_by_influence(toy: Path, tmp_path: Path, command: Command) -> None:
    """META on top of ISS: what trains is what the gradients chose, with weights that are learned."""
    asked = {
        "select.name": "influence",
        "select.budget": "20%retrieved",
        "select.epochs": 1,
        "select.uninformed": "warn",
    }
    found = run(command, "meta-tlm", toy, tmp_path / "run", **asked, **{"select.share_of_budget": None})
    assert found["missing"] == []
    manifests = [
        json.loads((tmp_path / "run" / stage / "manifest.json").read_text()) for stage in ("select", "retrieve")
    ]
    kept, retrieved = (manifest["counts"]["passages"] for manifest in manifests)
    assert 0 < kept < retrieved
    last = read_metrics(tmp_path / "run" / "pretrain" / "metrics.jsonl")[-1]
    weights = {name: last[f"weight/{name}"] for name in ("task", "task_mlm", "corpus")}
    assert sum(weights.values()) == pytest.approx(1, abs=1e-5)
    assert weights["corpus"] != pytest.approx(399 / 420, abs=1e-9)  # where they start


@pytest.mark.parametrize("preset", FROM_SCRATCH)
def test_from_random_weights(preset: str, toy: Path, tmp_path: Path, command: Command) -> None:
    found = run(command, preset, toy, tmp_path / "run")
    assert found["missing"] == []
    steps = {
        row["part"]: row["steps"] for row in found["objectives"] if row["steps"] and row["part"] != "learned weights"
    }
    assert (
        steps
        == {
            "tapt-scratch": {"tapt": 6},
            "dapt-scratch": {"dapt": 6},
            "dapt-tapt-scratch": {"dapt": 5, "tapt": 1},
            "mt-tartan-scratch": {"task": 6, "tapt": 6},
            "meta-tartan-scratch": {"task": 6, "tapt": 6},
            "meta-tlm": {"task": 6, "task_mlm": 6, "corpus": 6},
        }[preset]
    )
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ("of the domain (" in page) == preset.startswith("dapt")
    texts = {cost.stage: cost.bytes for cost in stage_costs(RunFolder(tmp_path / "run"))}
    assert bool(texts["select"]) == preset.startswith(("dapt", "meta-tlm"))
    assert ("trained without a corpus" in page) == (
        preset in ("tapt-scratch", "mt-tartan-scratch", "meta-tartan-scratch")
    )
    weights = {row["part"]: row["weight"] for row in found["objectives"] if row["weight"] is not None}
    assert set(weights) == (set(steps) if preset.startswith("meta") else set())
    if weights:
        assert sum(weights.values()) == pytest.approx(1, abs=1e-5)
        assert "weights of the objectives" in page


@pytest.mark.parametrize("preset", ["dapt-tapt", "meta-tartan"])
def test_from_a_checkpoint(preset: str, toy: Path, finished_run: Path, tmp_path: Path, command: Command) -> None:
    table_2 = {"pretrain.objectives.dapt.weight": 1} if "tartan" in preset else {}
    found = run(command, preset, toy, tmp_path / "run", **{"model.path": str(finished_run / "model")}, **table_2)
    assert found["missing"] == []
    parts = [row["part"] for row in found["objectives"] if row["steps"] and row["part"] != "learned weights"]
    assert (
        parts
        == {
            "dapt-tapt": ["dapt", "tapt"],
            "meta-tartan": ["task", "dapt", "tapt"],
        }[preset]
    )
    splits = {row["part"]: row["split"] for row in found["objectives"]}
    assert splits.get("learned weights") == ("train, held-out gradient of dev" if preset == "meta-tartan" else None)


def test_a_changed_domain_is_met_with_the_stage_to_redo(toy: Path, tmp_path: Path, command: Command) -> None:
    words = ("run", "--preset", "dapt-scratch", "--task", toy / "task", "--corpus", toy / "corpus.jsonl")
    words = (*words, "--output", tmp_path / "run", "--until", "select", "--set")
    first = command(*words, "domain.amount=1x", "--json")
    assert json.loads(first.out)["stages"]["select"]["domain"]["passages"] == 60
    answer = command(*words, "domain.amount=2x")
    assert answer.code == 2
    assert "settings changed: domain" in answer.err
    assert "--from select" in answer.err


def test_without_a_corpus_the_domain_is_asked_for(toy: Path, tmp_path: Path, command: Command) -> None:
    answer = command("run", "--preset", "dapt-scratch", "--task", toy / "task", "--output", tmp_path / "run")
    assert answer.code == 2
    assert "pretrain.objectives.dapt.texts" in answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("preset", ["meta-tlm", "dapt-tapt-scratch"])
def test_check_tells_which_split_feeds_what(preset: str, toy: Path, tmp_path: Path, command: Command) -> None:
    overrides = [part for key, value in SMALL.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    corpus = ("--corpus", toy / "corpus.jsonl", "--budget", "6steps")
    answer = command("check", "--preset", preset, "--task", toy / "task", *corpus, *overrides)
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith("objective ")]
    table = [line.split()[0] for line in lines[start + 1 : lines.index("", start)]]
    assert table[0] == {"meta-tlm": "task", "dapt-tapt-scratch": "dapt"}[preset]
    assert "time " in answer.out


def test_replaced_tokens_train_the_encoder_and_are_not_exported(command: Command, toy: Path, tmp_path: Path) -> None:
    objectives = {"corpus": {"kind": "replaced", "texts": "selection"}, "task": {"kind": "joint"}}
    changes = {"pretrain.objectives": objectives, "pretrain.weighting.rho1": 1}
    run(command, "laptop", toy, tmp_path / "run", **changes)
    rows = read_metrics(tmp_path / "run" / "pretrain" / "metrics.jsonl")
    names = {name for row in rows for name in row}
    assert {"corpus/mlm", "corpus/replaced", "task/mlm", "task/task"} <= names
    kept, _ = load_tensors(tmp_path / "run" / "pretrain" / "weights.safetensors")
    assert any(name.startswith("heads.generator.") for name in kept)
    exported, _ = load_tensors(tmp_path / "run" / "model" / "model.safetensors")
    assert not any("generator" in name or "replaced" in name for name in exported)
