"""Wrong rows, right labels that users mark, and the corrected rows as a task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from endtask.task import Task
from tests.web.conftest import client_of

LABELS = "/api/runs/run/labels"


def wrong(run: Path) -> dict[str, tuple[str, str]]:
    """The label and the prediction of the wrong rows of test, by id."""
    import pyarrow.parquet as parquet

    rows = parquet.read_table(run / "evaluate" / "predictions.parquet").to_pylist()
    return {row["id"]: (row["label"], row["predicted"]) for row in rows if row["split"] == "test" and not row["right"]}


def test_a_cell_has_its_rows(client: TestClient, finished_run: Path) -> None:
    expected = wrong(finished_run)
    assert expected
    assert client.get("/api/runs/run/errors").json()["count"] == len(expected)
    for label, predicted in set(expected.values()):
        found = client.get("/api/runs/run/errors", params={"label": label, "predicted": predicted}).json()
        ids = {row["id"] for row in found["rows"]}
        assert ids == {name for name, pair in expected.items() if pair == (label, predicted)}
        page = client.get("/runs/run/errors", params={"label": label, "predicted": predicted}).text
        assert all(f'data-id="{name}"' in page for name in ids)


def test_the_corrected_rows_are_a_task(own_client: TestClient, own_run: Path, tmp_path: Path) -> None:
    name, (label, _) = next(iter(wrong(own_run).items()))
    right = "food" if label != "food" else "space"
    marks = own_client.put(LABELS, json={"split": "test", "id": name, "label": right}).json()
    assert marks == {"corrections": [{"split": "test", "id": name, "label": right}]}
    assert own_client.get(LABELS).json() == marks
    (tmp_path / "corrected").mkdir()
    for split in ("train", "dev", "test"):
        answer = own_client.get(f"/api/runs/run/corrected/{split}.csv")
        assert answer.headers["content-disposition"] == f'attachment; filename="{split}.csv"'
        (tmp_path / "corrected" / f"{split}.csv").write_text(answer.text, encoding="utf-8")
    task = Task.read(tmp_path / "corrected")
    for split, examples in task.splits.items():
        rows = [json.loads(line) for line in (own_run / "read" / f"{split}.jsonl").read_text().splitlines()]
        expected = {row["text"]: right if row["id"] == name else row["label"] for row in rows}
        assert {example.text: example.label for example in examples} == expected
    assert own_client.put(LABELS, json={"split": "test", "id": name, "label": None}).json() == {"corrections": []}


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ({"split": "test", "id": "nothing", "label": "food"}, "no row 'nothing' in test"),
        ({"split": "tset", "id": "test-1", "label": "food"}, "did you mean 'test'"),
        ({"split": "test", "id": "test-1", "label": "foot"}, "did you mean 'food'"),
    ],
)
def test_wrong_marks_are_refused(own_client: TestClient, mark: dict[str, str], reason: str) -> None:
    answer = own_client.put(LABELS, json=mark)
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]
    assert own_client.get("/api/runs/run/corrected/nothing.csv").status_code == 422


def test_a_run_that_is_not_evaluated_has_a_page(own_run: Path) -> None:
    import shutil

    for stage in ("evaluate", "model"):
        shutil.rmtree(own_run / stage)
    with client_of(own_run.parent) as client:
        assert "not been evaluated" in client.get("/runs/run/errors").text
        assert client.get("/api/runs/run/errors").status_code == 422
