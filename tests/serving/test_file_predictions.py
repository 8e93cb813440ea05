"""Predictions for the rows of a file: order, batches of similar lengths, and how much is read at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.serving.file_predictions import predict_by_length, predict_file, stream_by_length
from endtask.serving.predictor import Predictor
from endtask.serving.text_files import FileText, file_texts
from endtask.task_types.base import LabelSet, Prediction, Score, Tagged


class StubPredictor:
    """Predicts a text's own length, and notes the batches."""

    def __init__(self, takes_pairs: bool | None = False, per_token: bool = False) -> None:
        self.takes_pairs, self.batches = takes_pairs, list[list[Any]]()
        self.task_type = type("Type", (), {"per_token": per_token})()

    def predict(self, texts: Iterable[Any], *, batch_size: int) -> list[Prediction]:
        self.batches.append(list(texts))
        assert len(self.batches[-1]) <= batch_size
        return [Prediction(str(len(text)), 0.75, {"a": 0.75, "b": 0.25}) for text in self.batches[-1]]


def stub(**options: Any) -> tuple[Predictor, StubPredictor]:
    made = StubPredictor(**options)
    return cast(Predictor, made), made


@given(st.lists(st.text(max_size=30), max_size=40), st.integers(1, 7))
def test_answers_come_in_the_order_of_the_texts(texts: list[str], batch_size: int) -> None:
    predictor, made = stub()
    assert [found.value for found in predict_by_length(predictor, texts, batch_size)] == [str(len(t)) for t in texts]
    lengths = [len(text) for batch in made.batches for text in batch]
    assert lengths == sorted(lengths)
    assert sorted(text for batch in made.batches for text in batch) == sorted(texts)


def test_a_file_is_read_as_predictions_are_taken() -> None:
    read: list[int] = []

    def rows() -> Iterator[FileText]:
        for number in range(10_000):
            read.append(number)
            yield FileText(number, {}, "x" * (number % 7))

    predictor, _ = stub()
    found = stream_by_length(predictor, rows(), 4)
    assert next(found)[0].number == 0
    assert len(read) <= 4 * 32 + 1


def test_rows_have_their_columns_and_the_predictions(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,text\n" + "".join(f"{n},{'x' * (n % 5 + 1)}\n" for n in range(50)))
    predictor, _ = stub()
    count = predict_file(predictor, source, tmp_path / "out.jsonl", run=tmp_path, batch_size=3)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert count == len(rows) == 50
    assert [row["id"] for row in rows] == [str(n) for n in range(50)]
    assert all(row["label"] == str(len(row["text"])) for row in rows)
    assert list(rows[0]) == ["id", "text", "label", "probability_a", "probability_b"]


def test_columns_of_the_file_are_never_replaced(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"text": "abc", "label": "gold", "predicted_label": "older"}) + "\n")
    predictor, _ = stub()
    predict_file(predictor, source, tmp_path / "out.jsonl", run=tmp_path)
    (row,) = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert (row["label"], row["predicted_label"], row["predicted_predicted_label"]) == ("gold", "older", "3")
    source.write_text('{"text": "abc"}\n{"text": "d", "label": "x"}\n')
    with pytest.raises(InputError, match=r"in.jsonl, row 2, key 'label': the row has a key 'label'"):
        predict_file(predictor, source, tmp_path / "new.jsonl", run=tmp_path)
    assert not (tmp_path / "new.jsonl").exists()


def test_lines_of_text_and_pairs(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("a\tb\nc\td\n")
    predictor, _ = stub(takes_pairs=True)
    assert [found.text for found in file_texts(source, predictor, tmp_path)] == [("a", "b"), ("c", "d")]
    predictor, _ = stub()
    assert [found.row for found in file_texts(source, predictor, tmp_path)] == [{"text": "a\tb"}, {"text": "c\td"}]
    source.write_text("a\tb\nc\n")
    predictor, _ = stub(takes_pairs=True)
    with pytest.raises(InputError, match=r"in.txt, row 2: no TAB and second text"):
        list(file_texts(source, predictor, tmp_path))
    table = tmp_path / "in.jsonl"
    table.write_text('{"text": "a", "text_pair": null}\n')
    with pytest.raises(InputError, match=r"row 1, key 'text_pair': the second text is missing"):
        list(file_texts(table, predictor, tmp_path))


def test_words_of_a_tagger(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"tokens": ["a", "b"]}\n')
    predictor, _ = stub(per_token=True)
    assert [found.text for found in file_texts(source, predictor, tmp_path)] == [["a", "b"]]


@pytest.mark.parametrize("name", ["a.pdf", "a.html", "a.yaml", "a.docx", "a.xml.gz"])
def test_files_that_are_neither_rows_nor_lines_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('[{"text": "a"}]')
    predictor, made = stub()
    with pytest.raises(InputError, match="neither rows nor lines of text, so nothing was predicted"):
        list(file_texts(tmp_path / name, predictor, tmp_path))
    assert made.batches == []


@pytest.mark.parametrize("content", ['{"soup": 1}', '"soup bread"', '["soup", "bread"]', "soup"])
def test_a_json_document_is_never_one_text(tmp_path: Path, content: str) -> None:
    (tmp_path / "labels.json").write_text(content)
    predictor, made = stub()
    with pytest.raises(InputError, match=r"labels\.json"):
        list(file_texts(tmp_path / "labels.json", predictor, tmp_path))
    assert made.batches == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\nriver,water\n", "the header of a table (text, label), not a text (name it rows.csv)"),
        ('"id";"text"\n1;river\n', "(name it rows.csv)"),
        ("id\ttext\n1\triver\n", "(name it rows.tsv)"),
        ('{"text": "river"}\n', "JSON lines, not a text per line (name it rows.jsonl)"),
        ("%PDF-1.4\n1 0 obj\n", "not a text file"),
        ("\0\1\2\n", "not a text file"),
    ],
)
def test_a_text_file_of_another_format_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "rows.txt").write_text(content)
    with pytest.raises(InputError) as error:
        list(file_texts(tmp_path / "rows.txt", stub()[0], tmp_path))
    assert message in str(error.value)


@pytest.mark.parametrize("line", ["a text, with a comma", "{no json", "my text\tand a tab", "text"])
def test_ordinary_lines_are_texts(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.txt").write_text(f"{line}\n")
    assert [found.text for found in file_texts(tmp_path / "rows.txt", stub()[0], tmp_path)] == [line]


@pytest.mark.parametrize(
    ("content", "warning"),
    [("text\n", "no texts, so nothing was predicted"), ('text\na\n" "\n', "1 of 2 texts are empty"), ("text\na\n", "")],
)
def test_missing_texts_are_told(tmp_path: Path, content: str, warning: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text(content)
    list(file_texts(tmp_path / "rows.csv", stub()[0], tmp_path))
    said = capsys.readouterr().err
    assert warning in said
    assert bool(warning) == ("warning" in said)


def test_the_columns_of_every_kind_of_answer() -> None:
    assert Score(1.5).columns() == {"score": 1.5}
    assert LabelSet(("a",), {"a": 0.9, "b": 0.1}).columns() == {
        "labels": ["a"], "probability_a": 0.9, "probability_b": 0.1,
    }  # fmt: skip
    tagged = Tagged(("x", "y"), ("O", "B"), (0.5, 1.0), ())
    assert tagged.columns() == {"tags": ["O", "B"], "tag_probabilities": [0.5, 1.0]}
