"""Passages are fetched by position, with the ids of the corpus and their matches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from endtask.errors import InputError
from endtask.executors.processes import LocalExecutor
from endtask.progress import set_quiet
from endtask.retrieval import matched_queries as fetch
from endtask.retrieval.bm25 import shards, statistics_pass
from endtask.retrieval.bm25.join import JoinedCorpus
from endtask.retrieval.bm25.statistics_pass import ScanSpec, read_corpus
from endtask.retrieval.matched_queries import MatchedPassages, ShardMatches, fetch_passages, locate_matches
from tests.retrieval.corpora import all_passages, read_corpus_of, write_files

LONG = " ".join(f"n{number:02}." for number in range(30))
FILES = [
    [
        {"id": "a", "text": "one", "title": "First", "license": "CC0"},
        {"id": "b", "text": ""},
        {"id": "a", "text": "two"},
    ],
    [{"id": "c", "text": "one "}, {"text": "three é"}, {"id": "a", "text": LONG}],
]


@pytest.fixture(autouse=True)
def quiet() -> None:
    set_quiet(True)


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JoinedCorpus:
    """Two shards; a duplicate, an empty text, ids that clash and a text that is cut."""
    monkeypatch.setattr(shards, "_LARGE", 1)
    corpus = read_corpus_of(write_files(tmp_path / "c", FILES), passage_characters=70)
    return read_corpus(corpus, ScanSpec.of([]), tmp_path / "shards", LocalExecutor(1))


IDS = ["c/a", "c/a~c-00.jsonl#3", "c/c-01.jsonl#2", "c/a#p1", "c/a#p2", "c/a#p3"]


@pytest.mark.parametrize("block", [1, 5, 10**6])
def test_all_passages(joined: JoinedCorpus, tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_pass, "_BLOCK", block)
    rows = all_passages(joined, tmp_path / "texts")
    assert [row["id"] for row in rows] == IDS
    assert [row["text"] for row in rows[:3]] == ["one", "two", "three é"]
    assert " ".join(row["text"] for row in rows[3:]) == LONG
    assert (rows[0]["title"], rows[0]["license"], rows[0]["source"]) == ("First", "CC0", "c")
    assert [row["title"] for row in rows[1:]] == [None] * 5
    assert not list((tmp_path / "texts").glob("*.arrow")), "what workers hand over is not left behind"


def some_matches() -> MatchedPassages:
    """Positions 1, 2 and 4, asked for by 2, 0 and 1 of the examples."""
    return MatchedPassages(
        positions=np.array([1, 2, 4]),
        rank=np.array([3, 1, 2]),
        score=np.array([0.5, 7.0, 1e-9]),
        matched_count=np.array([25, 1, 1]),
        query_counts=np.array([2, 0, 1]),
        query_matches=np.array([2, 0, 1], dtype=np.int32),
    )


def test_matches_stand_beside_the_right_text(joined: JoinedCorpus, tmp_path: Path) -> None:
    wanted = []
    for number, shard in enumerate(joined.shards):
        statistics = some_matches().part(shard.first_position, shard.first_position + shard.passages)
        locate_matches(shard, statistics).save(tmp_path / f"{number}.npz")
        wanted.append((shard.shard, tmp_path / f"{number}.npz"))
    batches = fetch_passages(wanted, ["x", "y", "z"], tmp_path / "texts", LocalExecutor(1))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [IDS[1], IDS[2], IDS[4]]
    assert [row["position"] for row in rows] == [1, 2, 4]
    assert [row["rank"] for row in rows] == [3, 1, 2]
    assert [row["score"] for row in rows] == [0.5, 7.0, 1e-9]
    assert [row["matched_count"] for row in rows] == [25, 1, 1]
    assert [row["matched_queries"] for row in rows] == [["z", "x"], [], ["y"]]
    assert {row["reason"] for row in rows} == {"retrieved"}


def test_what_is_wanted_survives_the_way_to_another_process(tmp_path: Path) -> None:
    wanted = ShardMatches(np.array([1, 3, 5]), np.array([0, 1, 2], dtype=np.uint8), np.array([7, 8, 9]), some_matches())
    wanted.save(tmp_path / "wanted.npz")
    again = ShardMatches.load(tmp_path / "wanted.npz")
    assert again.indices.tolist() == [1, 3, 5]
    assert again.renames.tolist() == [0, 1, 2]
    assert again.sizes.tolist() == [7, 8, 9]
    for name, values in vars(wanted.matches).items():
        np.testing.assert_array_equal(getattr(again.matches, name), values)


@pytest.mark.parametrize("change", ["another text", "a text less"])
def test_a_corpus_that_changed_meanwhile_is_refused(joined: JoinedCorpus, tmp_path: Path, change: str) -> None:
    path = tmp_path / "c" / "c-00.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1] if change == "a text less" else [line.replace("two", "2") for line in lines]))
    with pytest.raises(InputError, match=r"c-00.jsonl: the corpus changed while it was read"):
        all_passages(joined, tmp_path / "texts")


def test_nothing_wanted(tmp_path: Path) -> None:
    assert list(fetch_passages([], [], tmp_path / "texts", LocalExecutor(2))) == []


def test_other_processes_fetch_the_same(joined: JoinedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = all_passages(joined, tmp_path / "here")
    handle = fetch.handle

    def patient(job: dict[str, Any], report: Any) -> None:
        end = time.monotonic() + 100
        while not any((tmp_path / "there").glob("*.arrow")) and time.monotonic() < end:  # until another is at work
            time.sleep(0.01)
        handle(job, report)

    monkeypatch.setattr(fetch, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(fetch, "handle", patient)
    assert all_passages(joined, tmp_path / "there", workers=2) == here
