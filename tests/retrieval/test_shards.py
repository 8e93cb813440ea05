"""Shards: the files of each, their names, and the files that pass 1 writes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import CorpusSettings
from endtask.corpus import Corpus
from endtask.retrieval.bm25 import shards
from endtask.retrieval.bm25.shards import PASSAGE, Shard, ShardCounts, ShardFolder, ShardWriter, shards_of
from tests.retrieval.corpora import text_corpus, write_rows


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.sampled_from([1, 20, 10**9]))
@settings(max_examples=20)
def test_large_files_stand_alone(sizes: list[int], large: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_LARGE", large)
        for number, size in enumerate(sizes):
            Path(folder, f"c-{number:02}.txt").write_text("x" * size)
        found = shards_of(Corpus.read(folder))
        assert [file.path.name for shard in found for file in shard.source.files] == [
            f"c-{number:02}.txt" for number in range(len(sizes))
        ]
        assert sum(shard.size() for shard in found) == sum(sizes)
        files = [[file.path.stat().st_size for file in shard.source.files] for shard in found]
        assert all(len(group) == 1 for group in files if max(group) >= large)


def test_one_more_small_file_moves_no_border_but_its_own(tmp_path: Path) -> None:
    def groups() -> set[tuple[str, ...]]:
        found = shards_of(Corpus.read(tmp_path))
        return {tuple(file.label for file in shard.source.files) for shard in found}

    for number in range(400):
        (tmp_path / f"note-{number:03}.txt").write_text(f"note {number}")
    before = groups()
    assert 2 < len(before) < 40
    for name in ("a-first.txt", "note-200b.txt", "z-last.txt"):
        (tmp_path / name).write_text("one more")
        after = groups()
        assert len(after - before) <= 2, "its own group, which it may have parted"
        before = after


def test_sources_are_never_mixed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_rows(tmp_path / f"{name}.jsonl", [{"text": name}])
    corpus = Corpus.read([tmp_path / "b.jsonl", tmp_path / "a.jsonl"])
    assert [shard.source.name for shard in shards_of(corpus)] == ["b", "a"]


def test_a_shard_survives_the_way_to_another_process(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "ä 東.jsonl", [{"body": "x"}])
    source = {"path": str(path), "name": "n", "text": "body", "license": "CC0"}
    corpus = Corpus.read(CorpusSettings.model_validate({"sources": [source], "passage_characters": 1234}))
    (shard,) = shards_of(corpus)
    again = Shard.from_json(json.loads(json.dumps(shard.to_json())))
    assert again.passage_characters == 1234
    assert (again.source.name, again.source.text, again.source.license) == ("n", "body", "CC0")
    assert again.source.files == shard.source.files
    assert again.key("asked") == shard.key("asked")


def test_the_docstrings_are_a_shard_without_files() -> None:
    (shard,) = shards_of(Corpus.read("docstrings"))
    assert shard.size() == 0
    assert Shard.from_json(json.loads(json.dumps(shard.to_json()))).key() == shard.key()


def test_a_shard_is_known_by_its_content(tmp_path: Path) -> None:
    def key(folder: str, text: str = "one", characters: int = 2000, asked: str = "a") -> str:
        corpus = text_corpus(tmp_path / folder, [text])
        (shard,) = shards_of(Corpus(corpus.sources, passage_characters=characters))
        return shard.key(asked)

    first = key("first")
    assert key("second") == first, "wherever it lies"
    assert len({first, key("first", "two"), key("first", characters=100), key("first", asked="b")}) == 4


def write_shard(path: Path, passages: int) -> tuple[np.ndarray, np.ndarray]:
    """A shard written in two blocks."""
    random = np.random.default_rng(passages)
    records = np.zeros(passages, dtype=PASSAGE)
    for name in PASSAGE.names or ():
        records[name] = random.integers(0, 2**31, passages)
    records["pairs"] = random.integers(0, 4, passages)
    pairs = random.integers(0, 2**32, records["pairs"].sum(), dtype=np.uint32)
    writer = ShardWriter(path)
    middle = passages // 3
    cut = int(records["pairs"][:middle].sum())
    writer.add(records[:middle], pairs[:cut])
    writer.add(records[middle:], pairs[cut:])
    writer.finish(np.arange(5), ShardCounts(3, 1, passages, len(pairs)))
    return records, pairs


@pytest.mark.parametrize("passages", [0, 1, 9, 100])
@pytest.mark.parametrize("chunk", [1, 10, 1 << 15])
def test_shards_are_read_back_chunk_by_chunk(
    tmp_path: Path, passages: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_CHUNK", chunk)
    records, pairs = write_shard(tmp_path / "shard", passages)
    shard = ShardFolder.open(tmp_path / "shard")
    assert shard is not None
    assert shard.counts == ShardCounts(3, 1, passages, len(pairs))
    chunks = list(shard.chunks())
    assert [part.first for part in chunks] == list(range(0, passages, chunk))
    assert all(len(part.pairs) == part.passages["pairs"].sum() for part in chunks)
    empty = [np.zeros(0, PASSAGE)], [np.zeros(0, np.uint32)]
    assert np.concatenate(empty[0] + [part.passages for part in chunks]).tobytes() == records.tobytes()
    np.testing.assert_array_equal(np.concatenate(empty[1] + [part.pairs for part in chunks]), pairs)
    assert shard.document_frequency().tolist() == [0, 1, 2, 3, 4]


def test_a_shard_that_is_not_whole_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    assert ShardFolder.open(path) is None
    writer = ShardWriter(path)
    writer.add(np.zeros(1, dtype=PASSAGE), np.zeros(0, np.uint32))
    writer.close()
    assert ShardFolder.open(path) is None, "not finished"
    for damage in ("passages", "pairs", "frequency", "shard.json"):
        write_shard(path, 50)
        assert ShardFolder.open(path) is not None
        content = (path / damage).read_bytes()
        (path / damage).write_bytes(content[:-2])
        assert ShardFolder.open(path) is None, damage
        (path / damage).unlink()
        assert ShardFolder.open(path) is None, damage
    (path / "shard.json").write_text("[]")
    assert ShardFolder.open(path) is None
