"""The example for a CSV file, with a finished run in place of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import endtask
from endtask.api.tables import splits_of
from examples import csv_file


def test_scores_and_mistakes_are_printed(
    toy: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in (toy / "task" / "test.jsonl").read_text().splitlines()]
    pd.DataFrame(rows).to_csv(tmp_path / "labels.csv", index=False)
    calls: list[dict[str, Any]] = []

    def fit(data: Any, **arguments: Any) -> endtask.Model:
        calls.append(arguments)
        assert splits_of(data) == {"train": rows}
        return endtask.load(finished_run)

    monkeypatch.setattr(endtask, "fit", fit)
    csv_file.main([str(tmp_path / "labels.csv"), "notes/*.txt"])
    assert calls == [{"corpus": ["notes/*.txt"], "budget": "10min"}]
    out = capsys.readouterr().out
    model = endtask.load(finished_run)
    wrong = [row for row in rows if model.predict(row["text"]) != row["label"]]
    assert out.startswith(str(model.evaluate()))
    assert out.count("nearest training texts") == min(csv_file.MISTAKES, len(wrong)) > 0
    assert str(finished_run / "report.html") in out
