"""A bundle trained on a machine without task and corpus gives the same bits, or a clear error for missing data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask.bundle import unbundle, write_bundle
from endtask.config import load_settings
from endtask.errors import InputError
from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_selection
from endtask.io.stage_folder import left_out
from endtask.pipeline.run import Run
from endtask.reporting.results import results_of
from endtask.retrieval.provenance import why_passage
from endtask.selectors.export import export_selection
from tests.bundle.conftest import Bundled
from tests.toy_run import hashes, results, toy_settings, write_toy


def run_in(folder: Path, *overrides: str) -> Run:
    given = {"output_dir": str(folder)}
    return Run(load_settings(folder / "settings.yaml", given=given, overrides=overrides))


@pytest.fixture
def unpacked(bundled: Bundled, tmp_path: Path) -> Path:
    return unbundle(bundled.tokens, tmp_path / "there")


def test_tokens_train_to_the_same_bits(bundled: Bundled, unpacked: Path) -> None:
    assert not bundled.data.exists()
    result = endtask.run(unpacked)
    assert list(result.stages) == ["read", "retrieve", "select", "pack", "pretrain", "finetune", "evaluate", "model"]
    assert results(unpacked) == results(bundled.run)
    assert left_out(unpacked / "select") == [SELECTION]
    assert "selection.parquet" not in {file.name for file in unpacked.rglob("*")}
    page = (unpacked / "report.html").read_text()
    assert "The selected texts stayed on the machine where the bundle was made" in page
    assert "Kept passages</th>" not in page
    assert "Passages selected</dt>" in page


def test_text_is_packed_there_to_the_same_bits(bundled: Bundled, tmp_path: Path) -> None:
    folder = unbundle(bundled.text, tmp_path / "there")
    assert not (folder / "pack").exists()
    there, here = (list(read_selection(run / "select" / SELECTION)) for run in (folder, bundled.run))
    assert there == here
    endtask.run(folder)
    assert results(folder) == results(bundled.run)
    assert hashes(folder / "pack", "*/*") == hashes(bundled.run / "pack", "*/*")


def test_another_vocabulary_for_the_text(bundled: Bundled, tmp_path: Path) -> None:
    folder = unbundle(bundled.text, tmp_path / "there")
    counts = run_in(folder, "tokenizer.vocab_size=80").execute(until="pack").stages["pack"]
    assert counts["vocabulary"] == 80


def test_the_task_is_read_back_equal(bundled: Bundled, unpacked: Path, tmp_path: Path) -> None:
    write_toy(tmp_path / "again")
    original = endtask.Task.read(tmp_path / "again" / "task")
    copy = run_in(unpacked).task
    assert copy.fingerprint == original.fingerprint
    assert (copy.name, copy.type, copy.labels, copy.notes) == ("task", "text", original.labels, original.notes)
    for split, examples in original.splits.items():
        assert [(one.id, one.text, one.label, one.row) for one in copy.splits[split]] == [
            (one.id, one.text, one.label, one.row) for one in examples
        ]


def test_splits_that_were_carved_stay_as_they_are(tmp_path: Path) -> None:
    data = write_toy(tmp_path / "data")
    for split in ("dev", "test"):
        (data / "task" / f"{split}.jsonl").unlink()
    run = Run(load_settings(given=toy_settings(data, tmp_path / "run")))
    run.execute(until="pack")
    write_bundle(run.folder, tmp_path / "run.tar.zst")
    shutil.rmtree(data)
    there = run_in(unbundle(tmp_path / "run.tar.zst", tmp_path / "there"))
    assert there.task == run.task
    assert len(there.task.dev) == 6
    assert there.plan(until="pack") == [(stage, "finished") for stage in ("read", "retrieve", "select", "pack")]


def test_sources_of_the_domain_are_not_looked_for_there(tmp_path: Path) -> None:
    data = write_toy(tmp_path / "data")
    train = {
        "max_length": 16,
        "batch_size": 8,
        "weighting": "equal",
        "objectives": {"task": {"kind": "task"}, "dapt": {"kind": "mlm", "texts": "domain"}},
    }
    tree = toy_settings(data, tmp_path / "run", pretrain=train, domain={"sources": ["corpus"]}, select={"name": "none"})
    run = Run(load_settings(given=tree))
    run.execute(until="pack")
    write_bundle(run.folder, tmp_path / "run.tar.zst")
    shutil.rmtree(data)
    there = unbundle(tmp_path / "run.tar.zst", tmp_path / "there")
    assert run_in(there).execute(until="pretrain").stages["pretrain"]["steps"] == 6
    redone = run_in(there, "domain.sources=[corpse]")
    with pytest.raises(InputError, match=r"the stage select cannot be done here: the corpus \(.*\) stayed"):
        redone.execute(start="select")


def test_changed_training_redoes_only_what_is_after(bundled: Bundled, unpacked: Path) -> None:
    before = hashes(unpacked / "pack")
    changed = run_in(unpacked, "pretrain.learning_rate=2e-3", "finetune.epochs=1", "budget=4steps", "pretrain.seed=5")
    assert [state for _, state in changed.plan()] == ["finished"] * 4 + ["to do"] * 4
    assert changed.execute(until="pretrain").stages["pretrain"]["steps"] == 4
    assert hashes(unpacked / "pack") == before
    with pytest.raises(InputError, match=r"pretrain.learning_rate \(0.002 -> 0.003\).*--from pretrain"):
        run_in(unpacked, "pretrain.learning_rate=3e-3").execute()


@pytest.mark.parametrize(
    ("overrides", "start", "said"),
    [
        (["select.budget=20%"], "select", "the files of the stage retrieve stayed"),
        (["tokenizer.vocab_size=80"], "pack", "the files of the stage select stayed"),
        (["retrieve.top_k=2"], "retrieve", r"the corpus \(.*corpus.jsonl\) stayed"),
        (["select.name=random"], "select", r"the corpus \(.*corpus.jsonl\) stayed"),
    ],
)
def test_stages_that_need_what_is_not_there(unpacked: Path, overrides: list[str], start: str, said: str) -> None:
    before = hashes(unpacked, "*.*", "*/**/*")
    changed = run_in(unpacked, *overrides)
    with pytest.raises(InputError, match=f"the stage {start} cannot be done here: {said} .*nothing was touched"):
        changed.execute(start=start)
    assert dict(changed.plan(start=start))[start].startswith("cannot be done here: ")
    assert hashes(unpacked, "*.*", "*/**/*") == {**before, ".lock": hashes(unpacked, ".lock")[".lock"]}


def test_another_split_cannot_be_carved_there(unpacked: Path) -> None:
    with pytest.raises(
        InputError, match=r"the bundle holds the task as read with another seed.*no such file or folder"
    ):
        run_in(unpacked, "seed=3").execute(until="pack")


def test_without_the_corpus_all_can_be_done_there(bundled: Bundled, unpacked: Path) -> None:
    """A new run below the unpacked folder reads the same copy of the task."""
    tree = toy_settings(bundled.data, unpacked / "cells" / "no-corpus" / "seed-0", select={"name": "none"})
    result = endtask.run(tree, until="pack")
    assert result.stages["select"]["passages"] == 0
    assert result.stages["pack"]["train"]["texts"] == 60


def test_what_asks_for_the_texts_is_told_where_they_are(unpacked: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the selected texts stayed on the machine where the bundle was made"):
        export_selection(unpacked, tmp_path / "kept.jsonl")
    with pytest.raises(InputError, match="the files of the stage retrieve stayed"):
        why_passage(unpacked, "corpus/corpus.jsonl#1")


def test_a_bundle_of_what_came_out_of_a_bundle(bundled: Bundled, unpacked: Path, tmp_path: Path) -> None:
    made = write_bundle(unpacked, tmp_path / "again.tar.zst")
    assert made.file.read_bytes() == bundled.tokens.read_bytes()
    with pytest.raises(InputError, match=r"selection.parquet was left out of the bundle that this run came from"):
        write_bundle(unpacked, tmp_path / "text.tar.zst", kind="text")


@pytest.mark.parametrize("own_tokenizer", [False, True])
def test_a_checkpoint_travels_with_the_run(bundled: Bundled, tmp_path: Path, own_tokenizer: bool) -> None:
    data = write_toy(tmp_path / "data")
    shutil.copytree(bundled.run / "model", data / "model")
    changes: dict[str, Any] = {"model": {"path": str(data / "model")}, "skip_pretraining": True, "budget": "30steps"}
    if own_tokenizer:
        shutil.copytree(bundled.run / "pack" / "tokenizer", data / "tokenizer")
        changes["tokenizer"] = {"path": str(data / "tokenizer")}
    here = endtask.run(toy_settings(data, tmp_path / "here", **changes)).folder
    write_bundle(here, tmp_path / "here.tar.zst")
    shutil.rmtree(data)
    there = unbundle(tmp_path / "here.tar.zst", tmp_path / "there")
    endtask.run(there)
    assert results(there) == results(here)
    settings = load_settings(there / "settings.yaml")
    assert settings.model.path == str(data / "model"), "as it was given, so that fingerprints stay"


def test_an_imported_selection_need_not_be_there(bundled: Bundled, tmp_path: Path) -> None:
    data = write_toy(tmp_path / "data")
    export_selection(bundled.run, data / "mine.jsonl")
    select = {"name": "imported", "path": str(data / "mine.jsonl"), "budget": None}
    here = endtask.run(
        toy_settings(data, tmp_path / "here", corpus={"sources": []}, select=select), until="pack"
    ).folder
    write_bundle(here, tmp_path / "here.tar.zst")
    shutil.rmtree(data)
    there = unbundle(tmp_path / "here.tar.zst", tmp_path / "there")
    assert endtask.run(there, until="pretrain").stages["pretrain"]["steps"] == 6
    with pytest.raises(InputError, match=r"the selection \(.*mine.jsonl\) stayed"):
        run_in(there).execute(start="select")


def test_results_come_back_small_and_equal(bundled: Bundled, unpacked: Path) -> None:
    endtask.run(unpacked)
    there, here = results_of(unpacked), results_of(bundled.run)
    for key in ("test", "dev", "predictions", "settings", "labels"):
        assert there[key] == here[key], key
    assert len(json.dumps(there)) < 20_000
