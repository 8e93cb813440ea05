"""The selector from end to end: budgets, reasons, helpful texts, determinism, resume, errors."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from endtask.config import Budget, Settings, resolve
from endtask.errors import InputError
from endtask.io.run_layout import HELPFUL, INFLUENCE_FOLDER, SELECTION
from endtask.io.stage_folder import StageFolder
from endtask.selectors.influence import scorer as shards_module
from endtask.selectors.influence.runner import InfluenceRunner
from endtask.selectors.influence.scorer import Scorer, score_units
from tests.selectors.influence.small import (
    CANDIDATES,
    OPTIONS,
    make_candidates,
    make_runner,
    make_task,
    run_influence,
    small_settings,
    write_table,
)
from tests.toy_run import hashes


def stage_in(folder: Path) -> StageFolder:
    return StageFolder(folder, "select", "mark", {}, {})


def test_the_budget_to_the_passage_with_reasons_and_the_record(tmp_path: Path) -> None:
    counts, kept = run_influence(tmp_path, small_settings(budget="20%retrieved"))
    sizes = [len(item.document.text.encode()) for item in make_candidates()]
    by_rank = sorted(kept, key=lambda item: item.rank)
    assert [item.rank for item in by_rank] == list(range(1, len(kept) + 1))
    assert [item.score for item in by_rank] == sorted((item.score for item in kept), reverse=True)
    total = sum(len(item.document.text.encode()) for item in kept)
    assert total <= 0.2 * sum(sizes) < total + max(sizes)
    assert counts["bytes"] == total
    assert counts["influence"]["scored"] == counts["influence"]["candidates"] == CANDIDATES
    assert counts["influence"]["columns"] == len(make_task().train)
    labels = {row.id: row.label for row in make_task().train}
    for item in kept:
        first, _, asked = item.reason.partition("; ")
        start, _, helped = first.partition(", most helpful for ")
        assert start == f"influence: rank {item.rank}"
        name, _, label = helped.removesuffix(")").partition(" (class ")
        assert labels[name] == label
        assert asked.startswith("BM25 rank ")
    output = tmp_path / "out"
    assert {entry.name for entry in output.iterdir()} == {SELECTION, HELPFUL}
    rows = parquet.read_table(output / HELPFUL).to_pylist()
    assert Counter(row["kind"] for row in rows) == {"example": 2 * 10 * len(labels), "class": 2 * 10 * 3}
    of_one = [row for row in rows if row["targets"] == ["train-3"]]
    most, least = ([row["score"] for row in of_one if row["side"] == side] for side in ("most", "least"))
    assert most == sorted(most, reverse=True)
    assert least == sorted(least)
    assert least[-1] < most[-1]


def test_scores_are_deviations_from_the_usual_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "_TOP_TARGETS", 1)
    _, kept = run_influence(tmp_path, small_settings(budget=None))
    rows = parquet.read_table(tmp_path / "out" / HELPFUL).to_pylist()
    best = max((row for row in rows if row["kind"] == "example"), key=lambda row: row["score"])
    (first,) = (item for item in kept if item.rank == 1)
    assert first.score == pytest.approx(best["score"])
    assert [first.document.id] == best["passages"]
    assert f"most helpful for {best['targets'][0]} " in first.reason


@pytest.mark.parametrize(
    "values",
    [
        {"choice": "top_k", "targets": "dev", "target_batch": 3},
        {"candidate_batch": 4, "choice": "top_k"},
    ],
)
def test_other_choices(tmp_path: Path, values: dict[str, Any]) -> None:
    _, kept = run_influence(tmp_path, small_settings(values))
    assert len(kept) == 10
    assert sorted(item.rank for item in kept) == list(range(1, len(kept) + 1))


def test_influence_can_be_fused(tmp_path: Path) -> None:
    plain = small_settings()
    select = {"name": "fusion", "budget": "10passages", "selectors": ["best_rank", {"name": "influence", **OPTIONS}]}
    settings = resolve({**plain.model_dump(mode="json"), "select": select})
    counts, kept = run_influence(tmp_path, settings)
    assert len(kept) == 10
    assert all("influence " in item.reason for item in kept)
    assert counts["fused"].keys() == {"best_rank, influence"}
    assert counts["influence"]["scored"] == CANDIDATES


class Killed(BaseException):
    """Ends a run where it stands."""


def kill_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int) -> None:
    work: Callable[..., Any] = getattr(owner, name)
    left = [calls]

    def counted(*args: Any, **values: Any) -> Any:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return work(*args, **values)

    monkeypatch.setattr(owner, name, counted)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tables of a selection that nothing stopped."""
    folder = tmp_path_factory.mktemp("unbroken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards_module, "_FEWEST_UNITS", 16)
        run_influence(folder, small_settings(), stage=stage_in(folder / "run"))
    return hashes(folder / "run" / "select.partial", "*.parquet")


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [("scoring_model", "save_weights", 1), ("scorer", "score_units", 2), ("helpful", "write_helpful", 0)],
)
def test_a_killed_selection_goes_on_to_the_same_bits(
    tmp_path: Path, unbroken: dict[str, str], monkeypatch: pytest.MonkeyPatch, owner: str, name: str, calls: int
) -> None:
    monkeypatch.setattr(shards_module, "_FEWEST_UNITS", 16)
    settings = small_settings()
    folder = tmp_path / "killed"
    with monkeypatch.context() as patch:
        kill_after(patch, __import__(f"endtask.selectors.influence.{owner}", fromlist=[owner]), name, calls)
        with pytest.raises(Killed):
            run_influence(folder, settings, stage=stage_in(folder / "run"))
    left = {entry.name for entry in (folder / "run" / "select.partial" / INFLUENCE_FOLDER).iterdir()}
    assert "fold-0" in left
    with monkeypatch.context() as patch:
        if name != "save_weights":  # the models are there
            kill_after(patch, __import__("endtask.selectors.influence.scoring_model", fromlist=["fit"]), "run_phase", 0)
        run_influence(folder, settings, stage=stage_in(folder / "run"))
    assert hashes(folder / "run" / "select.partial", "*.parquet") == unbroken
    assert unbroken.keys() == {SELECTION, HELPFUL}


