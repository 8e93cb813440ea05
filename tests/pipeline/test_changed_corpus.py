"""After a change of the corpus only new shards are read, and the result is that of a fresh run."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import zstandard

import endtask
from endtask.errors import InputError
from endtask.io.run_layout import RETRIEVED, SELECTION
from endtask.io.selection_table import read_selection
from endtask.retrieval.bm25 import statistics_pass as pass_one
from tests.toy_run import WORDS, hashes, sentence, toy_settings, write_rows, write_toy


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The toy task and three sources that share some passages and ids."""
    folder = write_toy(tmp_path / "data")
    for number, name in enumerate(("north", "south", "west")):
        write_source(folder, name, number)
    return folder


def write_source(folder: Path, name: str, seed: int) -> Path:
    chance = random.Random(seed)
    labels = [list(WORDS)[number % 3] for number in range(90)]
    rows = [{"id": f"d{row}", "text": f"{sentence(label, 9, chance)} {row % 30}."} for row, label in enumerate(labels)]
    shared = [{"id": "d0", "text": f"soup of the day {row}"} for row in range(5)]
    return write_rows(folder / f"{name}.jsonl", rows[:45] + shared + rows[45:])


def settings_for(data: Path, output: Path, *names: str, **corpus: Any) -> dict[str, Any]:
    sources = [{"path": str(data / f"{name}.jsonl"), "name": name} for name in names]
    return toy_settings(data, output, corpus={"sources": sources, **corpus}, select={"budget": "20%"})


def shards(run: Path) -> dict[str, tuple[int, int]]:
    """Every shard that was read, by key: when and where it was written."""
    folders = [entry for entry in (run / "scratch" / "shards").iterdir() if entry.is_dir()]
    return {folder.name: (folder.stat().st_ino, (folder / "pairs").stat().st_mtime_ns) for folder in folders}


def outcome(run: Path) -> dict[str, str]:
    found = hashes(run, "retrieve/*", "select/*")
    return {name: value for name, value in found.items() if not name.endswith("manifest.json")}


def sources_kept(run: Path) -> set[str]:
    return {item.document.source for item in read_selection(run / "select" / SELECTION)}


