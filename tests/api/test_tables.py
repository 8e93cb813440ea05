"""Every form of labelled data gives the same rows."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from endtask.api.cells import json_lines
from endtask.api.labelled_rows import read_labelled
from endtask.api.tables import splits_of
from endtask.config import TaskSettings
from endtask.errors import InputError

TEXTS, LABELS = ["soup", "moon", "goal"], ["food", "space", "sport"]
ROWS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
CLASSES = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=LABELS)})
NUMBERED = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 2]}, features=CLASSES)


def content(data: Any) -> dict[str, bytes]:
    return {split: b"".join(json_lines(rows, path=split)) for split, rows in splits_of(data).items()}


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=[9, 9, 7]),
        datasets.Dataset.from_list(ROWS),
        NUMBERED,
        (TEXTS, LABELS),
        [TEXTS, LABELS],
        (pd.Series(TEXTS), np.array(LABELS)),
        (NUMBERED["text"], LABELS),
        ROWS,
        tuple(ROWS),
        {"text": TEXTS, "label": LABELS},
        {"text": pd.Series(TEXTS), "label": np.array(LABELS)},
        {"train": pd.DataFrame(ROWS)},
    ],
    ids=lambda data: type(data).__name__,
)
def test_forms_of_one_table(data: Any) -> None:
    assert content(data) == {"train": b"".join(json_lines(ROWS, path=""))}


def test_splits_have_the_names_of_endtask() -> None:
    parts = {"train": ROWS, "validation": (TEXTS, LABELS), "test": pd.DataFrame(ROWS)}
    by_hub = datasets.DatasetDict({name: datasets.Dataset.from_list(ROWS) for name in (*parts, "unsupervised")})
    assert list(content(parts)) == ["train", "dev", "test"]
    assert content(parts) == content(by_hub)


def test_pairs_words_and_rows_of_lists() -> None:
    assert splits_of(([("a", "b")], [1]))["train"] == [{"text": "a", "text_pair": "b", "label": 1}]
    assert splits_of(([["in", "Rome"]], [["O", "B"]]))["train"] == [{"tokens": ["in", "Rome"], "tags": ["O", "B"]}]
    assert splits_of(([{"abstract": "a"}], [1]))["train"] == [{"abstract": "a", "label": 1}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TEXTS, "data: of type list, which is not a table"),
        (7, "data: of type int"),
        ((TEXTS, LABELS[:2]), "data: 3 texts but 2 labels"),
        (([None], [1]), r"data, row 1: the text is of type NoneType \(a string, a tuple"),
        (([("a", "b", "c")], [1]), "data, row 1: the text is of type a tuple of 3"),
        ({"text": TEXTS, "label": [1]}, "data: the columns differ in length: text 3, label 1"),
        ({"train": ROWS, "tset": ROWS}, r"data, key 'tset': unknown split \(did you mean 'test'\?\)"),
        ({"train": ROWS, "dev": ROWS, "valid": ROWS}, "data, key 'valid': two splits are dev"),
        ({"test": ROWS}, "data: no train split, only test"),
        ({"train": TEXTS}, r"data\['train'\]: of type list"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "data: two columns are named 'text'"),
    ],
)
def test_what_is_no_table(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        splits_of(data)


def test_rows_to_be_scored_are_read_like_those_of_the_task() -> None:
    settings = TaskSettings.model_validate({"columns": {"text": "abstract", "group": "paper"}})
    frame = pd.DataFrame({"abstract": ["soup", " ", "goal"], "label": ["food", "food", "sport"]})
    found = read_labelled(frame, settings, "text", LABELS)
    assert [(row.id, row.text, row.label) for row in found] == [("test-1", "soup", "food"), ("test-3", "goal", "sport")]
    splits = {"train": ROWS, "test": ROWS[:1]}
    assert [row.text for row in read_labelled(splits, TaskSettings(), "text", LABELS)] == ["soup"]


def test_spans_of_texts_are_scored_as_tags_of_words() -> None:
    rows = [{"text": "in Rome.", "spans": [{"start": 3, "end": 7, "label": "place"}]}]
    (found,) = read_labelled(rows, TaskSettings(), "token_classification", ["O", "B-place"])
    assert (found.tokens, found.label) == (("in", "Rome", "."), ("O", "B-place", "O"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"text": "a", "label": "fodo"}], r"data, row 1: the label 'fodo' is not .* \(did you mean 'food'\?\)"),
        ([{"text": "a", "label": None}], "data, row 1: the label is missing"),
        ([{"txt": "a", "label": "food"}], r"data: no column for the text .* \(did you mean task.columns.text=txt\?\)"),
        ([{"text": " ", "label": "food"}], "data: no rows with text"),
        ({"train": ROWS, "dev": ROWS}, "data: no test split, only train, dev"),
    ],
)
def test_rows_that_cannot_be_scored(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        read_labelled(data, TaskSettings(), "text", LABELS)
