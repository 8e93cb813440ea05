"""The API for predictions, against the predictor."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from endtask.serving.predictor import load
from endtask.web.predictions import LONGEST_TEXT, MOST_TEXTS
from tests.web.conftest import client_of

ADDRESS = "/api/runs/run/predict"


def test_predictions_are_those_of_the_predictor(client: TestClient, finished_run: Path) -> None:
    texts = ["soup bread", "star " * 60, "<b>team</b>", "", "ball \N{SNOWMAN}"]
    expected = [asdict(answer) for answer in load(finished_run).predict(texts)]
    answer = client.post(ADDRESS, json={"texts": texts}).json()
    assert [entry["label"] for entry in answer["predictions"]] == [entry["label"] for entry in expected]
    for entry, other in zip(answer["predictions"], expected, strict=True):
        assert entry["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    assert answer["milliseconds"] > 0


def test_pairs_have_two_texts(finished_pair_run: Path) -> None:
    with client_of(finished_pair_run) as client:
        name = finished_pair_run.name
        assert "Second text" in client.get(f"/runs/{name}/try").text
        answer = client.post(f"/api/runs/{name}/predict", json={"texts": [["soup", "bread"]]})
        assert len(answer.json()["predictions"]) == 1
        wrong = client.post(f"/api/runs/{name}/predict", json={"texts": ["soup"]})
        assert wrong.status_code == 422
        assert "text 1 has no second text" in wrong.json()["detail"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"texts": "soup"}',
        b'{"texts": []}',
        b'{"texts": [1]}',
        b'{"texts": [null]}',
        b'{"texts": [NaN]}',
        b'{"texts": ["\\ud800"]}',
        b'{"texts": [["a", "b"]]}',
        b'{"texts": [["a", "b", "c"]]}',
        b'{"texts": [[]]}',
        b'{"texts": ["a"], "more": 1}',
        b'{"texts": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"texts": [' + b"9" * 5000 + b"]}",
        json.dumps({"texts": ["a"] * (MOST_TEXTS + 1)}).encode(),
        json.dumps({"texts": ["a" * (LONGEST_TEXT + 1)]}).encode(),
    ],
)
def test_wrong_content_is_a_client_error(client: TestClient, content: bytes) -> None:
    answer = client.post(ADDRESS, content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert isinstance(answer.json()["detail"], str)
    assert len(answer.json()["detail"]) < 300


def test_a_request_that_is_too_large_is_refused_before_it_is_read(client: TestClient) -> None:
    assert client.post(ADDRESS, content=b"x" * 1_000_001).status_code == 413

    def parts() -> Any:
        for _ in range(30):
            yield b"x" * 100_000

    assert client.post(ADDRESS, content=parts()).status_code == 413


def test_forms_are_not_taken_for_json(client: TestClient) -> None:
    """A form of another site is sent without a question to the server; JSON is not."""
    answer = client.post(ADDRESS, content=b'{"texts": ["a"]}', headers={"content-type": "text/plain"})
    assert answer.status_code == 422


def test_a_run_without_a_model_says_so(own_run: Path) -> None:
    shutil.rmtree(own_run / "model")
    with client_of(own_run.parent) as client:
        answer = client.post(ADDRESS, json={"texts": ["a"]})
        assert answer.status_code == 422
        assert "no trained model here" in answer.json()["detail"]
        assert str(own_run.parent) not in answer.text


def test_an_unknown_run_is_named_with_the_nearest(client: TestClient) -> None:
    answer = client.post("/api/runs/runn/predict", json={"texts": ["a"]})
    assert (answer.status_code, answer.json()["detail"]) == (404, "no run 'runn' (did you mean 'run'?)")
