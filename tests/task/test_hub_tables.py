"""Tasks through the `datasets` library, from a local folder, offline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from endtask.config import ColumnSettings
from endtask.errors import InputError
from endtask.task import Task, hub_tables


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    return library


def write(folder: Path, **splits: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"sentence": f"text {n}", "label": n % 2} for n in range(start, start + count)]


def test_local_folder_by_name(tmp_path: Path, datasets: Any) -> None:
    folder = write(tmp_path / "numbers", train=rows(6), validation=rows(2, 10), test=rows(4, 20))
    task = Task.read(f"hf:{folder}")
    assert (task.name, task.labels) == ("numbers", ("0", "1"))
    assert {split: len(part) for split, part in task.splits.items()} == {"train": 6, "dev": 2, "test": 4}
    assert task.dev[0].text == "text 10"
    assert task.dev[0].path == f"hf:{folder} validation"


def test_split_without_labels_is_ignored_with_a_note(tmp_path: Path, datasets: Any) -> None:
    hidden = [{"sentence": f"hidden {n}", "label": -1} for n in range(3)]
    folder = write(tmp_path / "glue", train=rows(40), validation=rows(2, 50), test=hidden)
    task = Task.read(f"hf:{folder}")
    assert f"split 'test' of hf:{folder} has no labels and is ignored" in task.notes
    assert len(task.test) == 4


def test_class_numbers_become_names(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = datasets.ClassLabel(names=["neg", "pos"])
    texts = {"text": [f"text {n}" for n in range(4)], "label": [0, 1, 0, 1]}
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    labelled = datasets.Dataset.from_dict(texts, features=features)
    hidden = datasets.Dataset.from_dict({**texts, "label": [-1] * 4}, features=features)
    loaded = {"train": labelled, "validation": labelled, "test": hidden, "unsupervised": hidden}
    monkeypatch.setattr(hub_tables, "_load", lambda path: loaded)
    tables, notes = hub_tables.read_hub_tables("hf:films", ColumnSettings())
    assert list(tables) == ["train", "dev"]
    assert [row["label"] for _, row in tables["train"].rows] == ["neg", "pos", "neg", "pos"]
    assert len(notes) == 2
    assert "'unsupervised' of hf:films is not used" in notes[1]


def test_tag_numbers_become_names(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-x"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    data = datasets.Dataset.from_dict({"tokens": [["a", "b"]], "ner_tags": [[0, 1]]}, features=features)
    monkeypatch.setattr(hub_tables, "_load", lambda path: {"train": data, "validation": data, "test": data})
    task = Task.read("hf:owner/tagged:en")
    assert (task.name, task.type, task.train[0].label) == ("tagged", "token_classification", ("O", "B-x"))


def test_missing_library_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'endtask\[hub\]'"):
        Task.read("hf:anything")


def test_data_set_that_is_not_there(tmp_path: Path, datasets: Any) -> None:
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        Task.read(f"hf:{tmp_path / 'nowhere'}")
    assert "\n" not in str(caught.value)


def test_data_set_without_train(tmp_path: Path, datasets: Any) -> None:
    folder = write(tmp_path / "odd", test=rows(4))
    with pytest.raises(InputError, match="no train split"):
        Task.read(f"hf:{folder}")
