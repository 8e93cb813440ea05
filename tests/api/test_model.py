"""The object that `endtask.fit` and `endtask.load` return, against the files of a run and slower computations."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, f1_score

import endtask
from endtask.api.saving import FACTS
from endtask.errors import InputError
from endtask.io.selection_table import read_selection
from endtask.io.tables import read_rows
from endtask.retrieval.provenance import why_example
from endtask.serving.predictor import load as load_predictor
from endtask.task.text_keys import normalize

TEXTS = ["soup bread salt", "star moon", "ball goal team win"]


@pytest.fixture(scope="module")
def model(finished_run: Path) -> endtask.Model:
    return endtask.load(finished_run)


@pytest.fixture(scope="module")
def pair_model(finished_pair_run: Path) -> endtask.Model:
    return endtask.load(finished_pair_run)


def rows(run: Path, split: str) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(run / "read" / f"{split}.jsonl")]


@pytest.mark.parametrize(
    "several",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        pd.Series(TEXTS),
        pd.DataFrame({"text": TEXTS}),
        (text for text in TEXTS),
        [{"text": text} for text in TEXTS],
    ],
    ids=lambda several: type(several).__name__,
)
def test_forms_of_texts(model: endtask.Model, several: Any) -> None:
    expected = [answer.label for answer in load_predictor(model.folder).predict(TEXTS)]
    assert model.predict(several) == expected
    assert [model.predict(text) for text in TEXTS] == expected
    assert model.predict({"text": TEXTS[0]}) == expected[0]


def test_forms_of_pairs(model: endtask.Model, pair_model: endtask.Model) -> None:
    pairs = [("soup bread", "salt"), ("star", "moon orbit")]
    expected = [answer.label for answer in load_predictor(pair_model.folder).predict(pairs)]
    as_dicts = [{"text": first, "text_pair": second} for first, second in pairs]
    for several in (pairs, as_dicts, [list(pair) for pair in pairs], pd.DataFrame(as_dicts)):
        assert pair_model.predict(several) == expected
    assert pair_model.predict(pairs[1]) == pair_model.predict(as_dicts[1]) == expected[1]
    assert len(model.predict(pairs[0])) == 2  # a model of single texts reads a tuple as two


def test_probabilities(model: endtask.Model) -> None:
    table = model.predict_proba(TEXTS)
    answers = load_predictor(model.folder).predict(TEXTS)
    assert table.tolist() == [[one.probabilities[name] for name in model.classes_] for one in answers]
    assert [model.classes_[row.argmax()] for row in table] == model.predict(TEXTS)
    assert model.predict_proba(TEXTS[0]) == pytest.approx(table[0], abs=1e-6)
    assert model.predict([]) == []
    assert model.predict_proba([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["soup", None], "texts, row 2: the text is of type NoneType"),
        ([("a", "b", "c")], "texts, row 1: the text is a list of 3"),
        (7, "texts: of type int"),
        ([{"txt": "soup"}], "texts, row 1: no text among the columns 'txt'"),
    ],
)
def test_what_is_no_text(model: endtask.Model, texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        model.predict(texts)


def test_the_run_s_own_scores(model: endtask.Model, finished_run: Path) -> None:
    """Scores against scikit-learn, over the predictions that the run wrote."""
    lines = [row for _, row in read_rows(finished_run / "evaluate" / "predictions.jsonl")]
    truth, labels = [line["label"] for line in lines], list(model.classes_)
    found = model.evaluate()
    assert (found.rows, found.seeds, found.metric) == (18, (0, 1), "macro_f1")
    for seed in found.seeds:
        predicted = [line["predicted"][str(seed)] for line in lines]
        assert found["accuracy"].by_seed[seed] == pytest.approx(accuracy_score(truth, predicted))
        macro = f1_score(truth, predicted, average="macro", labels=labels, zero_division=0)
        assert found["macro_f1"].by_seed[seed] == pytest.approx(macro)
    assert float(found) == found.score == pytest.approx(np.mean(list(found["macro_f1"].by_seed.values())))
    assert all(one.low <= one.mean <= one.high for one in found.scores.values())
    results = json.loads((finished_run / "evaluate" / "results.json").read_text())
    assert found.score == pytest.approx(results["summary"]["mean"])
    assert found.rows - (found.leaked_rows or 0) == results["leak_free_rows"]


def test_other_rows_are_scored_with_every_seed(model: endtask.Model, finished_run: Path, toy: Path) -> None:
    own, test = model.evaluate(), rows(finished_run, "test")
    columns = ([row["text"] for row in test], [row["label"] for row in test])
    for data in (toy / "task", toy / "task" / "test.jsonl", pd.DataFrame(test), columns):
        assert model.evaluate(data) == own


def test_leaked_rows_are_counted_and_left_out(model: endtask.Model, finished_run: Path) -> None:
    train, test = rows(finished_run, "train"), rows(finished_run, "test")
    scored = [{**row, "text": row["text"].upper()} for row in (*train[:4], *test)]
    known = {normalize(row["text"]) for row in train}
    both = model.evaluate(pd.DataFrame(scored).drop(columns="id"))
    assert both.leaked_rows == sum(normalize(row["text"]) in known for row in scored) == 4
    assert both.leak_free == model.evaluate(pd.DataFrame(scored[4:]).drop(columns="id"))["macro_f1"]
    assert sum(one.support for one in both.classes) == 22 * 2


def test_a_row_with_an_unknown_class(model: endtask.Model) -> None:
    with pytest.raises(InputError, match=r"data, row 2: the label 'spce' is not one .* \(did you mean 'space'\?\)"):
        model.evaluate((["a", "b"], ["food", "spce"]))


def test_why_a_row_was_learned_from(model: endtask.Model, finished_run: Path) -> None:
    found = model.explain("train-3", top=4)
    row = next(row for row in rows(finished_run, "train") if row["id"] == "train-3")
    assert (found.id, found.label, found.text) == ("train-3", row["label"], row["text"])
    assert found.passages == why_example(finished_run, "train-3", top=4).passages
    assert found.prediction == model.predict(row["text"])
    assert "train-3" not in [one.id for one in found.neighbors]


def test_why_a_text_is_predicted(model: endtask.Model, finished_run: Path) -> None:
    """The nearest rows and passages are those of a search through all of them."""
    train = rows(finished_run, "train")
    text = train[5]["text"].upper()
    found = model.explain(text, top=200)
    assert (found.neighbors[0].id, found.neighbors[0].equal) == (train[5]["id"], True)
    words = set(text.lower().split())
    near = {row["id"] for row in train if words & set(row["text"].split())}
    assert {one.id for one in found.neighbors} == near
    assert all(one.score == pytest.approx(sum(word.score for word in one.words)) for one in found.neighbors)
    assert [one.score for one in found.neighbors] == sorted((one.score for one in found.neighbors), reverse=True)
    asked = {word for row in train for word in row["text"].split()} & words
    selected = read_selection(finished_run / "select" / "selection.parquet")
    matched = {one.document.id for one in selected if asked & set(one.document.text.lower().replace(".", "").split())}
    assert {one.id for one in found.passages} == matched
    assert found.id is None
    assert [one.id for one in model.explain(text, top=2).passages] == [one.id for one in found.passages[:2]]


def test_explanations_without_a_corpus(pair_model: endtask.Model) -> None:
    found = pair_model.explain(("soup bread", "salt"))
    assert found.passages == ()
    assert found.note == "the run has no corpus, so no passage was selected"
    assert found.neighbors
    with pytest.raises(InputError, match="explain takes a text or a row's id"):
        pair_model.explain([("soup", "bread")])


def test_a_saved_model_is_the_same_object(model: endtask.Model, own_run: Path, tmp_path: Path) -> None:
    run = endtask.load(own_run)
    folder = run.save(tmp_path / "saved")
    shutil.rmtree(own_run)
    saved = endtask.load(folder)
    assert saved.predict(TEXTS) == model.predict(TEXTS)
    assert saved.evaluate() == model.evaluate()
    assert saved.evaluate((TEXTS, ["food"] * 3)) == model.evaluate((TEXTS, ["food"] * 3))
    assert saved.explain("train-3") == model.explain("train-3")
    assert saved.explain("soup oven") == model.explain("soup oven")
    again = endtask.load(saved.save(tmp_path / "again"))
    assert again.explain("train-3") == model.explain("train-3")


def test_a_model_without_its_run(pair_model: endtask.Model, tmp_path: Path) -> None:
    saved = endtask.load(pair_model.save(tmp_path / "saved", with_run=False))
    words = {word for row in rows(pair_model.folder, "train") for word in (row["text"],)}
    for file in saved.folder.rglob("*.*"):
        content = file.read_bytes()
        assert not any(word.encode() in content for word in words)
    assert (saved.type, saved.predictor.takes_pairs) == ("pair", True)
    pair = ("soup bread", "salt")
    assert saved.predict(pair) == pair_model.predict(pair)
    found = saved.evaluate(([pair, ("a", "b")], ["food", "space"]))
    assert (found.leaked_rows, found.leak_free, found.seeds) == (None, None, (0,))
    with pytest.raises(InputError, match=r"cannot explain: the folder has the model alone \(load the run's folder"):
        saved.explain(pair)
    with pytest.raises(InputError, match="the label 'fod' is not one of the model"):
        saved.evaluate(([pair], ["fod"]))


def test_a_folder_of_other_things_is_not_overwritten(model: endtask.Model, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("text")
    with pytest.raises(InputError, match="thesis: the folder has other files"):
        model.save(tmp_path / "thesis")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]
    model.save(tmp_path / "saved")
    model.save(tmp_path / "saved", with_run=False)
    assert not (tmp_path / "saved" / "run").exists()
    (tmp_path / "saved" / FACTS).write_text("[]")
    with pytest.raises(InputError, match="not the facts of a model"):
        endtask.load(tmp_path / "saved")


def test_pickle_is_the_same_model(model: endtask.Model) -> None:
    copy = pickle.loads(pickle.dumps(model))
    assert copy.predict(TEXTS) == model.predict(TEXTS)
    assert copy.settings == model.settings


class _Hub:
    """A hub that remembers what it got."""

    is_public = False
    uploaded: dict[str, bytes]

    def create_repo(self, name: str, *, private: bool, exist_ok: bool, repo_type: str) -> str:
        self.created = (name, private, exist_ok)
        return f"https://hub/{name}"

    def repo_info(self, name: str, *, repo_type: str) -> Any:
        return type("Info", (), {"private": not self.is_public})

    def upload_folder(self, *, folder_path: str, **_: Any) -> None:
        self.uploaded = {path.name: path.read_bytes() for path in Path(folder_path).rglob("*") if path.is_file()}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> _Hub:
    import huggingface_hub

    hub = _Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    return hub


def test_push_to_hub_uploads_the_model_and_no_texts(model: endtask.Model, hub: _Hub) -> None:
    assert model.push_to_hub("me/model") == "https://hub/me/model"
    assert hub.created == ("me/model", True, True)
    assert set(hub.uploaded) == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", FACTS,
    }  # fmt: skip
    assert hub.uploaded["model.safetensors"] == (model.folder / "model" / "model.safetensors").read_bytes()


def test_a_public_repository_is_not_written_to_by_accident(model: endtask.Model, hub: _Hub) -> None:
    hub.is_public = True
    with pytest.raises(InputError, match="me/model: this repository is public"):
        model.push_to_hub("me/model")
    assert not hasattr(hub, "uploaded")
    model.push_to_hub("me/model", private=False)
    assert hub.created == ("me/model", False, True)


def test_the_hub_is_out_of_reach(model: endtask.Model, hub: _Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no route\nto host")

    monkeypatch.setattr(hub, "create_repo", fail)
    with pytest.raises(InputError, match="me/model: cannot be uploaded: no route"):
        model.push_to_hub("me/model")


@pytest.mark.parametrize("view", [lambda m: m, lambda m: m.explain("<script>"), lambda m: m.evaluate()])
def test_notebooks_get_escaped_html(own_run: Path, view: Callable[[endtask.Model], Any]) -> None:
    strange = own_run.rename(own_run.with_name("<script>"))
    shown = view(endtask.load(strange))
    page = shown._repr_html_()
    assert "<table>" in page
    assert "<script>" not in page
    assert repr(shown)
    assert str(shown)
