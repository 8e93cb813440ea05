"""`endtask analyze`: what is stored, what is read again, and what the report shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.analysis import analyze as analysis
from endtask.analysis.analyze import analyze
from endtask.io.run_layout import ANALYSIS, SETTINGS_FILE
from endtask.reporting.page import write_report
from tests.conftest import Answer

Command = Callable[..., Answer]


@pytest.fixture(scope="module")
def analysed(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished run, analysed; read only."""
    folder = tmp_path_factory.mktemp("analysed") / "run"
    shutil.copytree(finished_run, folder)
    analyze(folder, [str(folder / "model")])
    return folder


def stored(run: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((run / ANALYSIS).read_text(encoding="utf-8"))
    return tree


def test_every_head_is_counted_for_every_model(analysed: Path) -> None:
    tree = stored(analysed)
    assert [model["name"] for model in tree["models"]] == ["pre-trained", "fine-tuned", str(analysed / "model")]
    assert len(tree["texts"]) == 18
    assert tree["split"] == "dev"
    for model in tree["models"]:
        assert model["heads"] == model["positional"] + model["vertical"] + model["other"] == 2
        assert len(model["map"]) == 18
        assert 0 <= model["same_class"] <= 1
    _, finetuned, saved = tree["models"]
    assert finetuned["maxima"] == saved["maxima"]  # the saved model is the fine-tuned one, read by another path
    assert tree["same_class_by_chance"] == pytest.approx(5 / 17, abs=1e-4)


def test_models_that_are_stored_are_not_read_again(analysed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (analysed / ANALYSIS).read_bytes()
    read: list[str] = []
    monkeypatch.setattr(analysis, "_read", lambda model, *rest: read.append(model.name))
    analyze(analysed, [str(analysed / "model")])
    assert not read
    assert (analysed / ANALYSIS).read_bytes() == before


def test_an_interrupted_analysis_goes_on(own_run: Path, analysed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = analysis._read
    read: list[str] = []

    def interrupted(model: Any, *rest: Any) -> Any:
        if read:
            raise KeyboardInterrupt
        read.append(model.name)
        return real(model, *rest)

    def noted(model: Any, *rest: Any) -> Any:
        read.append(model.name)
        return real(model, *rest)

    monkeypatch.setattr(analysis, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        analyze(own_run)
    assert [model["name"] for model in stored(own_run)["models"]] == ["pre-trained"]
    monkeypatch.setattr(analysis, "_read", noted)
    (own_run / f".{ANALYSIS}.99999999.tmp").write_text("{")  # of a process that was killed
    analyze(own_run)
    assert read == ["pre-trained", "fine-tuned"]
    assert not list(own_run.glob("*.tmp"))
    assert not list(own_run.glob(".*.tmp"))
    assert stored(own_run)["models"] == stored(analysed)["models"][:2]


def test_the_report_draws_heads_and_maps(analysed: Path) -> None:
    page = write_report(analysed).read_text(encoding="utf-8")
    section = page[page.index('<section id="analysis">') :].partition("</section>")[0]
    assert section.count("layer 1, head ") == 6
    assert section.count("Sentence vectors, fine-tuned") > 0
    assert section.count("map-dot") >= 3 * 18
    assert "trained again" not in section


def test_the_report_says_that_the_weights_are_newer(own_run: Path) -> None:
    tree = {**stored_or_made(own_run), "stages": {"pretrain": "another"}}
    (own_run / ANALYSIS).write_text(json.dumps(tree), encoding="utf-8")
    assert "The run was trained again since" in write_report(own_run).read_text(encoding="utf-8")


def stored_or_made(run: Path) -> dict[str, Any]:
    if not (run / ANALYSIS).exists():
        analyze(run)
    return stored(run)


def test_a_pair_is_read_as_a_pair(finished_pair_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished_pair_run, tmp_path / "pairs"))
    pairs = analyze(run)["models"][0]["maxima"]["tokens"]
    rows = [json.loads(line) for line in (run / "read" / "dev.jsonl").read_text().splitlines()]
    assert pairs > sum(len(row["text"].split()) + len(row["text_pair"].split()) for row in rows)


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ("absent", "absent, key '--also': no such checkpoint folder"),
        ("package:jsn", "package:jsn, key '--also': no such package is installed (did you mean 'json'?)"),
    ],
)
def test_a_wrong_checkpoint_is_one_line(own_run: Path, command: Command, also: str, message: str) -> None:
    answer = command("analyze", str(own_run), "--also", also)
    assert answer.code == 2
    assert [message in line for line in answer.errors] == [True]
    assert not (own_run / ANALYSIS).exists()


def test_a_run_without_weights_is_one_line(own_run: Path, tmp_path: Path, command: Command) -> None:
    started = tmp_path / "started"
    (started / "read").mkdir(parents=True)
    shutil.copy(own_run / SETTINGS_FILE, started)
    shutil.copytree(own_run / "read", started / "read", dirs_exist_ok=True)
    for folder, words in ((started, "no trained weights in this run"), (tmp_path / "none", "no such folder")):
        answer = command("analyze", str(folder))
        assert answer.code == 2
        assert len(answer.errors) == 1
        assert words in answer.errors[0]


def test_a_damaged_file_is_made_again(own_run: Path, command: Command) -> None:
    (own_run / ANALYSIS).write_text('{"version": 1, "split"', encoding="utf-8")
    answer = command("analyze", str(own_run), "--json")
    assert answer.code == 0
    assert json.loads(answer.out) == stored(own_run)
    (own_run / ANALYSIS).write_text("{}", encoding="utf-8")
    answer = command("report", str(own_run))
    assert answer.code == 2
    assert "make it again: endtask analyze" in answer.errors[0]
