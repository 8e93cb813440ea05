"""The record of bundled inputs: its location, its comparison with the settings, and errors for broken records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endtask.config import Settings, resolve
from endtask.errors import InputError
from endtask.pipeline.inputs import (
    EXTERNAL_INPUTS,
    RECORD,
    BundledInput,
    BundledInputs,
    find_bundled_inputs,
    requested_inputs,
)
from endtask.pipeline.stages import STAGES

SETTINGS = resolve(
    {
        "task": {"path": "data/task"},
        "corpus": {"sources": [{"path": "data/corpus"}]},
        "tokenizer": {"path": "data/tokenizer"},
        "model": {"path": "data/model"},
    }
)


PIECE = {"name": "task", "requested": {}, "fingerprint": "1", "copy": "external_inputs/task-1"}
WRONG: tuple[dict[str, Any], ...] = (
    {"name": 1},
    {"name": "../x"},
    {"name": []},
    {"requested": []},
    {"fingerprint": 1},
    {"copy": 1},
)


def pieces(settings: Settings = SETTINGS, **copies: str) -> tuple[BundledInput, ...]:
    requested = requested_inputs(settings)
    return tuple(
        BundledInput(name, requested[name], f"mark of {name}", copies.get(name))
        for name in EXTERNAL_INPUTS
        if requested[name]
    )


def write(root: Path, *found: BundledInput) -> BundledInputs:
    root.mkdir(parents=True, exist_ok=True)
    bundled = BundledInputs(root, found)
    (root / RECORD).write_text(bundled.as_json())
    return bundled


def test_it_is_found_beside_the_run_and_above_the_runs_of_a_comparison(tmp_path: Path) -> None:
    written = write(tmp_path / "root", *pieces(task="external_inputs/task-1"))
    assert find_bundled_inputs(tmp_path / "root") == written
    assert find_bundled_inputs(tmp_path / "root" / "cells" / "a" / "seed-0").inputs == written.inputs
    assert find_bundled_inputs(tmp_path / "root" / "one" / "level" / "too" / "deep").inputs == ()
    assert find_bundled_inputs(tmp_path / "another").inputs == ()


def test_it_counts_only_for_what_was_asked(tmp_path: Path) -> None:
    bundled = write(tmp_path, *pieces())
    same = bundled.find("task", SETTINGS)
    assert same is not None
    assert same.fingerprint == "mark of task"
    changes: list[tuple[str, dict[str, Any]]] = [
        ("task", {"task": {"path": "data/other"}}),
        ("task", {"seed": 1}),
        ("corpus", {"corpus": {"sources": [{"path": "data/corpus"}], "deduplicate": False}}),
        ("corpus", {"select": {"name": "none"}}),
        ("tokenizer", {"tokenizer": {"path": "data/other"}}),
        ("checkpoint", {"model": {"path": "data/other"}}),
    ]
    for name, change in changes:
        changed = resolve({**SETTINGS.model_dump(mode="json"), **change})
        assert bundled.find(name, changed) is None, change
    trained = resolve({**SETTINGS.model_dump(mode="json"), "pretrain": {"learning_rate": 0.5}, "budget": "3min"})
    assert all(bundled.find(piece.name, trained) == piece for piece in bundled.inputs)


def test_paths_lead_to_the_copies(tmp_path: Path) -> None:
    bundled = BundledInputs(
        tmp_path, pieces(checkpoint="external_inputs/checkpoint-1", tokenizer="external_inputs/tokenizer-1")
    )
    here = bundled.local_settings(SETTINGS)
    assert here.model.path == str(tmp_path / "external_inputs" / "checkpoint-1")
    assert here.tokenizer.path == str(tmp_path / "external_inputs" / "tokenizer-1")
    assert here.task == SETTINGS.task
    assert BundledInputs(tmp_path).local_settings(SETTINGS) == SETTINGS
    assert bundled.why_missing("checkpoint", SETTINGS) is None
    assert "the corpus (data/corpus) stayed" in str(bundled.why_missing("corpus", SETTINGS))


def test_a_model_with_its_own_tokenizer(tmp_path: Path) -> None:
    settings = resolve({"model": {"path": "data/model"}})
    here = BundledInputs(tmp_path, pieces(settings, checkpoint="external_inputs/checkpoint-1")).local_settings(settings)
    assert here.tokenizer.path is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not the record of a bundle"),
        ("[]", "not the record of a bundle"),
        (json.dumps({"format": 1}), "not the record of a bundle"),
        (json.dumps({"format": 1, "inputs": [{"name": "task"}]}), "not the record of a bundle"),
        ("[" * 100_000, "not the record of a bundle"),
        *((json.dumps({"format": 1, "inputs": [{**PIECE, **wrong}]}), "not the record of a bundle") for wrong in WRONG),
        (json.dumps({"format": 2, "inputs": {}}), r"written by a newer endtask \(format 2\)"),
    ],
)
def test_a_record_that_is_broken_or_newer(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(InputError, match=said):
        find_bundled_inputs(tmp_path)


@pytest.mark.parametrize("copy", ["../task", "/etc", "external_inputs/../../task", "external_inputs/\0"])
def test_copies_that_lie_outside(tmp_path: Path, copy: str) -> None:
    write(tmp_path, *pieces(task=copy))
    with pytest.raises(InputError, match="the path of a copy leads out of the bundle"):
        find_bundled_inputs(tmp_path)


def test_what_stages_open() -> None:
    def opened(stage: str, **select: str) -> tuple[str, ...]:
        return STAGES[stage].inputs_opened(resolve({"select": select}))

    assert opened("retrieve") == ("corpus",)
    assert opened("select") == ()
    assert opened("select", name="imported", path="a.csv") == ("selection",)
    assert opened("select", name="random") == ("corpus",)
    assert opened("pretrain", name="random") == ()