def test_shards_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings({"candidate_batch": 3}, budget=None)
    _, whole = run_influence(tmp_path / "one", settings)
    monkeypatch.setattr(shards_module, "_FEWEST_UNITS", 5)
    _, parts = run_influence(tmp_path / "other", settings)
    assert [item.rank for item in parts] == [item.rank for item in whole]
    assert [item.score for item in parts] == pytest.approx([item.score for item in whole], abs=1e-4)


def test_too_little_budget_shrinks_the_candidates_to_the_best_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = small_settings({"share_of_budget": 0.1}, budget="3passages").model_copy(update={"budget": seconds()})
    monkeypatch.setattr(InfluenceRunner, "fitting_cost", lambda self: 10.0)
    calibrate = InfluenceRunner.calibrate
    monkeypatch.setattr(InfluenceRunner, "calibrate", lambda *args: (calibrate(*args)[0], 1.0))
    counts, kept = run_influence(tmp_path, settings, stage=stage_in(tmp_path / "run"))
    assert (counts["influence"]["scored"], len(kept)) == (10, 3)
    best = sorted(make_candidates(), key=lambda item: (item.rank, -item.score, item.position))[:10]
    assert {item.document.id for item in kept} <= {item.document.id for item in best}
    assert "is enough for the 10 best-ranked of 40 candidates" in " ".join(capsys.readouterr().err.split())
    manifest = json.loads((tmp_path / "run" / "select.partial" / "manifest.json").read_text())
    assert manifest["plan"]["influence"]["candidates"] == 10


