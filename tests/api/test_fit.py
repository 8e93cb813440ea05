"""`endtask.fit` on data in memory is a run on files: same bits, same errors, nothing written on a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow.parquet as pq
import pytest

import endtask
from endtask.api import fit as fit_module
from endtask.pipeline.run import Run
from tests.toy_run import hashes, results, toy_settings


def settings_of(toy: Path) -> dict[str, Any]:
    """The toy settings but for those that are arguments."""
    settings = toy_settings(toy, Path())
    return {key: value for key, value in settings.items() if key not in ("task", "corpus", "output_dir")}


def table(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


PREDICTIONS_TABLE = "evaluate/predictions.parquet"


@pytest.fixture
def splits(toy: Path) -> dict[str, pd.DataFrame]:
    return {split: pd.DataFrame(table(toy / "task" / f"{split}.jsonl")) for split in ("train", "dev", "test")}


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[endtask.Settings]:
    """The settings of each run that `fit` would do; the run reads its task and no more."""
    runs: list[endtask.Settings] = []

    def execute(run: Run, **_: Any) -> None:
        run.check()
        runs.append(run.settings)

    monkeypatch.setattr(Run, "execute", execute)
    monkeypatch.setattr(fit_module, "load", lambda folder: folder)
    monkeypatch.chdir(tmp_path)
    return runs


@pytest.mark.slow
def test_data_in_memory_gives_the_bits_of_a_run_on_files(
    splits: dict[str, pd.DataFrame], toy: Path, finished_run: Path, tmp_path: Path
) -> None:
    corpus = [row["text"] for row in table(toy / "corpus.jsonl")]
    model = endtask.fit(splits, corpus, output=tmp_path / "run", **settings_of(toy))
    named = ("model/README.md", PREDICTIONS_TABLE)  # hold the name of the task
    expected = {name: value for name, value in results(finished_run).items() if name not in named}
    found = {name: value for name, value in results(model.folder).items() if name not in named}
    assert found == expected
    tables = [pq.read_table(folder / PREDICTIONS_TABLE) for folder in (model.folder, finished_run)]
    assert tables[0].equals(tables[1])
    assert hashes(model.folder / "data", "[td]*") == hashes(toy / "task")
    by_files = endtask.load(finished_run)
    assert model.evaluate() == by_files.evaluate()
    assert model.explain("train-3") == by_files.explain("train-3")
    before = hashes(model.folder, "*/manifest.json")
    again = endtask.fit(splits, corpus, output=tmp_path / "run", **settings_of(toy))
    assert hashes(again.folder, "*/manifest.json") == before  # finished stages were skipped


def test_equal_calls_share_a_folder(splits: dict[str, Any], untrained: list[endtask.Settings]) -> None:
    as_frames = endtask.fit(splits, budget="6steps")
    as_sets = endtask.fit(datasets.DatasetDict({name: datasets.Dataset.from_pandas(frame) for name, frame in splits.items()}),
                          budget="6steps")  # fmt: skip
    assert as_frames == as_sets
    assert str(as_frames).startswith("runs/data-")  # type: ignore[call-overload]
    assert endtask.fit(splits, budget="7steps") != as_frames
    assert endtask.fit({**splits, "test": splits["test"][1:]}, budget="6steps") != as_frames
    assert endtask.fit(splits, ["A text."], budget="6steps") != as_frames


def test_paths_stay_where_they_are(toy: Path, untrained: list[endtask.Settings]) -> None:
    folder = Path(str(endtask.fit(toy / "task", toy / "corpus.jsonl")))
    assert folder.name.startswith("task-")
    assert not folder.exists()
    assert untrained[0].task.path == str(toy / "task")
    assert [source.path for source in untrained[0].corpus.sources] == [str(toy / "corpus.jsonl")]


def test_arguments_become_settings(splits: dict[str, Any], untrained: list[endtask.Settings]) -> None:
    renamed = {name: frame.rename(columns={"text": "abstract"}) for name, frame in splits.items()}
    columns, select = {"text": "abstract"}, {"name": "dsir"}
    endtask.fit(
        renamed, ["A text."] * 2, columns=columns, select=select, preset="laptop", budget="60s", output="mine", seed=3
    )
    (found,) = untrained
    expected = endtask.load_settings(
        preset="laptop",
        given={
            "task": {"path": "mine/data", "columns": columns},
            "corpus": {"sources": [{"path": "mine/data/corpus.jsonl", "name": "corpus"}]},
            "select": select,
            "budget": "60s",
            "output_dir": "mine",
            "seed": 3,
        },
    )
    assert found == expected
    assert endtask.load_settings("mine/settings.yaml") == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"selct": {"name": "dsir"}}, r"key 'selct': unknown setting \(did you mean 'select'\?\)"),
        ({"select": {"name": "dsri"}}, "did you mean 'dsir'"),
        ({"budget": "10 parsecs"}, "key 'budget'"),
        ({"columns": {"txt": "a"}}, r"key 'task.columns.txt': unknown setting \(did you mean 'task.columns.text'"),
        ({"columns": {"text": "abstract"}}, r"data\['train'\]: no column 'abstract' for task.columns.text"),
        ({"output_dir": "mine"}, r"key 'output_dir': has an argument of its own \(give output=...\)"),
        ({"task": {"path": "a"}}, r"key 'task.path': has an argument of its own \(give data\)"),
        ({"preset": "lapptop"}, "did you mean 'laptop'"),
        ({"finetune": {"window_stride": 4}, "task": {"type": "pair"}}, "data"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    splits: dict[str, Any], untrained: list[endtask.Settings], tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(endtask.InputError, match=message):
        endtask.fit(splits, **{"budget": "6steps", **arguments})
    assert untrained == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_wrong_row_is_named_by_its_number(splits: dict[str, Any], untrained: list[endtask.Settings]) -> None:
    wrong = {**splits, "dev": pd.DataFrame({"text": ["a", "b"], "label": ["food", None]})}
    with pytest.raises(endtask.InputError, match=r"^data\['dev'\], row 2: the label is missing$"):
        endtask.fit(wrong)
    with pytest.raises(endtask.InputError, match=r"^data, row 2: the label is missing"):
        endtask.fit((["a", "b", "c"], ["x", None, "y"]))


def test_a_split_without_labels_is_left_out(splits: dict[str, Any], untrained: list[endtask.Settings]) -> None:
    hidden = {**splits, "test": splits["test"].assign(label=None)}
    folder = Path(str(endtask.fit(hidden)))
    assert sorted(path.name for path in (folder / "data").iterdir()) == ["dev.jsonl", "train.jsonl"]
