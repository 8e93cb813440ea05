"""A run of each preset family on toy data has the recorded losses and score.

The file recorded_losses.json was written by the code of commit 309245e. A difference means that a change altered what
is computed: either a fault, or something to be decided and recorded anew. Losses agree within 1e-5, as types of CPUs
differ in their last digits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import nn

import endtask
from endtask.config.loading import load_settings
from endtask.encoders.lean_layers import Dropout
from tests.aligned_toy import linked_rows
from tests.toy_run import toy_settings, write_rows, write_toy
from tests.toy_task_types import write_toy_of_type

RECORDED = json.loads(Path(__file__).with_name("recorded_losses.json").read_text(encoding="utf-8"))
SMALL = {
    "tokenizer": {"vocab_size": 200},
    "model": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    },
    "pretrain": {"max_length": 16, "batch_size": 8},
    "finetune": {"max_length": 16, "batch_size": 16, "epochs": 1, "seeds": [0]},
    "retrieve": {"top_k": 5},
    "budget": "9steps",
    "threads": 1,
    "device": "cpu",
}
SHARE = {"select": {"budget": "5%"}}
TWO_TO_ONE = {"pretrain": {"weighting": {"rho1": 2}}}
TLM = {
    "pretrain": {"weighting": {"rho1": 2}, "warmup_steps": 2},
    "finetune": {"epochs": 10, "max_steps": 6, "eval_steps": 3, "warmup_steps": 2},
}
TARTAN = {"pretrain": {"gradient_accumulation_steps": 1, "eval_steps": 4}, "domain": {"amount": "1x"}}
SCORING_MODEL = {"size": "tiny", "epochs": 1, "uninformed": "warn"}


class Family(NamedTuple):
    """A toy run: its preset, the kind of its task and what differs from `SMALL`."""

    preset: str | None
    task: str
    changes: tuple[dict[str, Any], ...]


FAMILIES = {
    "default": Family(
        None, "text", (TWO_TO_ONE, {"finetune": {"epochs": 2, "seeds": [0, 1]}, "select": {"budget": "50%"}})
    ),
    "tlm": Family("tlm-small", "text", (TLM,)),
    "iss": Family("iss-small", "text", (TLM, {"select": {**SCORING_MODEL, "target_batch": 4, "candidate_batch": 2}})),
    "influence": Family(
        None,
        "text",
        (
            TWO_TO_ONE,
            {"select": {"name": "influence", "budget": "40%retrieved", **SCORING_MODEL, "share_of_budget": None}},
        ),
    ),
    "meta": Family("meta-tartan-scratch", "text", (TARTAN,)),
    "meta-domain": Family(
        "meta-tartan-scratch", "text", (TARTAN, {"pretrain": {"objectives": {"dapt": {"weight": 1}}}})
    ),
    "mt": Family("mt-tartan-scratch", "text", (TARTAN,)),
    "dapt-tapt": Family("dapt-tapt-scratch", "text", (TARTAN, {"pretrain": {"eval_steps": None}})),
    "gpu": Family(
        "gpu",
        "text",
        (
            {
                "precision": "float32",
                "pretrain": {"objectives": {"task": {"batch_size": 8}}},
                "select": {"budget": "50%"},
            },
        ),
    ),
    "pair": Family(None, "pair", (TWO_TO_ONE, SHARE)),
    "token_classification": Family(None, "token_classification", (TWO_TO_ONE, SHARE)),
    "regression": Family(None, "regression", (TWO_TO_ONE, SHARE)),
    "multilabel": Family(None, "multilabel", (TWO_TO_ONE, SHARE)),
}


@pytest.fixture(autouse=True)
def masks_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is older than our own masks of dropout on a CPU."""
    monkeypatch.setattr(Dropout, "forward", nn.Dropout.forward)


def merged(*trees: dict[str, Any]) -> dict[str, Any]:
    """The union of nested settings, in which later ones win."""
    found: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            found[key] = merged(found.get(key, {}), value) if isinstance(value, dict) else value
    return found


def write_data(folder: Path, kind: str) -> Path:
    """Write the toy task and corpus of a kind."""
    if kind in ("text", "pair"):
        return write_toy(folder, pairs=kind == "pair")
    return write_toy_of_type(folder, kind)


def losses_of(run: Path) -> dict[str, list[dict[str, float]]]:
    """The losses of all steps, by folder of the run."""
    found = {}
    for file in sorted([*run.glob("pretrain/**/metrics.jsonl"), *run.glob("finetune/**/metrics.jsonl")]):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        losses = [{name: row[name] for name in row if is_loss(name)} for row in rows]
        found[str(file.parent.relative_to(run))] = [row for row in losses if row]
    return found


def is_loss(name: str) -> bool:
    return "/" in name and not name.startswith(("dev/", "weight/", "cosine/"))


def check(result: endtask.RunResult, recorded: dict[str, Any]) -> None:
    losses = losses_of(result.folder)
    assert losses.keys() == recorded["losses"].keys()
    for folder, rows in recorded["losses"].items():
        assert len(losses[folder]) == len(rows)
        for step, (now, then) in enumerate(zip(losses[folder], rows, strict=True)):
            assert now == pytest.approx(then, rel=1e-5, abs=1e-5), (folder, step)
    assert result.stages["evaluate"]["mean"] == pytest.approx(recorded["score"], abs=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    data = write_data(tmp_path / "data", family.task)
    inputs = {"task": {"path": str(data / "task")}, "corpus": {"sources": [{"path": str(data / "corpus.jsonl")}]}}
    tree = merged(SMALL, inputs, *family.changes, {"output_dir": str(tmp_path / "run")})
    result = endtask.run(load_settings(preset=family.preset, given=tree))
    check(result, RECORDED[name])


def test_alignment(tmp_path: Path) -> None:
    rows = [{**row, "text": f"{row['text']} They saw Green River Bridge."} for row in linked_rows()]
    linked = write_rows(tmp_path / "linked.jsonl", rows)
    tree = toy_settings(
        write_toy(tmp_path / "toy"), tmp_path / "run", model={**SMALL["model"], "max_position_embeddings": 64}
    )
    tree["aligned"] = {"sources": [{"path": str(linked)}]}
    tree["select"] = {"name": "none"}
    objectives = {
        "mlm": {"kind": "mlm", "texts": "aligned"},
        "links": {"kind": "hyperlinks"},
        "letters": {"kind": "acronyms"},
        "next": {"kind": "next_sentence"},
        "own": {"kind": "hyperlinks"},
    }
    tree["pretrain"] = {
        "max_length": 48,
        "batch_size": 8,
        "checkpoint_steps": 2,
        "weighting": "equal",
        "objectives": objectives,
    }
    tree["finetune"] = {**tree["finetune"], "seeds": [0], "epochs": 1}
    check(endtask.run(tree), RECORDED["aligned"])
