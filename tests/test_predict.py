"""Labels and probabilities from a trained run, through Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import endtask
from endtask.errors import InputError
from endtask.predict import Predictor


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", ["text", "pair"])
def test_predictions_equal_those_of_the_evaluation(finished_run: Path, finished_pair_run: Path, kind: str) -> None:
    run = finished_run if kind == "text" else finished_pair_run
    seed = str(json.loads((run / "model" / "manifest.json").read_text())["counts"]["seed"])
    test = rows(run / "read" / "test.jsonl")
    texts = [str(row["text"]) if kind == "text" else (str(row["text"]), str(row["text_pair"])) for row in test]
    evaluated = [row["predicted"][seed] for row in rows(run / "evaluate" / "predictions.jsonl")]  # type: ignore[index]
    predictor = endtask.load(run)
    assert predictor.kind == kind
    assert [prediction.label for prediction in predictor.predict(texts)] == evaluated


def test_the_stock_classes_load_the_model_and_agree(finished_run: Path) -> None:
    folder = finished_run / "model"
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["soup bread salt", "moon"]
    logits = model(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).logits
    expected = logits.softmax(-1).tolist()
    predictions = endtask.load(finished_run).predict(texts)
    assert [list(one.probabilities.values()) for one in predictions] == [pytest.approx(row) for row in expected]


def test_batches_change_nothing_but_speed(finished_run: Path) -> None:
    predictor = endtask.load(finished_run)
    texts = ["soup", "star moon orbit rocket planet sky " * 5, "ball goal", "win"]
    one_by_one = predictor.predict(texts, batch_size=1)
    together = predictor.predict(texts)
    assert [one.label for one in one_by_one] == [one.label for one in together]
    assert [one.probability for one in one_by_one] == [pytest.approx(one.probability, abs=1e-5) for one in together]
    assert predictor.predict([]) == []


def test_a_stream_is_read_batch_by_batch(finished_run: Path) -> None:
    taken = []

    def texts() -> object:
        for number in range(100):
            taken.append(number)
            yield f"soup {number}"

    stream = endtask.load(finished_run).stream(texts(), batch_size=4)  # type: ignore[arg-type]
    next(stream)
    assert len(taken) == 4


def test_mixed_texts_and_pairs_keep_their_order(finished_run: Path) -> None:
    """A model from elsewhere: nothing says what it was trained on."""
    predictor = Predictor(finished_run / "model")
    assert predictor.kind is None
    mixed = predictor.predict(["soup", ("star", "moon"), ("ball", "goal"), "win"])
    assert mixed[0].probability == pytest.approx(predictor.predict(["soup"])[0].probability, abs=1e-5)
    assert mixed[1].probability == pytest.approx(predictor.predict([("star", "moon")])[0].probability, abs=1e-5)
    assert mixed[3].probability == pytest.approx(predictor.predict(["win"])[0].probability, abs=1e-5)


def test_texts_of_the_wrong_kind(finished_run: Path, finished_pair_run: Path) -> None:
    with pytest.raises(InputError, match="text 2 is a pair"):
        endtask.load(finished_run).predict(["soup", ("star", "moon")])
    with pytest.raises(InputError, match="text 3 has no second text"):
        endtask.load(finished_pair_run / "model").predict([("a", "b"), ("c", "d"), "e"], batch_size=2)
    with pytest.raises(TypeError, match="a list of texts"):
        endtask.load(finished_run).predict("soup")


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trained model here"):
        endtask.load(tmp_path)
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="no trained model here"):
        endtask.load(tmp_path)


def test_loading_draws_no_bars(finished_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    logging.enable_progress_bar()
    endtask.load(finished_run).predict(["soup"])
    assert capsys.readouterr() == ("", "")
    assert logging.is_progress_bar_enabled()
