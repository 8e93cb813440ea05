"""Calibration measures real retrievals over samples of the user's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.config import resolve
from endtask.corpus import Corpus
from endtask.executors.processes import LocalExecutor
from endtask.planning.calibration import _driver_rates, calibrate, measure_retrieval
from endtask.planning.measured import MeasuredRetrieval, Retrieval
from endtask.records import Example
from endtask.task import Task
from tests.retrieval.corpora import write_rows, zipf_texts


def corpus_and_task(folder: Path) -> tuple[Corpus, Task]:
    texts = zipf_texts(600, seed=1)
    for number in range(2):
        rows = [{"id": f"p{row}", "text": text} for row, text in enumerate(texts[number * 300 : number * 300 + 300])]
        write_rows(folder / f"c-{number}.jsonl", rows)
    train = [Example(str(row), text, "xy"[row % 2]) for row, text in enumerate(zipf_texts(30, longest=8, seed=2))]
    return Corpus.read(folder), Task.from_examples("zipf", {"train": train})


def test_a_measured_retrieval_has_the_sizes_of_the_corpus(tmp_path: Path) -> None:
    corpus, task = corpus_and_task(tmp_path / "corpus")
    settings = resolve({"retrieve": {"top_k": 5}}).retrieve
    measured = measure_retrieval(task, corpus, settings, tmp_path / "run", LocalExecutor(1))
    texts = [document.text for document in corpus.documents()]
    assert measured.size.passages == len(texts)
    assert measured.size.text_bytes == sum(len(text.encode()) for text in texts)
    assert measured.size.top_k == 5
    assert measured.size.stored_bytes == sum(path.stat().st_size for path in (tmp_path / "corpus").iterdir())
    assert 0 < measured.retrieved <= measured.size.entries
    assert set(measured.seconds) == {"statistics", "ranking", "merging", "fetching", "driver"}
    assert measured.scratch_bytes > 0


def test_calibration_gives_rates(tmp_path: Path) -> None:
    corpus, task = corpus_and_task(tmp_path / "corpus")
    rates, stored_share = calibrate(task, corpus, resolve({}), seconds=2)
    assert max(rates.statistics) > 0
    assert max(rates.ranking) > 0
    assert rates.overlap > 0
    assert stored_share > 1  # JSON around the texts
    assert not list(tmp_path.glob("run*"))


def test_the_drivers_rates_tell_passages_from_those_found() -> None:
    """Oracle: seconds made up from the rates, with nearly all passages found unless the queries are few."""
    each, found, fixed = 3e-6, 2e-8, 0.05

    def measured(passages: float, retrieved: float) -> MeasuredRetrieval:
        size = Retrieval(800 * passages, passages, 1000, 5000, 400 * passages)
        driver = fixed + each * passages + found * 800 * retrieved
        return MeasuredRetrieval(size, 1, {"driver": driver}, retrieved, 1.0)

    rates = _driver_rates(measured(1e4, 500), measured(2e4, 500), measured(2e4, 2e4))
    assert rates == pytest.approx((each, found), rel=0.05)
