"""Search in the selection against a loop over its rows; exclusions in the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from endtask.config import load_settings
from endtask.io.processes import run_lock
from endtask.reporting.run_folder import RunFolder

ADDRESS = "/api/runs/run/passages"


def matching(run: Path, words: str, least: float, label: str) -> list[str]:
    """The ids of passages that pass, best rank first, by a loop."""
    labels = {row["id"]: row["label"] for row in RunFolder(run).examples("train")}
    rows = sorted(RunFolder(run).selected(), key=lambda row: (row.rank, -row.score, row.position))
    return [
        row.document.id
        for row in rows
        if all(word.lower() in f"{row.document.text}\n{row.document.id}".lower() for word in words.split())
        and row.score >= least
        and (not label or labels[row.matched_queries[0]] == label)
    ]


@pytest.mark.parametrize(
    ("words", "least", "label"),
    [
        ("", 0, ""),
        ("SOUP", 0, ""),
        ("soup bread", 0, ""),
        ("no such word", 0, ""),
        ("", 2.0, "food"),
        ("star", 0, "food"),
    ],
)
def test_search_finds_what_a_loop_finds(
    client: TestClient, finished_run: Path, words: str, least: float, label: str
) -> None:
    expected = matching(finished_run, words, least, label)
    query: dict[str, Any] = {"words": words, "least_score": least, "label": label, "limit": 5}
    first = client.get(ADDRESS, params=query).json()
    second = client.get(ADDRESS, params={**query, "offset": 5}).json()
    assert first["matching"] == len(expected)
    assert [one["id"] for one in first["passages"] + second["passages"]] == expected[:10]


def test_texts_are_whole_with_marked_words(client: TestClient, finished_run: Path) -> None:
    texts = {row.document.id: row.document.text for row in RunFolder(finished_run).selected()}
    for passage in client.get(ADDRESS).json()["passages"]:
        assert "".join(span["text"] for span in passage["text"]) == texts[passage["id"]]
        assert passage["query_id"].startswith("train-")


def test_why_names_the_words_of_the_best_query(client: TestClient) -> None:
    passage = client.get(ADDRESS).json()["passages"][0]
    why = client.get("/api/runs/run/why", params={"passage": passage["id"]}).json()
    best = why["queries"][0]
    assert (why["selected"], best["id"]) == (True, passage["query_id"])
    assert sum(word["score"] for word in best["words"]) == pytest.approx(passage["score"], rel=1e-3)
    assert client.get("/api/runs/run/why", params={"passage": "nothing"}).status_code == 422


def test_exclusions_are_written_to_the_settings_and_taken_back(own_client: TestClient, own_run: Path) -> None:
    ids = [one["id"] for one in own_client.get(ADDRESS).json()["passages"][:2]]
    before = load_settings(own_run / "settings.yaml")
    for name in ids:
        own_client.post("/api/runs/run/exclude", json={"ids": [name]})
    after = load_settings(own_run / "settings.yaml")
    assert after.corpus.exclude == tuple(ids)
    assert after.model_copy(update={"corpus": before.corpus}) == before
    assert [one["excluded"] for one in own_client.get(ADDRESS).json()["passages"][:3]] == [True, True, False]
    page = own_client.get("/runs/run/selection").text
    assert 'id="pending" class="message">' in page
    back = own_client.post("/api/runs/run/exclude", json={"ids": ids, "exclude": False})
    assert back.json() == {"excluded": []}
    assert load_settings(own_run / "settings.yaml") == before
    assert 'id="pending" class="message" hidden>' in own_client.get("/runs/run/selection").text


def test_nothing_is_excluded_while_the_run_goes_on(own_client: TestClient, own_run: Path) -> None:
    with run_lock(own_run):
        answer = own_client.post("/api/runs/run/exclude", json={"ids": ["corpus/1"]})
    assert answer.status_code == 422
    assert "another process works on this run" in answer.json()["detail"]


def test_a_run_without_a_corpus_has_no_texts(finished_pair_run: Path) -> None:
    from tests.web.conftest import client_of

    with client_of(finished_pair_run) as client:
        name = finished_pair_run.name
        assert client.get(f"/api/runs/{name}/passages").json()["total"] == 0
        assert client.get(f"/runs/{name}/selection").status_code == 200
