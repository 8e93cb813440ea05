"""The retrieve stage from task and corpus to the table of passages with their reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from endtask.corpus import Corpus
from endtask.files.selection_table import read_selection
from endtask.progress import set_quiet
from endtask.records import Example, Selected
from endtask.retrieve.retrieve import RETRIEVED, retrieve
from endtask.settings import RetrieveSettings
from endtask.task import Task

TEST_TEXT = "the river that carries silver from the hills down to the old stone bridge every spring"
MARKED = "a <e1>copper</e1> kettle sings on the <e2>stove</e2> while grandmother reads letters from the far coast"
PASSAGES = [
    "Apples and pears ripen in autumn.",
    f"Here it is said that {TEST_TEXT}, or so they say about apples.",
    "Bridges are built of stone. Apples are not.",
    "Nothing in common whatsoever!",
    "A short secret. Apples again.",
    "They say a copper kettle sings on the stove while grandmother reads letters from the far coast.",
    "Pears, pears and apples and pears.",
    "???",
]


@pytest.fixture(autouse=True)
def quiet() -> None:
    set_quiet(True)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{n}", "text": text}) + "\n" for n, text in enumerate(PASSAGES)))
    return Corpus.read(path)


@pytest.fixture
def task() -> Task:
    texts = {
        "train": ["pears and apples", "<< Pears >> and [[ apples ]]", "apples", "stone bridge"],
        "dev": ["A short secret.", MARKED],
        "test": [TEST_TEXT, "apples"],
    }
    splits = {
        split: [Example(f"{split}-{row}", text, "x" if row % 2 else "y") for row, text in enumerate(part)]
        for split, part in texts.items()
    }
    return Task.from_examples("fruit", splits)


def retrieved(folder: Path) -> dict[int, Selected]:
    return {item.position: item for item in read_selection(folder / RETRIEVED)}


def test_planted_dev_and_test_texts_are_dropped_and_counted(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    counts = retrieve(task, corpus, RetrieveSettings(), tmp_path)
    assert set(retrieved(tmp_path)) == {0, 2, 6}
    assert counts["dropped_by_guard"] == 3  # passages 1 (test), 4 and 5 (dev)
    assert (counts["passages"], counts["queries"], counts["top_k"]) == (3, 3, 5000)
    assert counts["corpus"]["passages"] == len(PASSAGES)
    assert counts["corpus"]["bytes"] == sum(len(text) for text in PASSAGES)
    assert counts["corpus"]["sources"]["corpus"]["documents"] == len(PASSAGES)


def test_without_the_guard_they_are_retrieved(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    counts = retrieve(task, corpus, RetrieveSettings(guard=False), tmp_path)
    assert {1, 4} <= set(retrieved(tmp_path))
    assert counts["dropped_by_guard"] == 0


def test_provenance_says_who_asked_and_how_well_it_matched(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    retrieve(task, corpus, RetrieveSettings(), tmp_path)
    found = retrieved(tmp_path)
    pears = found[6]
    assert (pears.document.text, pears.document.id, pears.document.source) == (PASSAGES[6], "corpus/p6", "corpus")
    assert (pears.rank, pears.asked_count) == (1, 3)
    assert pears.asked_by[:2] == ("train-0", "train-1"), "equal texts ask together"
    assert pears.score > found[0].score > 0
    assert found[2].rank == 1
    assert found[2].asked_by[0] == "train-3"
    assert set(found[2].asked_by) == {"train-0", "train-1", "train-2", "train-3"}
    assert {item.reason for item in found.values()} == {"retrieved"}


def test_each_query_asks_for_k_passages(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    counts = retrieve(task, corpus, RetrieveSettings(top_k=1), tmp_path)
    found = retrieved(tmp_path)
    assert counts["top_k"] == 1
    assert len(found) <= 3
    assert {item.rank for item in found.values()} == {1}
    assert sum(item.asked_count for item in found.values()) == len(task.train)


def test_two_retrievals_write_the_same_bytes(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        retrieve(task, corpus, RetrieveSettings(), tmp_path / name)
    assert (tmp_path / "one" / RETRIEVED).read_bytes() == (tmp_path / "two" / RETRIEVED).read_bytes()


def test_everything_dropped_leaves_an_empty_table(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"text": TEST_TEXT}) + "\n")
    counts = retrieve(task, Corpus.read(path), RetrieveSettings(), tmp_path)
    assert (counts["passages"], counts["dropped_by_guard"]) == (0, 1)
    assert retrieved(tmp_path) == {}


def test_without_a_corpus_nothing_is_retrieved(task: Task, tmp_path: Path) -> None:
    counts = retrieve(task, None, RetrieveSettings(), tmp_path)
    assert counts == {"passages": 0, "corpus": {"passages": 0, "bytes": 0}}
    assert retrieved(tmp_path) == {}
