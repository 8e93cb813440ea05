"""A comparison prepared on one machine and trained on another, without task and corpus."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.bundle import write_bundle
from endtask.config import load_settings
from endtask.errors import InputError
from endtask.experiments import compare, read_comparison_folder
from tests.conftest import Answer
from tests.experiments.compare_stubs import Stubs, toy
from tests.toy_run import write_toy

TREE = {"variants": {"one": {}, "two": {"pretrain.learning_rate": 3e-3}}, "seeds": [0, 1]}


@pytest.fixture
def bundle(tmp_path: Path, stubs: Stubs) -> Path:
    """A bundle of a comparison prepared up to pack; what it was made from is gone."""
    data = write_toy(tmp_path / "data")
    compare(toy(data, tmp_path / "here"), TREE, until="pack")
    file = write_bundle(tmp_path / "here", tmp_path / "prepared.tar.zst").file
    shutil.rmtree(data)
    shutil.rmtree(tmp_path / "here")
    return file


def test_the_same_table_as_in_place(
    bundle: Path, toy_files: Path, tmp_path: Path, stubs: Stubs, command: Callable[..., Answer]
) -> None:
    stubs.calls.clear()
    answer = command(
        "compare", "--bundle", bundle, "--output", tmp_path / "there", "--results", tmp_path / "there.json"
    )
    assert answer.code == 0
    assert {call.split(" ")[1] for call in stubs.calls} == {"pretrain", "finetune", "evaluate"}
    here = compare(toy(toy_files, tmp_path / "in-place"), TREE)
    there = json.loads((tmp_path / "there.json").read_text())
    assert [run["predicted"] for run in there["trials"]] == [
        trial.predicted.tolist() for trials in here.trials.values() for trial in trials
    ]
    assert [row["score"] for row in there["rows"]] == [row["score"] for row in here.to_dict()["rows"]]
    stubs.calls.clear()
    again = command("compare", "--bundle", bundle, "--output", tmp_path / "there", "--quiet")
    assert (again.code, again.out, stubs.calls) == (0, answer.out, [])


@pytest.mark.long
def test_stopped_there_what_is_finished_can_be_taken_home(
    bundle: Path, tmp_path: Path, stubs: Stubs, command: Callable[..., Answer]
) -> None:
    words = ["compare", "--bundle", bundle, "--output", tmp_path / "there", "--results", tmp_path / "there.json"]
    stubs.trouble["two/seed-0 finetune"] = KeyboardInterrupt()
    assert command(*words).code == 130
    tree = json.loads((tmp_path / "there.json").read_text())
    names = ["one", "majority", "tfidf"]
    assert ([run["variant"] for run in tree["trials"]], tree["complete"], len(tree["missing"])) == (names, False, 7)
    stubs.calls.clear()
    assert command(*words, "--finished").code == 0
    tree = json.loads((tmp_path / "there.json").read_text())
    assert ([run["variant"] for run in tree["trials"]], tree["complete"], stubs.calls) == (names, False, [])
    assert tree["rows"][0]["score"]["low"] is not None
    assert command(*words).code == 0
    assert json.loads((tmp_path / "there.json").read_text())["complete"]


@pytest.mark.long
def test_selected_text_travels_too(tmp_path: Path, stubs: Stubs, command: Callable[..., Answer]) -> None:
    data = write_toy(tmp_path / "data")
    compare(toy(data, tmp_path / "here"), TREE, until="select")
    file = write_bundle(tmp_path / "here", kind="text").file
    shutil.rmtree(tmp_path / "here")
    stubs.calls.clear()
    assert command("compare", "--bundle", file, "--output", tmp_path / "there").code == 0
    assert stubs.of("pack") == ["one/seed-0", "no_corpus/seed-0", "random/seed-0"]
    tokenizer = load_settings(tmp_path / "there" / "variants" / "no_corpus" / "seed-0" / "settings.yaml").tokenizer.path
    assert tokenizer == str(tmp_path / "there" / "variants" / "one" / "seed-0" / "pack" / "tokenizer")


@pytest.mark.long
def test_variants_and_seeds_may_be_added_there(
    bundle: Path, tmp_path: Path, stubs: Stubs, command: Callable[..., Answer]
) -> None:
    stubs.calls.clear()
    words = ["--seeds", "0,5", "--variant", "three:pretrain.weighting.rho1=7", "--output", tmp_path / "there"]
    assert command("compare", "--bundle", bundle, *words).code == 0
    variants = ("one", "two", "three", "no_corpus", "random")
    assert stubs.of("pretrain") == [f"{name}/seed-{seed}" for seed in (0, 5) for name in variants]
    assert stubs.of("pack") == []
    stubs.calls.clear()
    assert command("compare", "--bundle", bundle, *words).code == 0  # the very same command goes on
    assert stubs.calls == []
    refused = command("compare", tmp_path / "there", "--variant", "four:select.budget=10%")
    assert refused.code == 2
    assert "stayed on the machine where the bundle was made" in refused.err


def test_defaults_of_the_other_machine_change_nothing(tmp_path: Path, stubs: Stubs, toy_files: Path) -> None:
    """Which baselines there are is decided once: a package may be installed on one machine alone."""
    compare(toy(toy_files, tmp_path / "out"), {"baselines": None}, until="read")
    settings, study, _ = read_comparison_folder(tmp_path / "out")
    assert study.baselines == {"majority": {}, "tfidf": {}, "no_corpus": {}, "random": {}}
    assert list(study.variants) == ["base"]
    assert (study.seeds, study.finetune_seeds, study.against) == ((0,), (0, 1), "base")
    assert settings.output_dir == str(tmp_path / "out")


def test_a_bundle_of_something_else(
    toy_files: Path, tmp_path: Path, stubs: Stubs, command: Callable[..., Answer]
) -> None:
    from endtask.pipeline.run import Run

    Run(toy(toy_files, tmp_path / "run")).execute(until="pack")
    file = write_bundle(tmp_path / "run").file
    answer = command("compare", "--bundle", file, "--output", tmp_path / "there")
    assert (answer.code, "holds no comparison (endtask run --bundle" in answer.err) == (2, True)
    assert not (tmp_path / "there").exists()
    with pytest.raises(InputError, match="no comparison here"):
        read_comparison_folder(tmp_path / "run")
