"""`endtask retrieve`: every selector, and the output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.io.run_layout import RETRIEVED, SELECTION
from endtask.io.selection_table import read_selection, read_statistics
from endtask.io.stage_files import read_manifest
from endtask.records import Selected
from endtask.reporting.selection import quality_sentence
from tests.conftest import Answer
from tests.toy_run import write_rows, write_settings

Command = Callable[..., Answer]


def kept(run: Path) -> list[Selected]:
    return list(read_selection(run / "select" / SELECTION))


def retrieve(command: Command, data: Path, run: Path, **changes: Any) -> dict[str, Any]:
    settings = write_settings(run.with_suffix(".json"), data, run, **changes)
    answer = command("retrieve", settings, "--json", "--quiet")
    assert answer.code == 0, answer
    statistics: dict[str, Any] = json.loads(answer.out)
    return statistics


def test_random_is_as_large_and_knows_nothing_of_the_task(toy: Path, tmp_path: Path, command: Command) -> None:
    selections = {}
    for selector in ("best_rank", "random"):
        select = {"name": selector, "budget": "20%"}
        statistics = retrieve(command, toy, tmp_path / selector, select=select)
        assert statistics["select"]["share_of_corpus"] == pytest.approx(0.2, abs=0.01)
        selections[selector] = kept(tmp_path / selector)
    drawn = selections["random"]
    assert all(item.matched_queries == () and item.reason.startswith("random: draw ") for item in drawn)
    assert [item.position for item in drawn] == sorted(item.position for item in drawn)
    assert {item.document.id for item in drawn} != {item.document.id for item in selections["best_rank"]}


def test_random_without_a_budget_is_as_large_as_what_was_retrieved(toy: Path, tmp_path: Path, command: Command) -> None:
    select = {"name": "random", "budget": None}
    statistics = retrieve(command, toy, tmp_path / "run", select=select, retrieve={"top_k": 1})
    size = int(read_statistics(tmp_path / "run" / "retrieve" / RETRIEVED).bytes.sum())
    assert size - 100 < statistics["select"]["bytes"] <= size


def test_what_was_left_out_is_said(toy: Path, tmp_path: Path, command: Command) -> None:
    test_text = json.loads((toy / "task" / "test.jsonl").read_text().splitlines()[0])["text"]
    long = "soup star ball bread moon goal salt orbit team oven rocket match " * 8
    texts = [f"{long}{tail}" for tail in ("", "once", "twice")] + [
        "salt",
        "sky",
        f"As they say. {test_text}. So it goes.",
    ]
    write_rows(tmp_path / "corpus.jsonl", [{"text": text} for text in texts])
    (tmp_path / "task").symlink_to(toy / "task")
    settings = write_settings(
        tmp_path / "settings.json",
        tmp_path,
        tmp_path / "run",
        retrieve={"top_k": 2},
        select={"budget": "1passages"},
    )
    answer = command("retrieve", settings, "--quiet")
    assert answer.code == 0, answer
    lines = answer.out.splitlines()
    assert lines[0].startswith("60 queries x 2 passages each retrieved ")
    assert lines[0].endswith(" of 6 passages; the contamination filter dropped 1")
    assert lines[1].startswith("selected: 1 passages, 0.0 MB, ")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The contamination filter dropped 1 passage of the corpus" in page


@pytest.mark.parametrize("name", ["mine.csv", "mine.parquet"])
def test_a_selection_of_ones_own_without_a_corpus(
    toy: Path, finished_run: Path, tmp_path: Path, command: Command, name: str
) -> None:
    assert command("selection", finished_run, "--to", tmp_path / name).code == 0
    words = ["--task", toy / "task", "--output", tmp_path / "run", "--quiet"]
    own = ["--set", "select.name=imported", "--set", f"select.path={tmp_path / name}"]
    answer = command("retrieve", *words, *own, "--set", "select.budget=null")
    before = kept(finished_run)
    assert answer.out.splitlines() == [
        f"imported: {len(before)} rows; 0 were empty, the contamination filter dropped 0",
        f"selected: {len(before)} passages, 0.0 MB",
        f"quality: {quality_sentence(read_manifest(tmp_path / 'run' / 'select')['counts'])}",
        f"table: {tmp_path / 'run'}/select/selection.parquet",
    ]
    assert [item.document.text for item in kept(tmp_path / "run")] == [item.document.text for item in before]
    answer = command("retrieve", *words, *own)
    assert answer.code == 2
    assert "key 'select.budget': 5%, at least 20MB is a share of the corpus, but there is no corpus" in answer.err


@pytest.mark.parametrize("selector", ["best_rank", "random"])
def test_without_a_corpus_there_is_nothing_to_retrieve(
    toy: Path, tmp_path: Path, command: Command, selector: str
) -> None:
    words = ["--task", toy / "task", "--output", tmp_path / "run", "--set", f"select.name={selector}"]
    answer = command("retrieve", *words)
    assert answer.code == 2
    assert answer.err == "endtask: key 'corpus.sources': no corpus to retrieve from (--corpus path/to/text)\n"
    assert not (tmp_path / "run").exists()
