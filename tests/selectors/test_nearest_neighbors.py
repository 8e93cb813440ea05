"""Nearest neighbors against single cosines, from files of vectors and from an encoder."""

from __future__ import annotations

import errno
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from endtask.config import SelectSettings, Settings
from endtask.encoders.huggingface import save_classifier
from endtask.errors import InputError
from endtask.records import Example, Selected
from endtask.selectors.model_vectors import ModelVectors
from endtask.selectors.nearest_neighbors import embedding_fingerprint, find_nearest
from endtask.tokenization.tokenizer import save_tokenizer
from tests.selectors.candidates import run_select, write_retrieved
from tests.selectors.test_vector_files import write_vectors
from tests.selectors.texts import passages_of, retrieve_texts
from tests.tiny import make_network, make_texts, make_tokenizer


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def nearest_slowly(passages: np.ndarray, rows: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """For each passage (rank, row, cosine), by sorting all passages for every row."""
    count = min(count, len(passages))
    best = [(count + 1, -1, -1.0)] * len(passages)
    highest = [max(round(float(row @ passage), 6) for row in rows) for passage in passages]
    for number, row in enumerate(rows):
        cosines = [round(float(row @ passage), 6) for passage in passages]
        order = sorted(range(len(passages)), key=lambda place: (-cosines[place], place))
        for rank, place in enumerate(order[:count], 1):
            if (rank, -cosines[place]) < (best[place][0], -best[place][2]):
                best[place] = (rank, number, cosines[place])
    return [(rank, row, cosine if row >= 0 else highest[place]) for place, (rank, row, cosine) in enumerate(best)]


@given(st.integers(0, 1000), st.integers(1, 20), st.integers(1, 6), st.integers(1, 25))
def test_against_a_slow_search(seed: int, size: int, rows: int, count: int) -> None:
    random = np.random.default_rng(seed)
    passages, asking = unit(random.normal(size=(size, 4))), unit(random.normal(size=(rows, 4)))
    found = find_nearest(passages, asking, count)
    slow = nearest_slowly(passages, asking, count)
    assert found.rank.tolist() == [rank for rank, _, _ in slow]
    assert found.row.tolist() == [row for _, row, _ in slow]
    assert found.cosine == pytest.approx([cosine for *_, cosine in slow], abs=2e-6)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    passages, rows = unit(random.normal(size=(30, 5))), unit(random.normal(size=(17, 5)))
    whole = find_nearest(passages, rows, 4)
    monkeypatch.setattr("endtask.selectors.nearest_neighbors._NUMBERS_AT_ONCE", 90)
    parts = find_nearest(passages, rows, 4)
    assert (parts.rank.tolist(), parts.row.tolist()) == (whole.rank.tolist(), whole.row.tolist())


EXAMPLES = (Example("train-0", "gene", "a"), Example("train-1", "goal", "b"))
TEXTS = ["0123456789"] * 6
PLANE = {  # angles in degrees
    "train-0": 0, "train-1": 90, "d0": 79, "d1": 5, "d2": 200, "d3": 45, "d4": 10, "d5": 91,
}  # fmt: skip


def write_plane(path: Path) -> Path:
    angles = np.radians(list(PLANE.values()))
    return write_vectors(path, list(PLANE), np.stack([3 * np.cos(angles), 3 * np.sin(angles)], axis=1))


def neighbors(folder: Path, embedding: Path | str, budget: str | None, count: int = 1000) -> list[Selected]:
    values = {"name": "nearest_neighbors", "embedding": str(embedding), "budget": budget, "neighbors": count}
    return run_select(folder, corpus_bytes=1000, examples=EXAMPLES, **values)[1]


@pytest.mark.parametrize(("budget", "ids"), [("2passages", ["d1", "d5"]), ("39B", ["d1", "d4", "d5"]), ("4%", None)])
def test_the_nearest_of_every_row_come_first(tmp_path: Path, budget: str, ids: list[str] | None) -> None:
    retrieve_texts(tmp_path, TEXTS)
    kept = neighbors(tmp_path, write_plane(tmp_path / "v.npz"), budget)
    assert [item.document.id for item in kept] == (ids or ["d0", "d1", "d4", "d5"])


def test_reasons_name_row_and_cosine(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, TEXTS)
    kept = {item.document.id: item for item in neighbors(tmp_path, write_plane(tmp_path / "v.npz"), None, count=2)}
    assert kept["d5"].reason == (
        "nearest_neighbors: number 1 of those nearest to train-1, cosine 1.000; BM25 rank 6 for train-5"
    )
    assert kept["d3"].reason.startswith(
        "nearest_neighbors: among the 2 nearest of no example, cosine 0.707 at best; BM25"
    )
    assert [kept[name].rank for name in ("d5", "d1", "d4", "d0", "d3", "d2")] == [1, 2, 3, 4, 5, 6]
    assert kept["d1"].score == pytest.approx(np.cos(np.radians(5)), abs=1e-6)


@given(st.permutations(range(6)))
@settings(max_examples=6)
def test_the_order_of_the_candidates_does_not_matter(order: list[int]) -> None:
    passages = passages_of(TEXTS)
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = write_plane(folder.with_suffix(".npz"))
        try:
            first = neighbors(write_retrieved(folder, passages), path, "3passages")
            second = neighbors(write_retrieved(folder, [passages[place] for place in order]), path, "3passages")
        finally:
            path.unlink()
    assert sorted(first, key=lambda item: item.position) == sorted(second, key=lambda item: item.position)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder in a folder, with its tokenizer."""
    folder = tmp_path_factory.mktemp("encoder")
    save_classifier(make_network("bert"), folder)
    save_tokenizer(make_tokenizer(), folder)
    return folder


def test_a_models_vectors_are_means_over_tokens(encoder: Path) -> None:
    texts = make_texts(7, longest=5)
    found = ModelVectors(str(encoder)).encode([(text, None) for text in texts])
    model, tokenizer = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    with torch.no_grad():
        for text, vector in zip(texts, found, strict=True):
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
            assert vector == pytest.approx(mean.numpy(), abs=1e-5)


def test_selecting_with_a_model_equals_selecting_with_its_vectors(encoder: Path, tmp_path: Path) -> None:
    texts = make_texts(20, seed=3)
    folder = retrieve_texts(tmp_path / "retrieve", texts)
    by_model = neighbors(folder, encoder, "8passages", count=5)
    model = ModelVectors(str(encoder))
    vectors = model.encode([(text, None) for text in [*texts, *(row.text for row in EXAMPLES)]])
    ids = [*(f"d{place}" for place in range(20)), *(row.id for row in EXAMPLES)]
    assert neighbors(folder, write_vectors(tmp_path / "v.npz", ids, vectors), "8passages", count=5) == by_model


@pytest.mark.skipif(sys.platform != "linux", reason="only there can room be asked for")
def test_a_full_disk_is_met_before_encoding(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, f"no room for {length} bytes")

    monkeypatch.setattr("endtask.selectors.nearest_neighbors.os.posix_fallocate", full)
    folder = retrieve_texts(tmp_path / "retrieve", make_texts(20))
    size = 20 * ModelVectors(str(encoder)).dimensions * 4
    with pytest.raises(OSError, match=f"no room for {size} bytes"):
        neighbors(folder, encoder, "8passages")


def test_a_missing_or_unfit_tokenizer_is_met_ahead(encoder: Path, tmp_path: Path) -> None:
    selector = SelectSettings(name="nearest_neighbors", embedding=str(tmp_path / "encoder")).part
    folder = shutil.copytree(encoder, tmp_path / "encoder")
    selector.preflight(None, Settings(), has_corpus=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"more{number}" for number in range(500)])
    save_tokenizer(tokenizer, folder)
    with pytest.raises(InputError, match=r"key 'select\.embedding': the tokenizer has \d+ tokens, the checkpoint"):
        selector.preflight(None, Settings(), has_corpus=True)
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(InputError, match=r"key 'select\.embedding': holds no tokenizer"):
        selector.preflight(None, Settings(), has_corpus=True)


def test_the_fingerprint_is_that_of_weights_and_tokenizer(encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(encoder, tmp_path / "encoder")
    before = embedding_fingerprint(str(folder))
    assert before == embedding_fingerprint(str(encoder))
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + "\n")
    assert embedding_fingerprint(str(folder)) != before


def test_fusion_takes_neighbours_too(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, TEXTS)
    nearest = {"name": "nearest_neighbors", "embedding": str(write_plane(tmp_path / "v.npz"))}
    values = {"name": "fusion", "selectors": ("best_rank", nearest), "budget": None}
    _, kept = run_select(tmp_path, corpus_bytes=1000, examples=EXAMPLES, **values)
    assert kept[1].reason.startswith("fusion: ranks best_rank 2, nearest_neighbors 2; BM25 rank 2")


def test_external_paths() -> None:
    nearest = {"name": "nearest_neighbors", "embedding": "e"}
    cases: list[dict[str, Any]] = [
        {"name": "best_rank"},
        {"name": "imported", "path": "p"},
        nearest,
        {"name": "fusion"},
        {"name": "fusion", "selectors": ["dsir", nearest]},
    ]
    read = [[part.external_path() for part in SelectSettings.model_validate(values).part.parts()] for values in cases]
    assert read == [[None], ["p"], ["e"], [None] * 3, [None, None, "e"]]
