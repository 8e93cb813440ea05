"""Reciprocal rank fusion against explicit sums, and as a selector."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from endtask.config import SelectSettings
from endtask.records import Selected
from endtask.selectors.fusion import fused
from tests.selectors.candidates import run_select
from tests.selectors.texts import EXAMPLES, TEXTS, retrieve_texts

ALL = ("best_rank", "dsir", "classifier")


def fuse(folder: Path, *names: str, budget: str | None = None) -> tuple[dict[str, Any], list[Selected]]:
    values = {"name": "fusion", "selectors": names, "budget": budget, "examples": EXAMPLES}
    return run_select(folder, corpus_bytes=1000, **values)


@given(TEXTS, st.permutations(ALL), st.integers(1, 9))
@settings(max_examples=4)
def test_against_sums_of_the_selectors_own_ranks(texts: list[str], names: list[str], budget: int) -> None:
    with TemporaryDirectory() as name:
        folder = retrieve_texts(Path(name), texts)
        score = dict.fromkeys(range(len(texts)), 0.0)
        for selector in names:
            values = {"name": selector, "budget": None, "examples": EXAMPLES}
            for item in run_select(folder, corpus_bytes=1000, **values)[1]:
                score[item.position] += 1 / (60 + item.rank)
        kept = fuse(folder, *names, budget=f"{budget}passages")[1]
    order = sorted(score, key=lambda place: (-round(score[place], 12), place))
    assert {item.position for item in kept} == set(order[:budget])
    assert all(item.score == pytest.approx(score[item.position], rel=1e-12) for item in kept)


@given(st.lists(st.permutations(range(1, 7)), min_size=2, max_size=4))
def test_the_order_of_the_names_does_not_matter(ranks: list[list[int]]) -> None:
    arrays = [np.asarray(some) for some in ranks]
    assert fused(arrays).tolist() == fused(arrays[::-1]).tolist()


def test_the_reason_names_every_rank(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, ["soup " * 30, "the gene", "bread " * 30])
    ranks = {}
    for selector in ("dsir", "classifier"):
        values = {"name": selector, "budget": None, "examples": EXAMPLES}
        ranks[selector] = run_select(tmp_path, corpus_bytes=1000, **values)[1][1].rank
    _, kept = fuse(tmp_path, *ALL)
    told = f"best_rank 2, dsir {ranks['dsir']}, classifier {ranks['classifier']}"
    assert kept[1].reason == f"fusion: ranks {told}; BM25 rank 2 for train-1"


def test_the_overlap_of_every_two_is_counted(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, ["soup", "the gene", "bread", "a protein"])
    counts, _ = fuse(tmp_path, *ALL)
    assert counts["fused"] == {
        pair: {"share": 1.0, "jaccard": 1.0}
        for pair in ("best_rank, dsir", "best_rank, classifier", "dsir, classifier")
    }
    counts, _ = fuse(tmp_path, *ALL, budget="1passages")
    assert {statistics["jaccard"] for statistics in counts["fused"].values()} <= {0.0, 1.0}


@pytest.mark.parametrize("names", [("dsir",), ("dsir", "dsir"), ("dsir", "random")])
def test_what_cannot_be_fused_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        SelectSettings.model_validate({"name": "fusion", "selectors": names})
