"""Results files of comparisons that were stopped, beside files that are complete or from before there was a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.compared import Compared
from endtask.compare import compare
from tests.compare.stubs import Stubs, toy
from tests.compare.test_compare import Killed

Tree = dict[str, Any]
TREE = {"cells": {"one": {}, "two": {"train.learning_rate": 3e-3}}, "seeds": [0, 1], "baselines": ["majority"]}
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
    whole.write_text(json.dumps({**tree, "runs": [], "complete": False, "missing": ["one/seed-0"]}))
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
