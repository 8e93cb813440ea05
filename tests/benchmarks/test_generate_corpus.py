"""The generated corpus: a seed always gives the same bytes, with word frequencies like those of real text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.generate_corpus import QUERIES, QUERY_LENGTHS, TEXT_LENGTHS, generate, texts, word_table
from endtask.errors import InputError
from endtask.io.tables import read_rows
from endtask.retrieval.words import words_of

SIZE = 400_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return generate(tmp_path_factory.mktemp("made"), text_bytes=SIZE, seed=7, shards=3, queries=20, workers=1)


@pytest.fixture(scope="module")
def drawn() -> list[list[str]]:
    """The words of some texts."""
    return [words_of(text.decode()) for text in texts(np.random.default_rng(0), TEXT_LENGTHS, 4_000)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_seed_same_bytes_with_any_number_of_workers(made: list[Path], tmp_path: Path) -> None:
    generate(tmp_path, text_bytes=SIZE, seed=7, shards=3, queries=20, workers=2)
    assert contents(tmp_path) == contents(made[0].parent)


def test_another_seed_gives_other_texts(made: list[Path], tmp_path: Path) -> None:
    (path,) = generate(tmp_path, text_bytes=10_000, seed=8, shards=1, workers=1)
    assert next(read_rows(path))[1]["text"] != next(read_rows(made[0]))[1]["text"]


def test_as_much_text_as_asked_for_and_less_than_a_text_more_per_file(made: list[Path]) -> None:
    sizes = [[len(row["text"].encode()) for _, row in read_rows(path)] for path in made]
    total = sum(map(sum, sizes))
    assert SIZE <= total < SIZE + sum(shard[-1] for shard in sizes)


def test_rows_have_ids_of_their_own_and_queries_have_text(made: list[Path]) -> None:
    ids = [row["id"] for path in made for _, row in read_rows(path)]
    assert len(set(ids)) == len(ids) > 100
    queries = [row["text"] for _, row in read_rows(made[0].parent / QUERIES)]
    assert len(queries) == 20
    assert all(QUERY_LENGTHS.least <= len(words_of(query)) <= QUERY_LENGTHS.most for query in queries)


def test_files_that_are_there_stay_and_missing_ones_come_back(made: list[Path]) -> None:
    before = made[1].read_bytes()
    times = [path.stat().st_mtime_ns for path in (made[0], made[2])]
    made[1].unlink()
    generate(made[0].parent, text_bytes=SIZE, seed=7, shards=3, queries=20, workers=1)
    assert made[1].read_bytes() == before
    assert [path.stat().st_mtime_ns for path in (made[0], made[2])] == times


def test_a_folder_with_another_corpus_is_refused(made: list[Path]) -> None:
    with pytest.raises(InputError, match="holds another generated corpus"):
        generate(made[0].parent, text_bytes=SIZE, seed=8, shards=3, queries=20)


def test_every_word_is_another() -> None:
    table = word_table()
    assert len(np.unique(table.view(f"V{table.shape[1]}"))) == len(table)


def test_lengths_are_like_those_of_prose(drawn: list[list[str]]) -> None:
    lengths = [len(words) for words in drawn]
    assert 200 < np.mean(lengths) < 240
    assert np.percentile(lengths, 5) < 90 < 400 < np.percentile(lengths, 95)
    letters = [len(word) for words in drawn for word in words]
    assert 4 < np.mean(letters) < 5.5


def test_words_are_as_uneven_as_those_of_prose(drawn: list[list[str]]) -> None:
    # A mixture of Wikipedia, papers, books and news held 38,000 words among 0.5 million, 74,000 among 1.7 million.
    counts = Counter(word for words in drawn for word in words)
    assert 40_000 < len(counts) < 70_000
    shares = [count / counts.total() for _, count in counts.most_common(1_000)]
    assert 0.03 < shares[0] < 0.08
    assert 0.5e-4 < shares[999] < 2e-4


def test_queries_have_passages_of_their_topic(drawn: list[list[str]]) -> None:
    common = {word for word, _ in Counter(word for words in drawn for word in words).most_common(1_000)}
    queries = texts(np.random.default_rng(1), QUERY_LENGTHS, 15)
    rare = [set(words) - common for words in drawn]
    shared = [sorted(len((set(words_of(query.decode())) - common) & words) for words in rare) for query in queries]
    assert np.median([best[-1] for best in shared]) >= 3
    assert np.mean([np.mean(best) for best in shared]) < 0.5
