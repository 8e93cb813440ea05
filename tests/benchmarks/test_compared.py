"""Results files of comparisons that were stopped, beside files that are complete or from before there was a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.compared import Compared, is_sure, pairs_table
from benchmarks.kept import curve_rows, keep
from endtask.evaluation.significance import bootstrap_interval, holm
from endtask.experiments import compare
from tests.experiments.compare_stubs import Stubs, toy
from tests.experiments.test_compare import Killed

Tree = dict[str, Any]
TREE = {"variants": {"one": {}, "two": {"pretrain.learning_rate": 3e-3}}, "seeds": [0, 1], "baselines": ["majority"]}
TITLES = {"one": "One", "two": "Two", "majority": "Majority"}


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs().install(monkeypatch)


@pytest.fixture
def whole(toy_files: Path, tmp_path: Path, stubs: Stubs) -> Path:
    compare(toy(toy_files, tmp_path / "whole"), TREE, results=tmp_path / "whole.json")
    return tmp_path / "whole.json"


@pytest.fixture
def partial(toy_files: Path, tmp_path: Path, stubs: Stubs) -> Path:
    """The file of a comparison that was killed in its last run."""
    stubs.trouble["two/seed-1 evaluate"] = Killed()
    with pytest.raises(Killed):
        compare(toy(toy_files, tmp_path / "partial"), TREE, results=tmp_path / "partial.json")
    return tmp_path / "partial.json"


@pytest.fixture
def toy_files(toy: Path) -> Path:
    return toy


def test_what_is_finished_is_judged(whole: Path, partial: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    found, expected = Compared.read([partial]), Compared.read([whole])
    assert capsys.readouterr().err == f"{partial}: not complete, without two/seed-1\n"
    assert [len(found.models(cell)) for cell in TITLES] == [4, 2, 1]
    assert found.models("two") == expected.models("two")[:2]
    rows = {row["cell"]: row for row in found.table(TITLES, "one")}
    assert rows["one"]["mean"] == pytest.approx(np.mean(expected.models("one")), abs=1e-5)
    assert rows["two"]["lead"] == pytest.approx(np.mean(found.models("two")) - np.mean(found.models("one")), abs=1e-5)
    assert 0 < rows["two"]["p"] <= rows["two"]["p_holm"] <= 1


def test_what_another_file_has_is_not_missing(whole: Path, partial: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    both = Compared.read([partial, whole])
    assert capsys.readouterr().err == ""
    assert {cell: both.models(cell) for cell in TITLES} == {
        cell: Compared.read([whole]).models(cell) for cell in TITLES
    }


def test_files_of_before_are_complete(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree: Tree = json.loads(whole.read_text())
    assert (tree.pop("complete"), tree.pop("missing")) == (True, [])
    old = tmp_path / "old.json"
    old.write_text(json.dumps(tree))
    capsys.readouterr()
    assert Compared.read([old]).table(TITLES, "one") == Compared.read([whole]).table(TITLES, "one")
    assert capsys.readouterr().err == ""


def test_a_file_without_runs_is_an_empty_table(whole: Path) -> None:
    tree: Tree = json.loads(whole.read_text())
    whole.write_text(json.dumps({**tree, "trials": [], "complete": False, "missing": ["one/seed-0"]}))
    assert Compared.read([whole]).table(TITLES, "one") == []


def test_each_rung_is_judged_against_the_one_before(whole: Path) -> None:
    found = Compared.read([whole])
    means = {cell: np.mean(found.models(cell)) for cell in TITLES}
    first, second, third = found.ladder(TITLES)
    assert "lead" not in first
    assert second["lead"] == pytest.approx(means["two"] - means["one"], abs=1e-5)
    assert third["lead"] == pytest.approx(means["majority"] - means["two"], abs=1e-5)
    raw = [found.p_value("two", "one"), found.p_value("majority", "two")]
    assert [second["p"], third["p"]] == pytest.approx(raw, abs=1e-5)
    assert max(second["p_holm"], third["p_holm"]) >= max(raw)


def test_an_interval_is_that_of_the_comparison_itself(whole: Path) -> None:
    found = Compared.read([whole])
    one, two = (found.predictions(cell).reshape(2, 2, -1) for cell in ("one", "two"))
    assert not np.array_equal(one, two)
    expected = bootstrap_interval(two, one, found.truth, found.measure, groups=found.groups, paired_runs=True)
    assert found.interval("two", "one") == expected
    told = {row["name"]: row for row in json.loads(whole.read_text())["rows"]}["two"]["score"]["difference"]
    assert expected == pytest.approx((told["low"], told["high"]), abs=0.05)  # the comparison draws fewer samples here
    assert found.over("two", "one")["interval"] == pytest.approx(expected, abs=1e-5)
    assert found.interval("majority", "one")[0] <= found.over("majority", "one")["lead"]  # other seeds: not paired


def test_a_lead_is_sure_where_rows_and_seeds_are() -> None:
    assert is_sure({"p_holm": 0.049, "interval": [0.001, 0.2]})
    assert is_sure({"p_holm": 0.049, "interval": [-0.2, -0.001]})
    assert not is_sure({"p_holm": 0.051, "interval": [0.001, 0.2]})
    assert not is_sure({"p_holm": 0.001, "interval": [-0.001, 0.2]})


def test_pairs_are_corrected_together() -> None:
    p_values = [0.01, 0.04]
    rows = [
        {"title": name, "lead": 0.02, "interval": [0.01, 0.03], "p": p} for name, p in zip("ab", p_values, strict=True)
    ]
    rows.append(
        {"title": "c", "lead": -0.01, "interval": [-0.04, 0.02], "p": 0.5, "leak_free_lead": 0.0, "leak_free_p": 1.0}
    )
    head, _, *lines = pairs_table(rows, "x over y")
    assert head == "|  | x over y | 95% | p | Holm's | leak-free | p | Holm's |"
    corrected = holm([*p_values, 0.5])
    assert lines[0] == f"| a | +2.0† | +1.0 to +3.0 | 0.0100 | {corrected[0]:.4f} |  |  |  |"
    assert lines[1] == f"| b | +2.0 | +1.0 to +3.0 | 0.0400 | {corrected[1]:.4f} |  |  |  |"
    assert lines[2] == "| c | -1.0 | -4.0 to +2.0 | 0.5000 | 0.5000 | +0.0 | 1.0000 | 1.0000 |"
    assert "p_holm" not in rows[0]


def test_of_a_run_in_two_files_one_curve_counts(tmp_path: Path) -> None:
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        curve = {"cell": "one", "seed": 0, "finetune_seed": 0, "seconds_to_best": seconds}
        (tmp_path / f"toy-{name}.curves.json").write_text(json.dumps([curve, {**curve, "seed": 7}]))
    kept = keep(tmp_path, "toy", tmp_path)
    assert [row["seconds_to_best"] for row in curve_rows(kept, "toy", {("one", 0)})] == [1.0]