def seconds(amount: str = "300s") -> Any:
    return Budget.parse(amount)


def refused(folder: Path, settings: Settings, **values: Any) -> str:
    with pytest.raises(InputError) as caught:
        run_influence(folder, settings, **values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_budget_that_is_enough_for_no_choice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings({"share_of_budget": 0.1}).model_copy(update={"budget": seconds()})
    monkeypatch.setattr(InfluenceRunner, "fitting_cost", lambda self: 10.0)
    monkeypatch.setattr(InfluenceRunner, "calibrate", lambda *args: (None, 1.0))
    line = refused(tmp_path, settings)
    assert "30 s (10% of the training budget of 300 s) is enough to score 10 of 40 candidates, no more than" in line


def test_fitting_beyond_the_budget_is_refused_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings({"share_of_budget": 0.1}).model_copy(update={"budget": seconds("9s")})
    monkeypatch.setattr(InfluenceRunner, "fitting_cost", lambda self: 10.0)
    line = refused(tmp_path, settings)
    assert "fitting the scoring models takes about 20 s, more than 1 s (10% of the training budget of 9 s)" in line


def test_an_unknown_layer_is_met_before_anything_is_trained(tmp_path: Path) -> None:
    line = refused(tmp_path, small_settings({"layers": ["lst"]}))
    assert line == "key 'select.layers': lean has no layer 'lst' (did you mean 'last'?)"
    assert not list((tmp_path / "out").rglob("*.safetensors"))


def test_without_a_corpus_it_is_refused() -> None:
    settings = small_settings()
    with pytest.raises(InputError, match=r"key 'corpus.sources': influence selects from a corpus"):
        settings.select.part.preflight(None, settings, has_corpus=False)


def test_nothing_retrieved_is_told_as_by_any_selector(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    assert refused(tmp_path, small_settings()).startswith("key 'select.budget': no passage was selected")


def test_a_budget_of_what_was_retrieved_needs_something_retrieved(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("text\na\n")
    values = {"name": "imported", "path": str(path), "budget": "20%retrieved"}
    settings = resolve({"select": values})
    with pytest.raises(InputError, match=r"key 'select.budget': for an imported selection nothing is retrieved"):
        settings.select.part.preflight(None, settings, has_corpus=True)


def test_the_same_seed_gives_the_same_table_and_another_another(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        run_influence(tmp_path / name, small_settings({"seed": seed}))
    one, again, other = (hashes(tmp_path / name / "out", "*.parquet") for name in ("one", "again", "other"))
    assert one == again != other


def test_a_text_without_a_token_has_no_influence(tmp_path: Path) -> None:
    candidates = make_candidates()
    empty = replace(candidates[0], document=replace(candidates[0].document, text=" "))
    write_table(tmp_path, [empty, *candidates[1:]])
    work = make_runner(tmp_path, small_settings())
    work.fit()
    units = work.units(np.arange(3))
    scores = score_units(Scorer(work.folds, units, memory=1 << 30), units, np.arange(3))
    assert not scores[0].any()
    assert scores[1].all()
    assert scores[2].all()


def test_a_selection_killed_while_its_work_is_deleted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_in(tmp_path / "run")
    whole, _ = run_influence(tmp_path, small_settings())

    def half(folder: Path, *args: Any, **values: Any) -> None:
        for path in Path(folder).rglob("*.safetensors"):
            path.unlink()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", half)
        with pytest.raises(Killed):
            run_influence(tmp_path, small_settings(), stage=stage)
    counts, _ = run_influence(tmp_path, small_settings(), stage=stage_in(tmp_path / "run"))
    assert counts == whole
    assert hashes(tmp_path / "run" / "select.partial", "*.parquet") == hashes(tmp_path / "out", "*.parquet")
    assert not [entry.name for entry in (tmp_path / "run" / "select.partial").iterdir() if entry.is_dir()]