CHANGES: dict[str, tuple[tuple[str, ...], dict[str, Any], int, int]] = {
    "a source more, at the end": (("north", "south", "west", "east"), {}, 3, 1),
    "a source more, in the middle": (("north", "east", "south", "west"), {}, 3, 1),
    "a source less": (("north", "west"), {}, 2, 0),
    "another order": (("west", "north", "south"), {}, 3, 0),
    "a document less": (("north", "south", "west"), {"exclude": ["north/d3"]}, 3, 0),
    "equal passages kept": (("north", "south", "west"), {"deduplicate": False}, 3, 0),
    "shorter passages": (("north", "south", "west"), {"passage_characters": 30}, 0, 3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_what_changed_is_read_again(data: Path, tmp_path: Path, change: str) -> None:
    names, corpus, kept, new = CHANGES[change]
    write_source(data, "east", 9)
    before = endtask.run(settings_for(data, tmp_path / "run", "north", "south", "west"), until="select").folder
    old, old_outcome = shards(before), outcome(before)
    with pytest.raises(InputError, match="redo with --from retrieve"):
        endtask.run(settings_for(data, tmp_path / "run", *names, **corpus), until="select")
    endtask.run(settings_for(data, tmp_path / "run", *names, **corpus), until="select", start="retrieve")
    now = shards(tmp_path / "run")
    assert len(now) == kept + new
    assert len({name for name in now if old.get(name) == now[name]}) == kept
    fresh = endtask.run(settings_for(data, tmp_path / "fresh", *names, **corpus), until="select").folder
    assert outcome(tmp_path / "run") == outcome(fresh) != old_outcome
    assert sources_kept(tmp_path / "run") <= set(names)


def test_an_excluded_document_is_gone_and_counted(data: Path, tmp_path: Path) -> None:
    settings = settings_for(data, tmp_path / "run", "north", "south")
    endtask.run(settings, until="select")
    kept = [item.document.id for item in read_selection(tmp_path / "run" / "select" / SELECTION)]
    victim = next(name for name in kept if name.partition("~")[0] not in ("north/d0", "south/d0"))
    settings = settings_for(data, tmp_path / "run", "north", "south", exclude=[victim])
    counts = endtask.run(settings, until="select", start="retrieve").stages["retrieve"]
    assert sum(source["excluded"] for source in counts["corpus"]["sources"].values()) == 1
    for stage, table in (("retrieve", RETRIEVED), ("select", SELECTION)):
        assert victim not in {item.document.id for item in read_selection(tmp_path / "run" / stage / table)}


def test_a_changed_file_and_a_changed_task(data: Path, tmp_path: Path) -> None:
    settings = settings_for(data, tmp_path / "run", "north", "south", "west")
    endtask.run(settings, until="select")
    first = shards(tmp_path / "run")
    write_source(data, "south", 7)
    endtask.run(settings, until="select", start="retrieve")
    second = shards(tmp_path / "run")
    assert len(first.items() & second.items()) == 2
    # A word that no query had before must be looked for everywhere.
    train = data / "task" / "train.jsonl"
    train.write_text(train.read_text() + '{"text": "passage of the day", "label": "food"}\n')
    endtask.run(settings, until="select", start="read")
    assert not shards(tmp_path / "run").keys() & second.keys()
    assert len(shards(tmp_path / "run")) == 3


def test_other_ranking_settings_read_nothing_again(data: Path, tmp_path: Path) -> None:
    settings = settings_for(data, tmp_path / "run", "north", "south", "west")
    endtask.run(settings, until="select")
    before = shards(tmp_path / "run")
    settings["retrieve"] = {"top_k": 9}
    endtask.run(settings, until="select", start="retrieve")
    assert shards(tmp_path / "run") == before
    fresh = endtask.run({**settings, "output_dir": str(tmp_path / "fresh")}, until="select").folder
    assert outcome(tmp_path / "run") == outcome(fresh)


@pytest.mark.parametrize("processes", [False, True])
def test_a_cut_off_shard_is_named_and_the_others_are_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: bool
) -> None:
    if processes:
        monkeypatch.setattr(pass_one, "WORTH_A_PROCESS", 0)
    whole = zstandard.compress((data / "south.jsonl").read_bytes())
    cut = data / "south.jsonl.zst"
    cut.write_bytes(whole[: len(whole) // 2])
    settings = settings_for(data, tmp_path / "run", "north", "south", "west")
    settings["corpus"]["sources"][1]["path"] = str(cut)
    settings["threads"] = 2
    with pytest.raises(InputError, match=r"south\.jsonl\.zst, row \d+: .*"):
        endtask.run(settings, until="select")
    kept = {name: seen for name, seen in shards(tmp_path / "run").items() if ".partial" not in name}
    assert len(kept) == 2
    cut.write_bytes(whole)
    endtask.run(settings, until="select")
    now = shards(tmp_path / "run")
    assert len(now) == 3
    assert kept.items() <= now.items()
    fresh = endtask.run({**settings, "output_dir": str(tmp_path / "fresh"), "threads": 1}, until="select").folder
    assert outcome(tmp_path / "run") == outcome(fresh)


def test_a_damaged_shard_is_read_again(data: Path, tmp_path: Path) -> None:
    settings = settings_for(data, tmp_path / "run", "north", "south")
    endtask.run(settings, until="select")
    before, expected = shards(tmp_path / "run"), outcome(tmp_path / "run")
    damaged, whole = sorted(before)
    with open(tmp_path / "run" / "scratch" / "shards" / damaged / "pairs", "r+b") as file:
        file.truncate(4)
    endtask.run(settings, until="select", start="retrieve")
    now = shards(tmp_path / "run")
    assert now[whole] == before[whole]
    assert now[damaged] != before[damaged]
    assert outcome(tmp_path / "run") == expected


def test_without_scratch_the_same_comes_out(data: Path, tmp_path: Path) -> None:
    kept = endtask.run(settings_for(data, tmp_path / "kept", "north", "south"), until="select").folder
    expected = outcome(kept)
    shutil.rmtree(kept / "scratch")
    endtask.run(kept, until="select", start="retrieve")
    assert outcome(kept) == expected
