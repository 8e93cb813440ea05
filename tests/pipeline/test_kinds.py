"""Whole runs of regression, multilabel and tagging: files, models for plain transformers, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

import endtask
from endtask.bundle import unbundle, write_bundle
from endtask.config import resolve
from endtask.errors import InputError
from endtask.experiments import compare
from endtask.experiments.comparison import results_dict
from endtask.pipeline.check import check
from endtask.reporting.page import summary, verdict_lines
from endtask.reporting.results import results_of
from endtask.serving.predictor import LabelSet, Score, Tagged, load
from tests.conftest import Answer
from tests.toy_run import results, toy_settings, write_rows
from tests.toy_task_types import SPLITS, write_toy_of_type

pytestmark = pytest.mark.slow

KINDS = ("regression", "multilabel", "token_classification")
METRICS = {"regression": "pearson", "multilabel": "micro_f1", "token_classification": "span_f1"}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def data(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_of_type(tmp_path_factory.mktemp(kind), kind)


def settings_of(data: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """A task batch in every second step, so that pre-training meets the task too."""
    settings = toy_settings(data, output, **changes)
    settings["pretrain"] = {**settings["pretrain"], "weighting": {"rho1": 1}}
    return settings


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return endtask.run(settings_of(data, tmp_path_factory.mktemp("finished") / "run")).folder


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def saved_seed(run: Path) -> str:
    return str(json.loads((run / "model" / "manifest.json").read_text())["counts"]["seed"])


def test_predictions_equal_those_of_the_evaluation(kind: str, finished: Path) -> None:
    evaluated = [row["predicted"][saved_seed(finished)] for row in rows(finished / "evaluate" / "predictions.jsonl")]
    predictor = load(finished)
    assert (predictor.type, predictor.takes_pairs) == (kind, False)
    found = predictor.predict([row["text"] for row in rows(finished / "read" / "test.jsonl")])
    assert len(found) == dict(SPLITS)["test"]
    if kind == "regression":
        assert [answer.score for answer in found] == pytest.approx(evaluated, abs=1e-4)
    elif kind == "multilabel":
        assert [list(answer.labels) for answer in found] == evaluated
    else:
        assert [list(answer.tags) for answer in found] == evaluated


def test_the_model_object(kind: str, finished: Path) -> None:
    """Answers, probabilities and scores of the object that `endtask.fit` returns."""
    model, test = endtask.load(finished), rows(finished / "read" / "test.jsonl")
    texts = [row["text"] for row in test]
    evaluated = [row["predicted"][saved_seed(finished)] for row in rows(finished / "evaluate" / "predictions.jsonl")]
    expected = pytest.approx(evaluated, abs=1e-4) if kind == "regression" else evaluated
    assert model.predict(texts) == expected
    own = model.evaluate()
    labels = "tags" if kind == "token_classification" else "label"
    frame = [{"tokens" if labels == "tags" else "text": row["tokens" if labels == "tags" else "text"],
              labels: row["label"]} for row in test]  # fmt: skip
    again = model.evaluate(frame)
    assert {name: again[name].by_seed for name in again.scores} == {
        name: pytest.approx(value.by_seed) for name, value in own.scores.items()
    }
    assert len(model.explain(texts[0]).neighbors) == 5
    if kind == "regression":
        assert model.classes_.tolist() == []
        with pytest.raises(InputError, match="a model of numbers has no probabilities"):
            model.predict_proba(texts)
    elif kind == "multilabel":
        given = model.predict_proba(texts) >= model.settings.evaluate.threshold
        assert [model.classes_[row].tolist() for row in given] == evaluated
    else:
        tables = model.predict_proba(texts)
        assert [[model.classes_[word.argmax()] for word in table] for table in tables] == evaluated
        assert model.predict(test[0]["tokens"][:1]) == [model.predict([test[0]["tokens"][:1]])[0]]


def test_plain_transformers_gives_the_same(kind: str, finished: Path) -> None:
    """Scores come on the task's own scale, with nothing of ours to undo."""
    folder, text = finished / "model", "soup star moon bread"
    stock = AutoModelForTokenClassification if kind == "token_classification" else AutoModelForSequenceClassification
    model, tokenizer = stock.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    (answer,) = load(folder).predict([text])
    with torch.inference_mode():
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
    if kind == "regression":
        assert isinstance(answer, Score)
        assert (model.config.num_labels, model.config.problem_type) == (1, "regression")
        assert answer.score == pytest.approx(logits.item(), abs=1e-5)
        assert 0 < answer.score < 5
    elif kind == "multilabel":
        assert isinstance(answer, LabelSet)
        assert model.config.problem_type == "multi_label_classification"
        assert list(answer.probabilities.values()) == pytest.approx(logits.sigmoid().tolist(), abs=1e-5)
    else:
        assert isinstance(answer, Tagged)
        names = model.config.id2label
        assert list(answer.tags) == [names[number] for number in logits[1:5].argmax(-1).tolist()]


