"""The joined shards have the passages of `Corpus.documents`: the same order, ids, duplicates and counts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.executors.processes import LocalExecutor
from endtask.progress import set_quiet
from endtask.retrieval.bm25 import shards, statistics_pass
from endtask.retrieval.bm25.join import ABSENT, CONTAMINATED, SCORED, JoinedCorpus
from endtask.retrieval.bm25.statistics_pass import ScanSpec, read_corpus
from endtask.retrieval.words import words_of
from tests.retrieval.corpora import all_passages, read_corpus_of, text_corpus, write_files

Result = TypeVar("Result")
WORDS = ("one", "two", "three", "é", "absent")
TEXTS = st.sampled_from(
    ["one", " one\n", "two  one", "two one", "", " ", "??", "é\u3000é", "é é", "one two three. " * 4, "three\x1fone"]
)
# Some are what a clash would be renamed to.
IDS = st.sampled_from([None, "", "x", "y", "c/x", "x~c-00.jsonl#1", "x~c-00.jsonl#2", "x~c-00.jsonl#2~", "x#p1", "1"])
ROWS = st.builds(lambda given_id, text: {"id": given_id, "text": text}, IDS, TEXTS)
EXCLUDED = st.sets(
    st.sampled_from(["c/x", "c/x~c-00.jsonl#2", "c/x~c-00.jsonl#2~", "c/x~c-00.jsonl#3", "d/y", "c/x#p1", "unknown"])
)


@pytest.fixture(autouse=True)
def quiet() -> None:
    set_quiet(True)


def joined_corpus(corpus: Corpus, folder: Path, evaluation: tuple[str, ...] = ()) -> JoinedCorpus:
    return read_corpus(corpus, ScanSpec.of(WORDS, evaluation), folder, LocalExecutor(1))


def outcome(work: Callable[[], Result]) -> tuple[Result | None, str | None]:
    """What comes out, or the complaint."""
    try:
        return work(), None
    except InputError as complaint:
        return None, str(complaint)


def assert_same(corpus: Corpus, folder: Path) -> None:
    """Passages, statistics, sizes and document frequencies, or the same complaint."""
    documents, complaint = outcome(lambda: list(corpus.documents()))
    joined, same_complaint = outcome(lambda: joined_corpus(corpus, folder / "shards"))
    assert same_complaint == complaint
    if documents is None or joined is None:
        return
    columns = ("id", "text", "source", "title", "license")
    rows = all_passages(joined, folder / "texts")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        tuple(getattr(document, name) for name in columns) for document in documents
    ]
    assert [row["position"] for row in rows] == list(range(len(documents)))
    assert joined.positions == joined.scored == len(documents)
    assert joined.statistics.to_dict() == corpus.statistics.to_dict()
    assert joined.passage_sizes().tolist() == [len(document.text.encode()) for document in documents]
    words = [words_of(document.text) for document in documents]
    assert joined.document_frequency.tolist() == [sum(word in part for part in words) for word in sorted(WORDS)]
    assert joined.mean_length == sum(map(len, words)) / len(words)


@given(
    st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=3),
    st.lists(st.lists(ROWS, max_size=4), max_size=2),
    EXCLUDED,
    st.booleans(),
    st.sampled_from([1, 10**9]),
    st.sampled_from([1, 3, 10**6]),
)
@settings(max_examples=20)
def test_joined_shards_are_the_corpus(
    first: list[Any], second: list[Any], exclude: set[str], deduplicate: bool, smallest: int, block: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_LARGE", smallest)
        patch.setattr(shards, "_CHUNK", block)
        patch.setattr(statistics_pass, "_BLOCK", block)
        folder = Path(name)
        entries = [write_files(folder / "first", first)]
        if second:
            entries.append(Path(f"d={write_files(folder / 'second', second)}"))
        corpus = read_corpus_of(*entries, passage_characters=30, deduplicate=deduplicate, exclude=exclude)
        assert_same(corpus, folder)


def test_ids_that_clash_several_times(tmp_path: Path) -> None:
    rows = [{"id": name, "text": name * (number + 1)} for number, name in enumerate("xxxy")]
    taken = [{"id": f"x~c-01.jsonl#{number}{'~' * tildes}", "text": f"{number} {tildes}"} for number, tildes in
             [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]]  # fmt: skip
    corpus = read_corpus_of(write_files(tmp_path / "c", [taken, rows]))
    ids = [document.id for document in corpus.documents()]
    assert ids[6:] == ["c/x", "c/x~c-01.jsonl#2~~", "c/x~c-01.jsonl#3~~~", "c/y"]
    assert_same(corpus, tmp_path)
    last = read_corpus_of(tmp_path / "c", exclude=["c/x~c-01.jsonl#3~~~"])
    assert [document.id for document in last.documents()] == [*ids[:8], "c/y"]
    assert_same(last, tmp_path / "excluded")


def test_of_equal_passages_in_several_shards_the_first_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_LARGE", 1)
    corpus = text_corpus(tmp_path / "c", ["one", "two one", "two", "two  one", "one", "three"], cuts=[2, 4])
    joined = joined_corpus(corpus, tmp_path / "shards")
    assert [shard.states.tolist() for shard in joined.shards] == [
        [SCORED, SCORED], [SCORED, ABSENT], [ABSENT, SCORED]
    ]  # fmt: skip
    assert [shard.first_position for shard in joined.shards] == [0, 2, 3]
    assert_same(corpus, tmp_path)


def test_duplicates_with_many_repeats_leave_the_frequencies_right(tmp_path: Path) -> None:
    texts = [f"{'one ' * count}two" for count in (1, 255, 256, 255, 600, 600, 510, 510)]
    corpus = text_corpus(tmp_path / "c", [text.upper() for text in texts[4:]] + texts)
    assert_same(Corpus(corpus.sources, passage_characters=10**6), tmp_path)


def test_contaminated_passages_keep_their_place_but_are_not_scored(tmp_path: Path) -> None:
    texts = ["one", "A secret is one. Two.", "two", "three  one"]
    joined = joined_corpus(text_corpus(tmp_path / "c", texts), tmp_path / "shards", ("a secret is one",))
    assert joined.shards[0].states.tolist() == [SCORED, CONTAMINATED, SCORED, SCORED]
    assert (joined.positions, joined.scored, joined.contaminated) == (4, 3, 1)
    assert joined.passage_sizes().tolist() == [3, 0, 3, 10]
    assert dict(zip(sorted(WORDS), joined.document_frequency.tolist(), strict=True)) == {
        "absent": 0, "one": 2, "three": 1, "two": 1, "é": 0
    }  # fmt: skip
    assert joined.mean_length == 4 / 3
    assert joined.statistics.total.passages == 4


def test_exclusions_that_the_corpus_does_not_hold_are_named(tmp_path: Path) -> None:
    files = write_files(tmp_path / "c", [[{"id": "a", "text": "one"}], [{"id": "b", "text": "two"}]])
    corpus = read_corpus_of(files, exclude=["c/b", "c/x", "b"])
    joined = joined_corpus(corpus, tmp_path / "shards")
    assert joined.unknown_exclusions == ("b", "c/x")
    assert joined.statistics.total.excluded == 1


def test_idf_is_lucenes(tmp_path: Path) -> None:
    joined = joined_corpus(text_corpus(tmp_path / "c", ["one", "one two", "one three"]), tmp_path / "shards")
    expected = [np.log(1 + (3 - count + 0.5) / (count + 0.5)) for count in (0, 3, 1, 1, 0)]
    np.testing.assert_allclose(joined.idf(), expected, rtol=1e-12)
