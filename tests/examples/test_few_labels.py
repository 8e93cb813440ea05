"""The example with few labels, with a finished run in place of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import endtask
from examples import few_labels


def test_each_number_of_labels_has_a_score_on_the_same_test_rows(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pd.DataFrame({"text": [f"text {n}" for n in range(350)], "label": list("ab") * 175}).to_csv(tmp_path / "labels.csv")
    splits: list[dict[str, pd.DataFrame]] = []

    def fit(data: Any, **_: Any) -> endtask.Model:
        splits.append(data)
        return endtask.load(finished_run)

    monkeypatch.setattr(endtask, "fit", fit)
    few_labels.main([str(tmp_path / "labels.csv")])
    assert [len(data["train"]) for data in splits] == [50, 100]
    small, large = (set(data["train"]["text"]) for data in splits)
    test = {text for data in splits for text in data["test"]["text"]}
    assert small < large
    assert len(test) == few_labels.TEST_ROWS
    assert not test & large
    assert [
        line.split(" labels: ")[0].strip() for line in capsys.readouterr().out.splitlines() if " labels: " in line
    ] == ["50", "100"]
