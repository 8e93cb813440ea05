"""Labels and probabilities from a trained run, through Python."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import endtask
from endtask.errors import InputError
from endtask.serving.predictor import Predictor, load
from tests.toy_run import toy_settings


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", ["text", "pair"])
def test_predictions_equal_those_of_the_evaluation(finished_run: Path, finished_pair_run: Path, kind: str) -> None:
    run = finished_run if kind == "text" else finished_pair_run
    seed = str(json.loads((run / "model" / "manifest.json").read_text())["counts"]["seed"])
    test = rows(run / "read" / "test.jsonl")
    texts = [str(row["text"]) if kind == "text" else (str(row["text"]), str(row["text_pair"])) for row in test]
    evaluated = [row["predicted"][seed] for row in rows(run / "evaluate" / "predictions.jsonl")]  # type: ignore[index]
    predictor = load(run)
    assert predictor.type == kind
    assert [prediction.label for prediction in predictor.predict(texts)] == evaluated


def test_the_stock_classes_load_the_model_and_agree(finished_run: Path) -> None:
    folder = finished_run / "model"
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["soup bread salt", "moon"]
    logits = model(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).logits
    expected = logits.softmax(-1).tolist()
    predictions = load(finished_run).predict(texts)
    assert [list(one.probabilities.values()) for one in predictions] == [pytest.approx(row) for row in expected]


def test_batches_change_nothing_but_speed(finished_run: Path) -> None:
    predictor = load(finished_run)
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

    stream = load(finished_run).stream(texts(), batch_size=4)  # type: ignore[arg-type]
    next(stream)
    assert len(taken) == 4


def test_mixed_texts_and_pairs_keep_their_order(finished_run: Path) -> None:
    """A model from elsewhere: nothing says what it was trained on."""
    predictor = Predictor(finished_run / "model")
    assert predictor.type is None
    mixed = predictor.predict(["soup", ("star", "moon"), ("ball", "goal"), "win"])
    assert mixed[0].probability == pytest.approx(predictor.predict(["soup"])[0].probability, abs=1e-5)
    assert mixed[1].probability == pytest.approx(predictor.predict([("star", "moon")])[0].probability, abs=1e-5)
    assert mixed[3].probability == pytest.approx(predictor.predict(["win"])[0].probability, abs=1e-5)


def test_texts_of_the_wrong_kind(finished_run: Path, finished_pair_run: Path) -> None:
    with pytest.raises(InputError, match="text 2 is a pair"):
        load(finished_run).predict(["soup", ("star", "moon")])
    with pytest.raises(InputError, match="text 3 has no second text"):
        load(finished_pair_run / "model").predict([("a", "b"), ("c", "d"), "e"], batch_size=2)
    with pytest.raises(TypeError, match="a list of texts"):
        load(finished_run).predict("soup")


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trained model here"):
        load(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"mnie: no such folder \(did you mean '.*/runs/mine'\?\)"):
        load(tmp_path / "runs" / "mnie")
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="no trained model here"):
        load(tmp_path)


def test_loading_draws_no_bars(finished_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    logging.enable_progress_bar()
    load(finished_run).predict(["soup"])
    assert capsys.readouterr() == ("", "")
    assert logging.is_progress_bar_enabled()


LONG = "star moon orbit rocket planet sky " * 20


@pytest.fixture(scope="module")
def windowed_run(toy: Path, finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reads texts of more than eight tokens by windows."""
    run = Path(shutil.copytree(finished_run, tmp_path_factory.mktemp("windowed") / "run"))
    finetune = {"max_length": 8, "window_stride": 3, "max_steps": 3, "seeds": [0]}
    endtask.run(toy_settings(toy, run, finetune=finetune), start="pack")
    return run


def by_hand(run: Path, text: str) -> torch.Tensor:
    """The mean over windows of six tokens, three apart, by the stock classes."""
    model = AutoModelForSequenceClassification.from_pretrained(run / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    starts = range(0, max(1, len(tokens) - 3), 3)
    ids = [[tokenizer.cls_token_id, *tokens[start : start + 6], tokenizer.sep_token_id] for start in starts]
    with torch.inference_mode():
        return torch.stack([model(torch.tensor([one])).logits[0].softmax(-1) for one in ids]).mean(0)


def test_windows_are_read_as_in_training(windowed_run: Path) -> None:
    test = rows(windowed_run / "read" / "test.jsonl")
    evaluated = [row["predicted"]["0"] for row in rows(windowed_run / "evaluate" / "predictions.jsonl")]  # type: ignore[index]
    predictor = load(windowed_run)
    assert [one.label for one in predictor.predict([str(row["text"]) for row in test])] == evaluated
    texts = ["soup", LONG, "ball goal team match player win soup", "", LONG + "soup"]
    for batch_size in (1, 3, 32):
        for text, found in zip(texts, predictor.predict(texts, batch_size=batch_size), strict=True):
            expected = by_hand(windowed_run, text).tolist()
            assert list(found.probabilities.values()) == pytest.approx(expected, abs=1e-5)


def test_windows_are_read_in_silence(windowed_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(windowed_run).predict([LONG, "soup"])
    assert capfd.readouterr() == ("", "")


def test_the_end_of_a_long_text_counts_only_with_windows(windowed_run: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(windowed_run / "model", tmp_path / "bare"))
    for name in ("endtask.json", "manifest.json"):
        (bare / name).unlink()
    for model, differ in ((windowed_run, True), (bare, False)):
        one, other = load(model).predict([LONG, LONG + "soup bread salt oven cook taste"])
        assert (one.probabilities != pytest.approx(other.probabilities, abs=1e-7)) == differ


def test_pairs_are_never_read_by_windows(windowed_run: Path) -> None:
    """A model folder alone does not say what it was trained on."""
    predictor = Predictor(windowed_run / "model")
    (alone,) = predictor.predict([("star moon", "orbit")])
    _, together, _ = predictor.predict([LONG, ("star moon", "orbit"), "soup"])
    assert together.probability == pytest.approx(alone.probability, abs=1e-5)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"window_stride": "3"}', '{"window_stride": 0}'])
def test_a_damaged_note_about_windows(windowed_run: Path, tmp_path: Path, content: str) -> None:
    folder = Path(shutil.copytree(windowed_run / "model", tmp_path / "model"))
    (folder / "manifest.json").unlink()
    (folder / "endtask.json").write_text(content)
    with pytest.raises(InputError, match=r"endtask\.json(, row 1)?: (no valid window_stride|not valid JSON)"):
        load(folder)