def test_results_hold_scores_and_predictions(kind: str, finished: Path) -> None:
    found = results_of(finished)
    assert (found["type"], found["metric"], found["test"]["summary"]["metric"]) == (kind, METRICS[kind], METRICS[kind])
    test = found["predictions"]["test"]
    assert len(test["truth"]) == len(test["predicted"]["0"]) == dict(SPLITS)["test"]
    if kind == "token_classification":
        assert [len(row) for row in test["truth"]] == [len(row) for row in test["predicted"]["1"]]
        assert found["test"]["seeds"][0]["scores"]["perplexity"] > 1
    assert found["predictions"]["dev"]["predicted"].keys() == {"0", "1"}


def test_the_report_and_the_card(kind: str, finished: Path) -> None:
    page, card = (finished / "report.html").read_text(), (finished / "model" / "README.md").read_text()
    pipeline = "token-classification" if kind == "token_classification" else "text-classification"
    assert f"pipeline(&#34;{pipeline}&#34;" in page
    assert f"pipeline_tag: {pipeline}" in card
    expected = {"regression": "root mean squared error", "multilabel": "By label", "token_classification": "By span"}[
        kind
    ]
    assert expected in page
    classes = [row["label"] for row in summary(finished)["classes"]]
    assert (
        classes == {"regression": [], "multilabel": ["food", "space", "sport"], "token_classification": ["sky"]}[kind]
    )


def test_a_check_shows_examples(data: Path, tmp_path: Path) -> None:
    found = check(resolve(settings_of(data, tmp_path / "run")))
    assert len(found.examples) == 2
    assert found.estimate is not None


def test_a_bundle_trains_to_the_same_bits(finished: Path, tmp_path: Path) -> None:
    folder = unbundle(write_bundle(finished, tmp_path / "tokens.tar.zst", kind="tokens").file, tmp_path / "there")
    endtask.run(folder)
    assert results(folder) == results(finished)


