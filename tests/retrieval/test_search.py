"""Bulk BM25 from files to rankings: the scores of bm25s, and the same bytes for any number of workers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.io.tables import read_rows
from endtask.progress import set_quiet
from endtask.retrieval.bm25 import limits, shards, statistics_pass
from endtask.retrieval.bm25 import score as pass_two
from endtask.retrieval.bm25.ranking_pass import search
from endtask.retrieval.bm25.rankings import Rankings
from endtask.retrieval.bm25.score import QueryBlock
from tests.retrieval.corpora import Bm25s, as_bytes, assert_ranks, read_corpus_of, text_corpus, write_rows, zipf_texts

WORDS = ["a", "b", "c", "the", "The", "É", "é", "日本", "ς", "Σ", "İ", "x-ray", "!", "..."]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=10).map(" ".join)
K1 = st.sampled_from([0.0, 0.5, 1.2, 1000.0]) | st.floats(0, 3)
B = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)


@pytest.fixture(autouse=True)
def quiet() -> None:
    set_quiet(True)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def check(folder: Path, texts: list[str], queries: list[str], *, top_k: int, k1: float = 1.2, b: float = 0.75) -> None:
    """`search` against bm25s; equal texts are all kept, so that there are ties."""
    corpus = text_corpus(folder / "corpus", texts, deduplicate=False)
    rankings = search(corpus, queries, top_k=top_k, folder=folder / "scratch", k1=k1, b=b, workers=1)
    oracle = Bm25s([document.text for document in corpus.documents()], k1, b)
    assert len(rankings) == len(queries)
    for number, query in enumerate(queries):
        assert_ranks(rankings[number], oracle.scores(query), top_k)


@given(
    st.lists(TEXTS, min_size=1, max_size=12).filter(lambda texts: any(text.strip() for text in texts)),
    st.lists(TEXTS, max_size=5),
    st.integers(1, 15),
    K1,
    B,
)
@settings(max_examples=25)
def test_small_corpora_against_bm25s(texts: list[str], queries: list[str], top_k: int, k1: float, b: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        check(Path(name), texts, queries, top_k=top_k, k1=k1, b=b)


@pytest.mark.parametrize(
    ("k1", "b", "top_k"),
    [(1.2, 0.75, 10), (0.0, 0.75, 3), (2.0, 0.0, 50), (1.2, 1.0, 1), (1e4, 0.5, 100), (1.5, 0.75, 999)],
)
def test_uneven_corpora_against_bm25s(folder: Path, k1: float, b: float, top_k: int) -> None:
    """The commonest words are in most passages, so most passages are left out by the bound."""
    texts = zipf_texts(800, seed=top_k)
    queries = zipf_texts(70, longest=25, seed=1000 + top_k)
    check(folder, texts, queries, top_k=top_k, k1=k1, b=b)


def test_repeated_query_words_count_each_time(folder: Path) -> None:
    check(folder, zipf_texts(60), ["w1 w1 w1 w2", "w1 w2", "w7 W7 w7 w1"], top_k=20)


def test_a_word_asked_thousands_of_times_loses_no_close_passage(folder: Path) -> None:
    """Scores a few ten-millionths apart, each passage better than all before: rounding in the bound must not tell."""
    close = [f"word{' x' * length}" for length in range(400, 0, -1)]
    corpus = text_corpus(folder / "corpus", [*close, *(f"other {number}" for number in range(500))])
    rankings = search(corpus, ["word " * 3000], top_k=10, folder=folder / "scratch", b=1e-5, workers=1)
    assert rankings[0].positions.tolist() == list(range(399, 389, -1))


def test_what_is_not_ours_stays_in_the_folder(folder: Path) -> None:
    corpus = text_corpus(folder / "corpus", ["one two"])
    mine = folder / "scratch" / "shards" / "mine"
    mine.mkdir(parents=True)
    search(corpus, ["two"], top_k=1, folder=folder / "scratch", workers=1)
    search(corpus, ["one"], top_k=1, folder=folder / "scratch", workers=1)
    assert mine.is_dir()
    assert len(list((folder / "scratch" / "shards").iterdir())) == 3, "mine, the words asked for, one shard"
    assert len(list((folder / "scratch" / "rankings").glob("*.npz"))) == 1


@pytest.mark.parametrize(
    ("wrong", "key"), [({"k1": -1.0}, "k1"), ({"b": 1.5}, "b"), ({"b": -0.1}, "b"), ({"workers": -1}, "workers")]
)
def test_impossible_arguments_are_refused(folder: Path, wrong: dict[str, float], key: str) -> None:
    corpus = text_corpus(folder / "corpus", ["one"])
    with pytest.raises(InputError, match=f"key '{key}': must be at"):
        search(corpus, ["one"], **{"top_k": 1, "folder": folder / "scratch", **wrong})  # type: ignore[arg-type]


def test_queries_that_find_nothing(folder: Path) -> None:
    corpus = text_corpus(folder / "corpus", ["one two", "!!!", "two"])
    rankings = search(corpus, ["", "???", "three", "two three"], top_k=5, folder=folder / "scratch", workers=1)
    assert [ranking.positions.tolist() for ranking in rankings] == [[], [], [], [2, 0]]


def test_no_queries_and_no_words(folder: Path) -> None:
    corpus = text_corpus(folder / "corpus", ["!!!", "..."])
    assert len(search(corpus, [], top_k=5, folder=folder / "none", workers=2)) == 0
    rankings = search(corpus, ["one", "!"], top_k=5, folder=folder / "some", workers=2)
    assert [ranking.scores.tolist() for ranking in rankings] == [[], []]


def test_a_word_in_every_document(folder: Path) -> None:
    texts = [f"all {'all ' * (number % 7)} w{number % 5}" for number in range(300)]
    check(folder, texts, ["all", "all w1", "w2"], top_k=10)


def test_queries_of_ten_thousand_words(folder: Path) -> None:
    texts = zipf_texts(300, words=2000, seed=5)
    queries = [" ".join(zipf_texts(900, words=4000, seed=6)), " ".join(f"w{number}" for number in range(10_000))]
    assert min(len(query.split()) for query in queries) >= 10_000
    check(folder, texts, queries, top_k=40)


def test_a_word_more_often_than_a_byte_counts(folder: Path) -> None:
    texts = [f"{'a ' * count} b" for count in (1, 254, 255, 256, 510, 511, 3000)]
    check(folder, texts, ["a", "a b", "b"], top_k=7)


def test_equal_scores_stand_in_corpus_order(folder: Path) -> None:
    texts = ["b a"] * 300 + ["a c"] * 300
    corpus = text_corpus(folder / "corpus", texts, deduplicate=False)
    rankings = search(corpus, ["a", "c"], top_k=5, folder=folder / "scratch", workers=2)
    assert [ranking.positions.tolist() for ranking in rankings] == [[0, 1, 2, 3, 4], [300, 301, 302, 303, 304]]


@pytest.mark.parametrize("top_k", [0, -3])
def test_k_must_be_positive(folder: Path, top_k: int) -> None:
    corpus = text_corpus(folder / "corpus", ["one"])
    with pytest.raises(InputError, match="key 'top_k': must be at least 1"):
        search(corpus, ["one"], top_k=top_k, folder=folder / "scratch")
    assert not (folder / "scratch").exists()


def test_a_corpus_without_text_is_refused(folder: Path) -> None:
    corpus = text_corpus(folder / "corpus", ["", " "])
    with pytest.raises(InputError, match="the corpus is empty"):
        search(corpus, ["one"], top_k=1, folder=folder / "scratch", workers=1)


TIED = zipf_texts(400, words=40, longest=8, seed=3)
ASKED = zipf_texts(50, words=40, longest=6, seed=4) * 2  # equal queries, which may fall into different blocks


def found(folder: Path, *, cuts: tuple[int, ...] = (), workers: int = 1) -> bytes:
    """What is found among 400 texts, many of them equal, scattered over files."""
    corpus = text_corpus(folder / "corpus", TIED, cuts=cuts)
    return as_bytes(search(corpus, ASKED, top_k=15, folder=folder / "scratch", workers=workers))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return found(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_any_number_of_workers_finds_the_same(folder: Path, plain: bytes, workers: int) -> None:
    assert found(folder, workers=workers) == plain


@pytest.mark.parametrize("cuts", [(200,), (1, 2, 399), (0, 0, 50, 100, 150, 400)])
@pytest.mark.parametrize("smallest", [1, 1000, 4_000_000])
def test_any_sharding_finds_the_same(
    folder: Path, plain: bytes, cuts: tuple[int, ...], smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_LARGE", smallest)
    assert found(folder, cuts=cuts, workers=2) == plain


@pytest.mark.parametrize(
    ("module", "name", "size"),
    [
        (pass_two, "_MAX_QUERIES", 1),
        (pass_two, "_MAX_QUERIES", 33),
        (pass_two, "_MAX_BYTES", 5000),
        (shards, "_CHUNK", 1),
        (shards, "_CHUNK", 7),
        (statistics_pass, "_BLOCK", 1),
        (statistics_pass, "_BLOCK", 500),
    ],
)
def test_any_size_of_block_finds_the_same(
    folder: Path, plain: bytes, module: object, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, size)
    assert found(folder, cuts=(123, 321), workers=2) == plain


@pytest.mark.parametrize("step", [1, 2, 7])
@pytest.mark.parametrize("deviations", [4.0, -1.0, -3.0])
def test_limits_from_a_sample_change_nothing(
    folder: Path, plain: bytes, step: int, deviations: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too high limits, which the fewer deviations give, leave queries short of passages; they are ranked again."""
    short: list[int] = []
    original = QueryBlock.short_of_passages

    def count_short(block: QueryBlock) -> NDArray[np.int64]:
        short.extend(original(block))
        return original(block)

    monkeypatch.setattr(QueryBlock, "short_of_passages", count_short)
    for name, value in (("_STEP", step), ("_DEVIATIONS", deviations), ("_LARGEST_SHARE", 1.0), ("_MOST_READ", 300)):
        monkeypatch.setattr(limits, name, value)
    assert found(folder, cuts=(123, 321), workers=2) == plain
    assert short or deviations > 0, "limits that are meant to be too high leave no query short"


