"""`endtask selection`, and a run with an imported selection."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_selection
from tests.conftest import Answer
from tests.toy_run import hashes, write_settings

Command = Callable[..., Answer]


def texts(run: Path) -> list[str]:
    return [item.document.text for item in read_selection(run / "select" / SELECTION)]


@pytest.mark.parametrize("name", ["mine.jsonl.zst", "mine.csv", "mine.parquet"])
def test_out_of_one_run_and_into_another_without_a_corpus(
    toy: Path, finished_run: Path, tmp_path: Path, command: Command, name: str
) -> None:
    target = tmp_path / name
    answer = command("selection", finished_run, "--to", target)
    kept = texts(finished_run)
    size = sum(map(len, kept)) / 1e6
    assert answer == Answer(0, f"wrote {target}: {len(kept):,} passages, {size:.1f} MB of text\n", "")
    select = {"name": "imported", "path": str(target), "budget": None}
    settings = write_settings(tmp_path / "s.json", toy, tmp_path / "run", corpus={"sources": []}, select=select)
    assert command("run", settings, "--until", "pack").code == 0
    assert texts(tmp_path / "run") == kept


def test_dev_and_test_texts_of_an_import_are_dropped(toy: Path, tmp_path: Path, command: Command) -> None:
    evaluation = [json.loads(line)["text"] for line in (toy / "task" / "test.jsonl").read_text().splitlines()[:2]]
    rows = [{"text": text} for text in ["soup of the day", *evaluation, "the moon"]]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    select = {"name": "imported", "path": str(tmp_path / "mine.jsonl"), "budget": None}
    settings = write_settings(tmp_path / "s.json", toy, tmp_path / "run", corpus={"sources": []}, select=select)
    answer = command("run", settings, "--until", "select", "--json")
    assert answer.code == 0
    assert json.loads(answer.out)["stages"]["select"]["dropped_by_contamination_filter"] == 2
    assert texts(tmp_path / "run") == ["soup of the day", "the moon"]


def test_random_keeps_as_much_from_the_whole_corpus(toy: Path, tmp_path: Path, command: Command) -> None:
    kept = {}
    for selector in ("best_rank", "random"):
        select = {"name": selector, "budget": "20%"}
        settings = write_settings(tmp_path / "s.json", toy, tmp_path / selector, select=select)
        statistics = json.loads(command("run", settings, "--until", "select", "--json").out)["stages"]["select"]
        assert 0.18 < statistics["share_of_corpus"] <= 0.2
        kept[selector] = texts(tmp_path / selector)
    assert kept["random"] != kept["best_rank"]


def test_json_is_all_there_is(finished_run: Path, tmp_path: Path, command: Command) -> None:
    target = tmp_path / "mine.csv"
    statistics = json.loads(command("selection", finished_run, "--to", target, "--json").out)
    kept = texts(finished_run)
    assert statistics == {"file": str(target), "passages": len(kept), "bytes": sum(len(text.encode()) for text in kept)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task", "--to", "s.csv"], "task: no run here (endtask run --output FOLDER makes one)"),
        (["task", "--to", "s.docx"], "s.docx: unknown kind of file (known: .jsonl, .csv, .parquet"),
    ],
)
def test_mistakes_are_one_line(
    toy: Path, command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(toy)
    before = hashes(toy)
    answer = command("selection", *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"endtask: {said}")
    assert answer.err.count("\n") == 1
    assert hashes(toy) == before
