"""`endtask select`: redo or try a run's selection, with statistics that need no training."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.io.run_layout import RETRIEVED, SELECTION
from endtask.io.selection_table import read_selection
from endtask.io.stage_files import write_manifest
from endtask.pipeline.stages import STAGES
from tests.conftest import Answer
from tests.toy_run import hashes, write_settings

Command = Callable[..., Answer]


@pytest.mark.parametrize("selector", ["dsir", "classifier", "fusion", "best_rank", "random"])
def test_a_dry_run_leaves_the_run_as_it_is(finished_run: Path, command: Command, selector: str) -> None:
    before = hashes(finished_run)
    words = ["--set", f"select.name={selector}", "--set", "select.budget=5passages", "--dry-run", "--quiet"]
    answer = command("select", finished_run, *words)
    assert answer.code == 0, answer
    first, kept, quality = answer.out.splitlines()
    assert first == f"selector: {selector}"
    assert kept.startswith("selected: 5 passages, 0.0 MB, ")
    assert quality.startswith("quality: KL divergence from the task's n-grams ")
    assert ("also selected by best_rank" in quality) == (selector != "best_rank")
    assert hashes(finished_run) == before


def test_redone_in_the_runs_folder(toy: Path, tmp_path: Path, command: Command) -> None:
    settings = write_settings(tmp_path / "s.json", toy, tmp_path / "run", select={"budget": "5passages"})
    assert command("select", settings, "--quiet").code == 0
    changed = ["select", tmp_path / "run", "--set", "select.name=dsir", "--quiet", "--json"]
    refused = command(*changed)
    assert refused.code == 2
    assert "redo with --from select" in refused.err
    answer = command(*changed, "--from", "select")
    assert answer.code == 0, answer
    statistics = json.loads(answer.out)
    assert statistics["select"]["passages"] == 5
    assert statistics["select"]["quality"]["overlap"]["best_rank"].keys() == {"share", "jaccard"}
    kept = list(read_selection(Path(statistics["table"])))
    assert all(item.reason.startswith("dsir: log importance ") for item in kept)
    assert Path(statistics["table"]) == tmp_path / "run" / "select" / SELECTION


def test_a_dry_run_needs_what_was_retrieved(toy: Path, tmp_path: Path, command: Command) -> None:
    settings = write_settings(tmp_path / "s.json", toy, tmp_path / "run")
    answer = command("select", settings, "--dry-run", "--quiet")
    assert answer.code == 2
    assert "nothing was retrieved with these settings (retrieve first: endtask retrieve" in answer.err
    assert not (tmp_path / "run").exists()


def test_the_reason_stands_where_why_shows_it(finished_run: Path, tmp_path: Path, command: Command) -> None:
    run = shutil.copytree(finished_run, tmp_path / "run")
    words = ["--set", "select.name=classifier", "--set", "select.budget=5passages", "--from", "select", "--json"]
    table = json.loads(command("select", run, *words, "--quiet").out)["table"]
    one = next(iter(read_selection(Path(table))))
    shown = command("why", run, one.document.id).out
    assert one.reason in shown
    assert f"best rank {one.reason.rpartition('BM25 rank ')[2].split()[0]}, score " in shown


def test_a_dry_run_where_the_retrieved_texts_stayed_elsewhere(own_run: Path, command: Command) -> None:
    manifest = json.loads((own_run / "retrieve" / "manifest.json").read_text())
    write_manifest(own_run / "retrieve", {**manifest, "left_out": [RETRIEVED]})
    (own_run / "retrieve" / RETRIEVED).unlink()
    before = hashes(own_run)
    answer = command("select", own_run, "--dry-run", "--quiet")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert "the stage select cannot be done here: the files of the stage retrieve stayed on the machine" in answer.err
    assert hashes(own_run) == before


def test_a_full_disk_is_one_line(own_run: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> dict[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(STAGES["select"], "run", full)
    answer = command("select", own_run, "--dry-run", "--quiet")
    assert (answer.code, answer.err) == (2, f"endtask: {own_run}: No space left on device (the run is unchanged)\n")
    assert not (own_run / ".dry_run").exists()


@pytest.mark.parametrize("selector", ["imported", "none"])
def test_a_dry_run_of_what_reads_nothing_retrieved(
    finished_run: Path, toy: Path, tmp_path: Path, command: Command, selector: str
) -> None:
    (tmp_path / "mine.csv").write_text("text\nsoup of the day\nthe moon\n")
    before = hashes(finished_run)
    words = ["--set", f"select.name={selector}", "--set", "select.budget=null", "--dry-run", "--quiet", "--json"]
    words += ["--set", f"select.path={tmp_path / 'mine.csv'}"] if selector == "imported" else []
    answer = command("select", finished_run, *words)
    assert answer.code == 0, answer
    counts = json.loads(answer.out)["select"]
    assert counts["passages"] == (2 if selector == "imported" else 0)
    assert ("kl_reduction" in counts.get("quality", {})) == (selector == "imported")
    assert hashes(finished_run) == before
    refused = command("select", write_settings(tmp_path / "s.json", toy, tmp_path / "run"), *words)
    assert refused.code == 2
    assert f"{selector} reads no retrieved passages, and there are none" in refused.err
    assert "--from" not in refused.err


def test_a_dry_run_redoes_nothing(finished_run: Path, command: Command) -> None:
    answer = command("select", finished_run, "--dry-run", "--from", "select")
    assert answer.code == 2
    assert answer.err.startswith("endtask: --from and --dry-run do not go together")


def test_a_preset_and_a_budget_are_taken_as_by_run(toy: Path, tmp_path: Path, command: Command) -> None:
    given = ["--preset", "laptop", "--budget", "7steps", "--task", toy / "task", "--corpus", toy / "corpus.jsonl"]
    for verb, words in (("retrieve", [*given[:2], *given[4:]]), ("select", [*given, "--from", "select"])):
        answer = command(verb, *words, "--output", tmp_path / "run", "--set", "retrieve.top_k=2", "--quiet")
        assert answer.code == 0, answer
    written = (tmp_path / "run" / "settings.yaml").read_text()
    assert "budget: 7steps" in written
    assert "size: tiny" in written