def test_equal_queries_in_different_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_two, "_MAX_QUERIES", 1)
    corpus = text_corpus(folder / "corpus", ["a b", "b", "a a"])
    rankings = search(corpus, ["a", "b", "a", "a"], top_k=2, folder=folder / "scratch", workers=1)
    positions = [ranking.positions.tolist() for ranking in rankings]
    assert positions == [[2, 0], [1, 0], [2, 0], [2, 0]]
    assert [block.first for block in rankings.blocks()] == [0, 1, 2, 3]


def test_a_second_call_goes_on_where_the_first_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_two, "_MAX_QUERIES", 10)
    first = found(folder)
    blocks = sorted((folder / "scratch" / "rankings").glob("*.npz"))
    kept = {path: path.stat().st_mtime_ns for path in blocks[1:]}
    blocks[0].unlink()
    assert found(folder) == first
    assert blocks[0].exists()
    assert {path: path.stat().st_mtime_ns for path in blocks[1:]} == kept


def test_other_numbers_give_other_rankings_in_the_same_folder(folder: Path) -> None:
    texts = zipf_texts(50)
    for top_k, k1, b in ((5, 1.2, 0.75), (6, 1.2, 0.75), (5, 0.0, 0.75), (5, 1.2, 0.0)):
        check(folder, texts, texts[:3], top_k=top_k, k1=k1, b=b)


def test_real_abstracts_against_bm25s(shared_data: Path, folder: Path) -> None:
    path = shared_data / "corpus" / "pubmed_abstracts.jsonl.zst"
    task = shared_data / "tasks" / "chemprot" / "train.jsonl.zst"
    if not (path.is_file() and task.is_file()):
        pytest.skip("PubMed abstracts and ChemProt are not among the sample data on this machine")
    write_rows(folder / "c.jsonl", ({"text": row["text"]} for _, row in islice(read_rows(path), 2500)))
    queries = [row["text"] for _, row in islice(read_rows(task), 0, 4000, 40)]
    corpus = read_corpus_of(folder / "c.jsonl")
    rankings: Rankings = search(corpus, queries, top_k=50, folder=folder / "scratch", workers=2)
    oracle = Bm25s([document.text for document in corpus.documents()], 1.2, 0.75)
    for query, ranking in zip(queries, rankings, strict=True):
        assert_ranks(ranking, oracle.scores(query), 50)
    assert sum(len(ranking.positions) for ranking in rankings) == 50 * len(queries)
