"""The evidence for influence from end to end on a toy: candidates, scores, orders, a comparison, the page."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from endtask.config.influence import InfluenceSettings
from endtask.selectors.inputs import Inputs

from benchmarks.influence import page, prepare, score
from benchmarks.influence.cells import AGAINST, SCORINGS, SHOWN, TABLES, Arm, against, base_settings, cells, titles
from benchmarks.results_file import read_results
from endtask.bundle import unbundle, write_bundle
from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.experiments import ComparisonResult, compare, read_comparison_folder
from endtask.experiments.comparison import write_results
from endtask.gradients.scoring import Calibration
from endtask.io.selection_table import read_statistics
from endtask.selectors.influence import shards
from endtask.selectors.influence.runner import InfluenceRunner
from tests.toy_run import toy_settings

ROOT = Path(__file__).resolve().parents[2]
ARMS = (*TABLES["main"], *TABLES["others"])


def small(toy: Path, output: Path) -> Settings:
    """The toy's settings with a scoring model that is fitted in a moment."""
    select = {"name": "best_rank", "influence": {"epochs": 1, "share_of_budget": None}}
    return Settings.model_validate(toy_settings(toy, output, select=select, budget="4steps", retrieve={"top_k": 20}))


@pytest.fixture(scope="module")
def prepared(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> prepare.Prepared:
    """The toy's candidates, scored by two models and two layers; read only."""
    folder = tmp_path_factory.mktemp("influence") / "toy"
    found = prepare.Prepared(folder, small(toy, folder))
    archive = found.candidates()
    orders = ("influence", "one_mask", "layer_last", "layer_embedding")
    score.score(archive, folder / "scores.npz", orders, device="cpu")
    return found


def test_scores_are_those_of_the_selector(prepared: prepare.Prepared) -> None:
    scores = prepare.read_scores(prepared.folder / "scores.npz")
    statistics = read_statistics(prepared.table)
    assert set(scores) == {"influence", "one_mask", "layer_last", "layer_embedding"}
    assert len(scores["influence"]) == len(statistics.rank)
    run = with_values(prepared.settings, {"tokenizer.path": str(prepared.tokenizer)}, "test")
    folder = prepared.folder / "native"
    inputs = Inputs(run.select, prepared.table.parent, folder=folder, task=prepared.run.task, run=run)
    native = InfluenceRunner(inputs, statistics).score().shards.gathered("score")
    assert np.allclose(scores["influence"], native, atol=1e-5)
    assert not np.allclose(scores["layer_last"], native, atol=1e-2)


def test_harm_is_the_mean_over_the_targets_that_are_harmed_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_TOP_TARGETS", 3)
    products = torch.randn(6, 9, generator=torch.Generator().manual_seed(0)) + 2
    calibration = Calibration.of(products)
    work = shards.ShardStatistics(InfluenceSettings(), calibration, np.ones((9, 1), dtype=np.float32))
    lowest = calibration.apply(products).sort(dim=1).values[:, :3]
    np.testing.assert_allclose(score.harm_of(products, work), -lowest.mean(1), rtol=1e-5)
    highest = calibration.apply(products)[:, 4:].sort(dim=1).values[:, -3:]
    np.testing.assert_allclose(score.scores_by(products, work, slice(4, None)), highest.mean(1), rtol=1e-5)


def test_controls_are_rank_correlations(prepared: prepare.Prepared) -> None:
    with np.load(prepared.folder / "scores.npz") as file:
        facts = json.loads(str(file["facts"]))
    for name in ("agreement", "models", "harm"):
        assert all(-1 <= facts[order][name] <= 1 for order in ("influence", "layer_embedding"))
    assert facts["influence"]["models"] != facts["influence"]["agreement"]


def test_the_archive_holds_candidates_as_tokens_alone(prepared: prepare.Prepared) -> None:
    folder = prepared.folder / "scoring"
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    assert folder / "candidates" / "tokens.bin" in files
    assert not any(b"passage 17" in path.read_bytes() for path in files)  # the end of one of the toy's passages


def test_scoring_needs_neither_pyarrow_nor_numba() -> None:
    blocked = "import sys; sys.modules['pyarrow'] = sys.modules['numba'] = None; import benchmarks.influence.score"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_arms_are_the_first_of_their_order(prepared: prepare.Prepared, tmp_path: Path) -> None:
    outcome = prepared.compared("main", ARMS, prepared.folder / "scores.npz", until="evaluate", seeds=[0])
    assert [row.name for row in outcome.rows] == [arm.name for arm in ARMS]
    assert outcome.against == AGAINST
    assert all(row.score is not None for row in outcome.rows)
    size = read_statistics(prepared.table).bytes.sum()
    for name in ("influence", "together", "random", "dsir"):
        kept = prepared.folder / "main" / "variants" / f"{name}-20" / "seed-0" / "select" / "selection.parquet"
        statistics = read_statistics(kept)
        assert sorted(statistics.rank.tolist()) == list(range(1, len(statistics.rank) + 1))
        assert 0.1 * size < statistics.bytes.sum() <= 0.2 * size
    write_results(outcome, tmp_path / "chemprot-main.json")
    write_results(trained_elsewhere(prepared, tmp_path), tmp_path / "chemprot-all.json")
    shutil.copy(prepared.folder / "scores.npz", tmp_path / "chemprot.npz")
    shutil.copy(prepared.chosen(), tmp_path / "chemprot-chosen.json")
    page.collect(tmp_path, tmp_path)
    results = read_results("influence", tmp_path)
    shown = page.influence_table(results)
    assert "How the fifth is chosen, ChemProt" in shown
    assert "all candidates" in shown
    assert "What choosing costs" in shown
    assert "What was chosen" in shown
    passages = {row["cell"]: row["passages"] for row in results.rows if row["kind"] == "chosen"}
    assert set(passages) == {*(arm.name for arm in ARMS), "best_rank-100"}
    assert passages["best_rank-100"] == len(read_statistics(prepared.table).rank)
    assert "SciERC" not in shown
    assert {row["cell"] for row in results.rows if row["kind"] == "run"} == {*(a.name for a in ARMS), "best_rank-100"}
    assert set(results.summary) == {f"chemprot_{arm.name}" for arm in (*ARMS, *TABLES["all"])}


def trained_elsewhere(prepared: prepare.Prepared, folder: Path) -> ComparisonResult:
    """All candidates, through a bundle, where the tables of the orders are out of reach."""
    prepared.compared("all", TABLES["all"], None, seeds=[0])
    bundle = write_bundle(prepared.folder / "all", folder / "all.tar.zst")
    orders, away = prepared.folder / "orders", prepared.folder / "away"
    orders.rename(away)
    try:
        settings, study, _ = read_comparison_folder(unbundle(bundle.file, folder / "there"))
        return compare(settings, study)
    finally:
        away.rename(orders)


def test_an_order_without_scores_is_asked_for(prepared: prepare.Prepared) -> None:
    with pytest.raises(InputError, match="the order layer_half needs scores"):
        prepared.orders((Arm("layer_half", 20, ""),), prepared.folder / "scores.npz")


def test_every_arm_has_an_order_and_every_table_its_first(toy: Path) -> None:
    known = {*SCORINGS, "together", "best_rank", "random", "dsir"}
    names = [arm.name for arms in TABLES.values() for arm in arms]
    assert {arm.order for arms in TABLES.values() for arm in arms} == known
    assert len(set(names)) == len(names)
    assert all(against(table) in titles(table) for table in SHOWN)
    found = cells(ARMS, dict.fromkeys(known, "x"), 1000)
    assert found["dsir-20"]["select.budget"] == "200B"


@pytest.mark.parametrize("task", ["chemprot", "sciie"])
def test_the_settings_are_settings(task: str) -> None:
    found = base_settings(task, "corpus/*.jsonl", "tasks/x", None, budget=prepare.BUDGET)
    assert str(found.select.budget) == "34%"
    assert found.select.influence.layers == ("last",)


@pytest.mark.parametrize("tables", [["main"], ["mian"]])
def test_what_cannot_be_done_is_said_in_one_line(
    tables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: list[Any] = ["prepare", "bundle", "chemprot", *tables, "--data", tmp_path, "--out", tmp_path]
    monkeypatch.setattr(sys, "argv", [str(one) for one in arguments])
    with pytest.raises(SystemExit):
        prepare.main()
    words = {"main": "no candidates there", "mian": "no table is named 'mian'"}
    assert words[tables[0]] in capsys.readouterr().err


def test_nothing_to_collect_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results file of a bundle there"):
        page.collect(tmp_path, tmp_path)
    (tmp_path / "chemprot-main.json").write_text(json.dumps({"rows": []}), encoding="utf-8")
    with pytest.raises(InputError, match="not a results file"):
        page.collect(tmp_path, tmp_path)
