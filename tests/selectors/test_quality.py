"""The statistics of a selection, each against a slow computation."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtask.config import SelectSettings
from endtask.io.selection_table import write_selection
from endtask.records import Example
from endtask.retrieval.words import words_of
from endtask.selectors.base import RunContext
from endtask.selectors.hashing import BUCKETS, draws
from endtask.selectors.quality import label_words
from endtask.selectors.quality import quality as quality_statistics
from tests.selectors.candidates import run_select, write_corpus, write_retrieved
from tests.selectors.test_ngrams import counted_slowly
from tests.selectors.texts import EXAMPLES, passages_of, retrieve_texts

TASK = EXAMPLES * 5
TEXTS = ["soup and bread", "a protein", "bread " * 9, "the cell has a gene", "match of the day", "soup"] * 3


def quality_of(folder: Path, **values: Any) -> dict[str, Any]:
    counts, _ = run_select(folder, corpus_bytes=1000, examples=TASK, **values)
    quality: dict[str, Any] = counts["quality"]
    return quality


def divergence_slowly(task: list[str], other: list[str]) -> float:
    def counted(texts: list[str]) -> Counter[int]:
        counts: Counter[int] = Counter()
        for text in texts:
            counts.update(counted_slowly(text))
        return counts

    def shares(texts: list[str]) -> list[float]:
        counts, all_of = counted(texts), counted(TEXTS)
        spread = [(all_of[bucket] + 1) / (all_of.total() + BUCKETS) for bucket in range(BUCKETS)]
        return [(counts[bucket] + BUCKETS * spread[bucket]) / (counts.total() + BUCKETS) for bucket in range(BUCKETS)]

    return sum(p * math.log(p / q) for p, q in zip(shares(task), shares(other), strict=True))


def drawn_slowly(texts: list[str], size: int) -> list[str]:
    order = sorted(range(len(texts)), key=lambda place: int(draws([f"d{place}"], 0, "quality")[0]))
    begins = [[texts[place] for place in order[:count]] for count in range(1, len(texts) + 1)]
    return min(begins, key=lambda begin: abs(sum(len(text.encode()) for text in begin) - size))


def share_slowly(texts: list[str]) -> float:
    told = {word for words in label_words(TASK).values() for word in words}
    words = [word for text in texts for word in words_of(text)]
    return sum(word in told for word in words) / len(words)


def test_each_figure_against_a_slow_one(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, TEXTS)
    values = {"name": "classifier", "budget": "7passages", "examples": TASK}
    counts, kept = run_select(tmp_path, corpus_bytes=1000, **values)
    texts = [item.document.text for item in kept]
    task = [text for row in TASK for text in (row.text, row.text_pair) if text]
    quality = counts["quality"]
    assert quality["kl"] == pytest.approx(divergence_slowly(task, texts), abs=1e-5)
    other = drawn_slowly(TEXTS, sum(len(text.encode()) for text in texts))
    assert quality["kl_random"] == pytest.approx(divergence_slowly(task, other), abs=1e-5)
    assert quality["kl_reduction"] == pytest.approx(quality["kl_random"] - quality["kl"], abs=1e-5)
    told = {word for words in label_words(TASK).values() for word in words}
    assert quality["label_words"] == {
        "words": len(told),
        "found": len(told & {word for text in texts for word in words_of(text)}),
        "share": pytest.approx(share_slowly(texts), abs=1e-5),
        "share_retrieved": pytest.approx(share_slowly(TEXTS), abs=1e-5),
    }
    both = len({item.position for item in kept} & set(range(7)))  # the candidates stand in the order of their ranks
    assert quality["overlap"]["best_rank"] == {
        "share": pytest.approx(both / 7, abs=1e-5),
        "jaccard": pytest.approx(both / (14 - both), abs=1e-5),
    }


def test_best_rank_is_not_compared_with_itself(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, TEXTS)
    quality = quality_of(tmp_path, budget="7passages")
    assert quality.keys() == {"kl", "kl_random", "kl_reduction", "label_words"}


def test_keeping_all_reduces_nothing(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, TEXTS)
    quality = quality_of(tmp_path, name="dsir", budget=None)
    assert quality["kl_reduction"] == 0
    assert quality["overlap"]["best_rank"] == {"share": 1.0, "jaccard": 1.0}


def test_a_random_draw_is_compared_too(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, TEXTS)
    retrieve_texts(tmp_path, TEXTS[:5])
    assert "overlap" in quality_of(tmp_path, corpus=corpus, name="random", budget="4passages")


def test_an_import_without_a_corpus_has_figures_of_its_own(tmp_path: Path) -> None:
    write_retrieved(tmp_path, [])
    (tmp_path / "mine.csv").write_text("text\nthe gene\nsoup\n")
    values = {"name": "imported", "path": str(tmp_path / "mine.csv"), "budget": None, "examples": TASK}
    counts, _ = run_select(tmp_path, corpus_bytes=0, **values)
    assert counts["quality"].keys() == {"kl", "label_words"}
    assert counts["quality"]["label_words"].keys() == {"words", "found", "share"}


def test_without_label_words_the_rest_is_told(tmp_path: Path) -> None:
    retrieve_texts(tmp_path, TEXTS)
    examples = (Example("1", "the gene", "a"),)
    counts, _ = run_select(tmp_path, corpus_bytes=1000, budget="3passages", examples=examples)
    assert counts["quality"].keys() == {"kl", "kl_random", "kl_reduction"}


def many_texts(count: int, *, task_share: float, seed: int) -> list[str]:
    """Texts of 30 words: of the task's vocabulary, the others' or, as in any language, a few that all use."""
    chance = random.Random(seed)

    def word() -> str:
        if chance.random() < 0.3:
            return f"common{int(chance.paretovariate(1)) % 50}"
        kind = "task" if chance.random() < task_share else "other"
        return f"{kind}{int(chance.paretovariate(0.5)) % 2000}"

    return [" ".join(word() for _ in range(30)) for _ in range(count)]


@pytest.fixture(scope="module")
def pile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return retrieve_texts(tmp_path_factory.mktemp("pile"), many_texts(3000, task_share=0.1, seed=0))


def reduction(pile: Path, folder: Path, texts: list[str], seed: int = 0) -> float:
    """The KL reduction of a selection of these texts out of the pile."""
    examples = [
        Example(f"train-{place}", text, "a") for place, text in enumerate(many_texts(300, task_share=1, seed=1))
    ]
    table = folder / "kept.parquet"
    write_selection(table, passages_of(texts))
    statistics = quality_statistics(
        RunContext(SelectSettings(), pile, corpus_bytes=1, seed=seed, examples=examples), table
    )
    return float(statistics["kl_reduction"])


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_chance_reduces_nothing_whatever_the_size(pile: Path, tmp_path: Path, count: int) -> None:
    texts = many_texts(3000, task_share=0.1, seed=0)
    by_chance = [reduction(pile, tmp_path, random.Random(seed).sample(texts, count), seed) for seed in range(5)]
    on_purpose = reduction(pile, tmp_path, many_texts(count, task_share=1, seed=2))
    assert abs(sum(by_chance) / len(by_chance)) < 0.015
    assert on_purpose > 4 * max(map(abs, by_chance))
