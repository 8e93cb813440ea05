"""The selector as a stage of a run: its fingerprint, the command line, and a checkpoint of the user."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask.config import resolve
from endtask.encoders.huggingface import save_masked_lm
from endtask.errors import InputError
from endtask.io.run_layout import HELPFUL
from endtask.pipeline.check import check
from endtask.pipeline.estimate import estimate_lines
from endtask.pipeline.run import Run
from endtask.reporting.costs import stage_costs
from endtask.reporting.run_folder import RunFolder
from endtask.selectors.influence.runner import InfluenceRunner
from endtask.tokenization.tokenizer import save_tokenizer
from tests.conftest import Answer
from tests.tiny import make_network, make_tokenizer
from tests.toy_run import hashes, toy_settings

Command = Callable[..., Answer]
OPTIONS = {"size": "tiny", "epochs": 1, "share_of_budget": None, "uninformed": "warn"}


def influence_run(toy: Path, output: Path, **changes: Any) -> dict[str, Any]:
    select = {"name": "influence", "budget": "20%retrieved", **OPTIONS}
    return toy_settings(toy, output, **{"select": select, **changes})


@pytest.fixture(scope="module")
def selected_run(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("influence") / "run"
    endtask.run(influence_run(toy, folder), until="select")
    return folder


@pytest.mark.parametrize(
    ("changes", "is_redone"),
    [
        ({"model": {"size": "mini"}}, True),
        ({"tokenizer": {"vocab_size": 300}}, True),
        ({"budget": "7steps"}, False),
        ({"budget": "7steps", "limited": True}, True),
        ({"pretrain": {"batch_size": 5, "max_length": 16}}, False),
        ({"pretrain": {"max_length": 12}}, True),
        ({"compile": True}, True),
        ({"finetune": {"max_length": 24}}, False),
    ],
)
def test_what_the_scoring_model_reads_makes_the_selection_anew(
    toy: Path, tmp_path: Path, changes: dict[str, Any], is_redone: bool
) -> None:
    options = {**OPTIONS, "share_of_budget": 0.1 if changes.pop("limited", False) else None}

    def digest(select: dict[str, Any], changes: dict[str, Any]) -> str:
        values = influence_run(toy, tmp_path / "run", **changes)
        values["select"] = {"budget": "20%retrieved", **select}
        return Run(resolve(values)).stage_folders()["select"].fingerprint

    influence = {"name": "influence", **options}
    assert (digest(influence, {}) != digest(influence, changes)) == is_redone
    assert digest({"name": "dsir"}, {}) == digest({"name": "dsir"}, changes)


def limited(toy: Path, folder: Path, share: float | None) -> dict[str, Any]:
    values = influence_run(toy, folder)
    values["select"]["share_of_budget"] = share
    return values


@pytest.mark.slow
def test_a_refused_cost_does_not_stand_in_the_way_of_other_settings(toy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for _ in range(2):  # the same again is refused again
        with pytest.raises(InputError, match=r"more than .+ FLOPs \(0.1% of the training budget of .+ FLOPs\)"):
            endtask.run(limited(toy, folder, 0.001), until="select")
    assert dict(Run(resolve(limited(toy, folder, None))).plan(until="select"))["select"] == "to do"
    assert "select" in endtask.run(limited(toy, folder, None), until="select").stages


def test_fitted_models_are_not_thrown_away_for_other_settings(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr(InfluenceRunner, "fitting_cost", lambda self: 1.0)
    monkeypatch.setattr(InfluenceRunner, "calibrate", lambda *args: (None, 1e30))
    with pytest.raises(InputError, match="is enough to score 0 of"):
        endtask.run(limited(toy, folder, 0.5), until="select")
    before = hashes(folder / "select.partial")
    assert any(name.endswith(".safetensors") for name in before)
    with pytest.raises(InputError, match=r"select\.share_of_budget \(0\.5 -> null\).*--from select"):
        endtask.run(limited(toy, folder, None), until="select")
    assert hashes(folder / "select.partial") == before


def test_a_dry_run_leaves_the_run_as_it_is(selected_run: Path, command: Command) -> None:
    before = hashes(selected_run)
    answer = command("select", selected_run, "--set", "select.measure=dot", "--dry-run", "--quiet")
    assert answer.code == 0, answer
    assert answer.out.startswith("selector: influence\nselected: ")
    assert hashes(selected_run) == before


def test_why_shows_what_helps_an_example(selected_run: Path, command: Command) -> None:
    answer = command("why", selected_run, "--example", "train-3", "--top", 2)
    assert answer.code == 0, answer
    most, least = answer.out.split("most helpful for example train-3, ")[1].split("least helpful for example train-3, ")
    assert [line[0] for line in most.splitlines() if line[0].isdigit()] == ["1", "2"]
    assert [line[0] for line in least.splitlines() if line[0].isdigit()] == ["1", "2"]
    found = json.loads(command("why", selected_run, "--example", "train-3", "--json").out)
    assert found["helped"]["targets"] == ["train-3"]
    assert found["helped"]["most"][0]["score"] > found["helped"]["least"][0]["score"]
    listed = [*found["helped"]["most"], *found["helped"]["least"]]
    assert {"id", "text", "selected", "source"} <= listed[0].keys()
    assert all(one["selected"] == (one["reason"] is not None) for one in listed)
    assert any(one["selected"] for one in listed)
    reasons = [one["reason"] for one in found["helped"]["most"][:2] if one["selected"]]
    assert all(f"selected ({reason})" in most for reason in reasons)


def test_why_shows_what_helps_a_class(selected_run: Path, command: Command) -> None:
    answer = command("why", selected_run, "--class", "food")
    assert answer.code == 0, answer
    assert answer.out.startswith("most helpful for class food, in standard deviations from the mean candidate:\n1. ")
    assert json.loads(command("why", selected_run, "--class", "food", "--json").out)["helped"]["kind"] == "class"
    many = command("why", selected_run, "--class", "food", "--top", 50)
    assert "only 10 of the most and of the least helpful texts are stored" in " ".join(many.err.split())
    wrong = command("why", selected_run, "--class", "fod")
    assert wrong.code == 2
    assert wrong.err.strip().endswith("no class 'fod' (did you mean 'food'?)")


def test_without_influence_there_are_no_lists(finished_run: Path, command: Command) -> None:
    assert not (finished_run / "select" / HELPFUL).exists()
    answer = command("why", finished_run, "--class", "food")
    assert answer.code == 2
    assert answer.err.strip().endswith("this run has no texts listed by class (select.name=influence lists them)")
    assert "helped" not in json.loads(command("why", finished_run, "--example", "train-3", "--json").out)


def test_check_tells_what_the_selection_costs(toy: Path, tmp_path: Path) -> None:
    with_influence = check(resolve(influence_run(toy, tmp_path / "run", budget="2min"))).estimate
    without = check(resolve(toy_settings(toy, tmp_path / "run", budget="2min"))).estimate
    assert with_influence is not None
    assert without is not None
    assert list(with_influence.seconds) == ["retrieve", "select", "pack", "train"]
    assert with_influence.seconds["select"] > 0
    assert with_influence.disk_bytes > without.disk_bytes
    assert with_influence.memory_bytes >= without.memory_bytes


@pytest.mark.slow
def test_check_tells_that_the_share_is_too_small(toy: Path, tmp_path: Path, command: Command) -> None:
    tree = influence_run(toy, tmp_path / "run", budget="1s")
    tree["select"]["share_of_budget"] = 0.001
    found = check(resolve(tree)).estimate
    assert found is not None
    (error,) = found.errors
    assert error.startswith("select.share_of_budget: fitting the scoring models would take about")
    assert error.endswith("a run would be refused")
    assert any(line == f"error: {error}" for line in estimate_lines(found))
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(tree))
    assert command("check", file).code == 1
    assert command("check", file, "--set", "select.share_of_budget=null").code == 0


def test_a_given_checkpoint_scores_and_is_then_trained(toy: Path, tmp_path: Path) -> None:
    save_masked_lm(make_network("bert"), tmp_path / "model")
    save_tokenizer(make_tokenizer(), tmp_path / "model")
    settings = influence_run(toy, tmp_path / "run", model={"path": str(tmp_path / "model")}, tokenizer={})
    result = endtask.run(settings, until="pretrain")
    (plan,) = result.stages["select"]["influence"]["plan"]
    assert plan["layer"] == "encoder.layer.1.attention.output.dense"
    manifest = json.loads((tmp_path / "run" / "select" / "manifest.json").read_text())
    assert {"checkpoint", "tokenizer"} <= manifest["inputs"].keys()
    assert result.stages["pack"]["vocabulary"] == len(make_tokenizer())


def test_the_ledger_counts_what_the_scoring_models_cost(selected_run: Path) -> None:
    (cost,) = (one for one in stage_costs(RunFolder(selected_run)) if one.stage == "select")
    counts = json.loads((selected_run / "select" / "manifest.json").read_text())["counts"]["influence"]
    assert counts["fitted_steps"] == 2  # two models, an epoch of 30 rows in batches of 32 each
    assert cost.flops == counts["fitting_flops"] + counts["scoring_flops"] > 0


def test_why_shows_what_helps_a_dev_row_that_was_a_target(toy: Path, tmp_path: Path, command: Command) -> None:
    options = {**OPTIONS, "targets": "dev", "target_batch": 3}
    endtask.run(influence_run(toy, tmp_path, select={"name": "influence", **options}), until="select")
    answer = command("why", tmp_path, "--example", "dev-2")
    assert answer.code == 0, answer
    first, text, together, most = answer.out.splitlines()[:4]
    assert (first, text.startswith("text: ")) == ("dev-2 [space]", True)
    assert together == "one of 3 rows that were scored together: dev-1, dev-2, dev-3"
    *_, last = command("why", tmp_path, "--example", "train-3").out.splitlines()
    assert "train-3 is not a target" in last
    assert most == "most helpful for example dev-2, in standard deviations from the mean candidate:"