def test_a_comparison_with_all_its_tests(kind: str, data: Path, tmp_path: Path) -> None:
    tree = {"variants": {"one": {}}, "seeds": [0], "finetune_seeds": [0, 1], "baselines": ["majority", "tfidf"]}
    outcome = compare(resolve(settings_of(data, tmp_path / "out", budget="4steps")), tree)
    assert [(row.name, row.models) for row in outcome.rows] == [("one", 2), ("majority", 1), ("tfidf", 1)]
    for row in outcome.rows:
        assert row.score is not None
        assert row.score.low is not None
        assert np.isfinite(row.score.mean)
    lead = outcome.row("tfidf").score.difference  # type: ignore[union-attr]
    assert lead is not None
    assert 0 < lead.p_value <= 1
    tree = results_dict(outcome)
    assert tree["type"] == kind
    assert json.loads(json.dumps(tree))["truth"] == tree["truth"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"evaluate": {"metric": "matthews"}}, "key 'evaluate.metric': 'matthews' does not fit"),
        ({"evaluate": {"positive_label": "food"}}, "key 'evaluate.positive_label': has no meaning"),
    ],
)
def test_what_does_not_fit_is_met_before_any_work(
    data: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        endtask.run(toy_settings(data, tmp_path / "run", **changes))
    with pytest.raises(InputError, match=words):
        check(resolve(toy_settings(data, tmp_path / "run", **changes)))
    assert not (tmp_path / "run").exists()


def test_a_file_of_the_task_is_predicted_as_it_stands(
    kind: str, data: Path, finished: Path, command: Callable[..., Answer]
) -> None:
    """Words of a tagger come as lists; `--json` gives what the evaluation wrote."""
    answer = command("predict", finished, "--file", data / "task" / "test.jsonl", "--json")
    assert answer.code == 0, answer.err
    key = {"regression": "score", "multilabel": "labels", "token_classification": "tags"}[kind]
    found = [json.loads(line)[key] for line in answer.out.splitlines()]
    evaluated = [row["predicted"][saved_seed(finished)] for row in rows(finished / "evaluate" / "predictions.jsonl")]
    assert found == (pytest.approx(evaluated, abs=1e-4) if kind == "regression" else evaluated)
    if kind == "token_classification":
        (whole,) = load(finished).predict([["new moon", "soup"]])
        assert (whole.words, len(whole.tags)) == (("new moon", "soup"), 2), "a word may hold a blank"
        split = load(finished).predict(["star, moon."])[0].words
        assert split == ("star", ",", "moon", "."), "no word of train has punctuation at its end"
    else:
        with pytest.raises(InputError, match="text 1 is a list of words"):
            load(finished).predict([["moon", "soup"]])


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_of_type(tmp_path_factory.mktemp("tagged"), "token_classification")


def test_long_tagged_texts_are_cut_and_counted(
    tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = toy_settings(tagged, tmp_path / "run", finetune={"max_length": 8, "max_steps": 2, "seeds": [0]})
    run = endtask.run(settings)
    lost = run.stages["pack"]["test"]["lost_words"]
    assert lost > 0
    assert f"warning: {lost:,} of" in capsys.readouterr().err
    predicted = rows(run.folder / "evaluate" / "predictions.jsonl")
    assert all(len(row["predicted"]["0"]) == len(row["label"]) for row in predicted), "cut words are answered too"
    with pytest.raises(InputError, match="tagged texts cannot be read by windows"):
        endtask.run(toy_settings(tagged, tmp_path / "other", finetune={"max_length": 8, "window_stride": 4}))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_other_architectures_tag_too(tagged: Path, tmp_path: Path, architecture: str) -> None:
    settings = toy_settings(tagged, tmp_path / "run", finetune={"max_length": 16, "max_steps": 2, "seeds": [0]})
    settings["model"] = {**settings["model"], "architecture": architecture}
    run = endtask.run(settings).folder
    evaluated = [row["predicted"]["0"] for row in rows(run / "evaluate" / "predictions.jsonl")]
    found = load(run / "model").predict([row["text"] for row in rows(run / "read" / "test.jsonl")])
    assert [list(answer.tags) for answer in found] == evaluated


def test_a_tuned_threshold_travels_with_the_model(tmp_path: Path) -> None:
    data = write_toy_of_type(tmp_path / "data", "multilabel")
    run = endtask.run(toy_settings(data, tmp_path / "run", evaluate={"threshold": "tuned"})).folder
    best = json.loads((run / "finetune" / f"seed-{saved_seed(run)}" / "result.json").read_text())
    facts = json.loads((run / "model" / "endtask.json").read_text())
    assert facts["threshold"] == best["threshold"] != 0.5
    evaluated = [row["predicted"][saved_seed(run)] for row in rows(run / "evaluate" / "predictions.jsonl")]
    texts = [row["text"] for row in rows(run / "read" / "test.jsonl")]
    assert [list(answer.labels) for answer in load(run).predict(texts)] == evaluated


def test_several_test_sets(toy: Path, tmp_path: Path) -> None:
    test = rows(toy / "task" / "test.jsonl")
    for split in ("train", "dev"):
        write_rows(tmp_path / "task" / f"{split}.jsonl", rows(toy / "task" / f"{split}.jsonl"))
    write_rows(tmp_path / "task" / "test_matched.jsonl", test[:12])
    write_rows(tmp_path / "task" / "test_mismatched.jsonl", test[12:])
    changes = {"task": {"path": str(tmp_path / "task")}, "evaluate": {"metric": "accuracy"}}
    settings = toy_settings(toy, tmp_path / "run", **changes)
    run = endtask.run(settings).folder
    found = json.loads((run / "evaluate" / "results.json").read_text())
    sets = found["test_sets"]
    assert {name: one["rows"] for name, one in sets.items()} == {"matched": 12, "mismatched": 6}
    assert found["mean_of_test_sets"] == pytest.approx((sets["matched"]["mean"] + sets["mismatched"]["mean"]) / 2)
    whole = (12 * sets["matched"]["mean"] + 6 * sets["mismatched"]["mean"]) / 18
    assert found["summary"]["mean"] == pytest.approx(whole)
    page, card = (run / "report.html").read_text(), (run / "model" / "README.md").read_text()
    assert "mean of the sets" in page
    assert "mean of the test sets" in card
    lines = [line for line in verdict_lines(run)[1:] if "the model is" not in line.lower()]
    assert [line.partition(": ")[0].strip() for line in lines] == [*sets, "mean of the sets"]
