"""The demo's table, conclusion and second call, on the toy data instead of docstrings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask import demo
from endtask.config import Settings, resolve
from endtask.config.loading import merge
from endtask.demo import Outcome, Row, run_demo
from tests.conftest import Answer
from tests.toy_run import hashes, toy_settings


@pytest.fixture
def toy_preset(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the toy settings in the place of the demo's preset."""

    def load_settings(*, preset: str, given: dict[str, Any]) -> Settings:
        assert preset == "demo"
        tree = toy_settings(toy, Path("unused"))
        merge(tree, given)
        return resolve(tree)

    monkeypatch.setattr(demo, "load_settings", load_settings)
    monkeypatch.setattr(demo, "_TASK_ONLY_BUDGET", "4steps")


@pytest.mark.usefixtures("toy_preset", "no_network")
def test_both_arms_and_the_baseline(tmp_path: Path, command: Callable[..., Answer]) -> None:
    outcome = run_demo(tmp_path)
    assert [row.seeds for row in outcome.rows] == [1, 2, 2]
    names = [row.name for row in outcome.rows]
    assert "without" in names[1]
    assert "with the retrieved corpus" in names[2]
    assert outcome.rows[0].mean > 0.8  # the classes share no word: a bag of words knows them apart
    assert [row.text_megabytes > 0 for row in outcome.rows] == [False, False, True]
    assert outcome.gain == pytest.approx(outcome.rows[2].mean - outcome.rows[1].mean)
    assert outcome.test_rows == 18
    assert outcome.report.exists()
    written = json.loads((tmp_path / "demo.json").read_text())
    assert [row["name"] for row in written["rows"]] == names
    assert written["p_value"] == outcome.p_value

    before = {arm: hashes(tmp_path / arm, "*/**/*") for arm in ("with-corpus", "without-corpus")}
    again = command("demo", "--output", tmp_path, "--json", "--quiet")
    assert again.code == 0
    assert again.err == ""
    assert json.loads(again.out)["rows"][1:] == written["rows"][1:]  # seconds too: they are the first call's
    assert {arm: hashes(tmp_path / arm, "*/**/*") for arm in before} == before

    table = command("demo", "--output", tmp_path, "--quiet").out.splitlines()
    assert table[0].split() == ["test", "accuracy", "seconds", "corpus", "MB"]
    assert [line.startswith(name) for line, name in zip(table[1:4], names, strict=True)] == [True] * 3
    assert table[-1] == f"report: {outcome.report}"
    for words in (
        ["predict", tmp_path / "with-corpus", "salt"],
        ["verify", tmp_path / "with-corpus"],
        ["ls", tmp_path],
    ):
        assert command(*words).code == 0


@pytest.mark.long
def test_other_libraries_since_the_last_time_are_no_error(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    shutil.copytree(toy, own)

    def load_settings(*, preset: str, given: dict[str, Any]) -> Settings:
        tree = toy_settings(own, Path("unused"))
        merge(tree, given)
        return resolve(tree)

    monkeypatch.setattr(demo, "load_settings", load_settings)
    monkeypatch.setattr(demo, "_TASK_ONLY_BUDGET", "4steps")
    run_demo(tmp_path / "demo")
    corpus = next(path for path in sorted(own.rglob("*")) if path.is_file() and "corpus" in path.name)
    corpus.write_bytes(corpus.read_bytes() * 2)  # the same passages twice: other bytes, equal texts dropped
    run_demo(tmp_path / "demo")
    assert (tmp_path / "demo" / "with-corpus" / "previous" / "retrieve").is_dir()


@pytest.mark.parametrize(
    ("gain", "p_value", "said"),
    [
        (0.042, 0.001, "Pre-training on the retrieved corpus gained 4.2 points over the same model without it"),
        (-0.042, 0.001, "Pre-training on the retrieved corpus lost 4.2 points over the same model without it"),
        (0.042, 0.2, "At this budget the corpus made no clear difference (+4.2 points"),
        (-0.01, 0.05, "At this budget the corpus made no clear difference (-1.0 points"),
    ],
)
def test_the_verdict_is_honest(gain: float, p_value: float, said: str) -> None:
    outcome = Outcome((Row("a", 0.5, 0.0, 1, 1.0, 0.0),), gain, p_value, 1.0, 320, Path("report.html"))
    assert outcome.verdict().startswith(said)
    assert f"320 test rows: p = {p_value:.4f}" in outcome.verdict()


def test_a_single_seed_has_no_spread() -> None:
    rows = (Row("one seed", 0.5, 0.0, 1, 1.0, 0.0), Row("three seeds", 0.5, 0.01, 3, 1.0, 0.0))
    lines = Outcome(rows, 0.0, 1.0, 1.0, 10, Path("report.html")).table().splitlines()
    assert "±" not in lines[1]
    assert "50.0 ± 1.0" in lines[2]
