"""The retrieve stage from task and corpus to the table of passages with their reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from endtask.config import CorpusSettings, RetrieveSettings, SourceSettings
from endtask.corpus import Corpus
from endtask.executors.processes import LocalExecutor
from endtask.io.run_layout import PASSAGE_SIZES, QUERIES, QUERY_WORDS, RETRIEVED
from endtask.io.selection_table import read_selection
from endtask.progress import set_quiet
from endtask.records import Example, Selected
from endtask.retrieval import retrieve as stage
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


def retrieve(
    task: Task,
    corpus: Corpus | None,
    settings: RetrieveSettings,
    folder: Path,
    *,
    workers: int = 1,
) -> dict[str, Any]:
    """The stage with its results in `folder` and its scratch beside them."""
    folder.mkdir(exist_ok=True)
    place = stage.RetrievePaths(folder, folder / "scratch", LocalExecutor(workers))
    return stage.retrieve(task, corpus, settings, place)


def retrieved(folder: Path) -> dict[int, Selected]:
    return {item.position: item for item in read_selection(folder / RETRIEVED)}


def test_planted_dev_and_test_texts_are_dropped_and_counted(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    counts = retrieve(task, corpus, RetrieveSettings(), tmp_path)
    assert set(retrieved(tmp_path)) == {0, 2, 6}
    assert counts["dropped_by_contamination_filter"] == 3  # passages 1 (test), 4 and 5 (dev)
    assert (counts["passages"], counts["queries"], counts["top_k"]) == (3, 3, 5000)
    assert counts["corpus"]["passages"] == len(PASSAGES)
    assert counts["corpus"]["bytes"] == sum(len(text) for text in PASSAGES)
    assert counts["corpus"]["sources"]["corpus"]["documents"] == len(PASSAGES)


def test_what_is_not_read_is_noted(task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pile").mkdir()
    (tmp_path / "pile" / "a.jsonl").write_text('{"text": "pears"}\n{"text": 5}\n')
    (tmp_path / "pile" / "b.png").write_text("")
    settings = CorpusSettings(sources=(SourceSettings(path=str(tmp_path / "pile")),), on_error="skip")
    counts = retrieve(task, Corpus.read(settings), RetrieveSettings(), tmp_path / "run")["corpus"]
    unread, skipped = counts["notes"]
    assert unread == f"1 file of {tmp_path / 'pile'} not read, of no known format: b.png"
    assert skipped.startswith("1 item of a skipped, which could not be read: ")
    assert skipped.endswith("a.jsonl, row 2: column 'text' is of type int, not a text")
    assert skipped in capsys.readouterr().err
    assert {key: counts["sources"]["a"][key] for key in ("unread_files", "skipped", "first_unread")} == {
        "unread_files": 1,
        "skipped": 1,
        "first_unread": ["b.png"],
    }


def test_without_the_filter_they_are_retrieved(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    counts = retrieve(task, corpus, RetrieveSettings(contamination_filter=False), tmp_path)
    assert {1, 4} <= set(retrieved(tmp_path))
    assert counts["dropped_by_contamination_filter"] == 0


def test_provenance_says_who_asked_and_how_well_it_matched(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    retrieve(task, corpus, RetrieveSettings(), tmp_path)
    found = retrieved(tmp_path)
    pears = found[6]
    assert (pears.document.text, pears.document.id, pears.document.source) == (PASSAGES[6], "corpus/p6", "corpus")
    assert (pears.rank, pears.matched_count) == (1, 3)
    assert pears.matched_queries[:2] == ("train-0", "train-1"), "equal texts ask together"
    assert pears.score > found[0].score > 0
    assert found[2].rank == 1
    assert found[2].matched_queries[0] == "train-3"
    assert set(found[2].matched_queries) == {"train-0", "train-1", "train-2", "train-3"}
    assert {item.reason for item in found.values()} == {"retrieved"}


def test_each_query_asks_for_k_passages(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    counts = retrieve(task, corpus, RetrieveSettings(top_k=1), tmp_path)
    found = retrieved(tmp_path)
    assert counts["top_k"] == 1
    assert len(found) <= 3
    assert {item.rank for item in found.values()} == {1}
    assert sum(item.matched_count for item in found.values()) == len(task.train)


def test_two_retrievals_write_the_same_bytes(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    for name in ("one", "two"):
        retrieve(task, corpus, RetrieveSettings(), tmp_path / name)
    assert (tmp_path / "one" / RETRIEVED).read_bytes() == (tmp_path / "two" / RETRIEVED).read_bytes()


def test_everything_dropped_leaves_an_empty_table(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"text": TEST_TEXT}) + "\n")
    counts = retrieve(task, Corpus.read(path), RetrieveSettings(), tmp_path)
    assert (counts["passages"], counts["dropped_by_contamination_filter"]) == (0, 1)
    assert retrieved(tmp_path) == {}


def test_without_a_corpus_nothing_is_retrieved(task: Task, tmp_path: Path) -> None:
    counts = retrieve(task, None, RetrieveSettings(), tmp_path)
    assert counts == {"passages": 0, "corpus": {"passages": 0, "bytes": 0}}
    assert retrieved(tmp_path) == {}


def write_corpus(path: Path, texts: list[str]) -> Corpus:
    path.write_text("".join(json.dumps({"id": f"p{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return Corpus.read(path)


def asking(*pairs: tuple[str, str]) -> Task:
    """A task whose train rows are (text, label), with dev and test rows that stand in no passage."""
    train = [Example(str(row), text, label) for row, (text, label) in enumerate(pairs)]
    others = {split: [Example(split, f"nowhere at all {split}", pairs[0][1])] for split in ("dev", "test")}
    return Task.from_examples("asking", {"train": train, **others})


def queries_of(folder: Path) -> dict[str, list[str]]:
    """Words of each query and who asks it."""
    return {" ".join(row["words"]): row["example_ids"] for row in parquet.read_table(folder / QUERIES).to_pylist()}


def test_what_stands_beside_the_table(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    retrieve(task, corpus, RetrieveSettings(), tmp_path)
    assert queries_of(tmp_path) == {
        "pears and apples": ["train-0", "train-1"],
        "apples": ["train-2"],
        "stone bridge": ["train-3"],
    }
    words = {row["word"]: row["document_frequency"] for row in parquet.read_table(tmp_path / QUERY_WORDS).to_pylist()}
    assert words == {"and": 2, "apples": 3, "pears": 2, "stone": 1}, (
        "of passages that the contamination filter let through"
    )
    contaminated = {1, 4, 5}
    sizes = np.load(tmp_path / PASSAGE_SIZES)
    assert sizes.tolist() == [0 if place in contaminated else len(text) for place, text in enumerate(PASSAGES)]
    assert not list((tmp_path / "scratch").glob("texts*"))


def test_key_phrases_ask(corpus: Corpus, tmp_path: Path) -> None:
    text = "It is what it is: the stone bridges of the old town, and then there is more of it."
    retrieve(asking((text, "x"), ("apples", "y")), corpus, RetrieveSettings(query="rake"), tmp_path)
    asked = {words: ids for words, ids in queries_of(tmp_path).items() if ids == ["0"]}
    assert len(asked) == 1
    assert {"stone", "bridges"} <= set(" ".join(asked).split()) <= {"stone", "bridges", "old", "town"}


def test_the_papers_top_k(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    assert retrieve(task, corpus, RetrieveSettings(top_k="auto_large"), tmp_path)["top_k"] == 10_000
    assert retrieve(task, corpus, RetrieveSettings(top_k=3), tmp_path)["top_k"] == 3


def test_shards_stay_and_rankings_go(task: Task, corpus: Corpus, tmp_path: Path) -> None:
    retrieve(task, corpus, RetrieveSettings(), tmp_path)
    assert [entry.name for entry in (tmp_path / "scratch").iterdir()] == ["shards"]
    assert set(retrieved(tmp_path)) == {0, 2, 6}


def test_a_task_without_any_word_asks_nothing(corpus: Corpus, tmp_path: Path) -> None:
    counts = retrieve(asking(("!!", "x"), ("??", "y")), corpus, RetrieveSettings(), tmp_path)
    assert (counts["queries"], counts["texts_without_words"], counts["passages"]) == (0, 2, 0)
    assert retrieved(tmp_path) == {}
    assert counts["corpus"]["passages"] == len(PASSAGES)


def test_words_that_no_passage_has(corpus: Corpus, tmp_path: Path) -> None:
    task = asking(("xyzzy", "x"), ("plugh", "y"))
    counts = retrieve(task, corpus, RetrieveSettings(query="full"), tmp_path)
    assert (counts["queries"], counts["passages"]) == (2, 0)
