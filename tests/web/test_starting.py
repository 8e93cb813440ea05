"""Uploads, previews and new runs; the process of a run is a stub."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from endtask.config import load_settings
from endtask.web import jobs, uploads
from endtask.web.security import Access
from tests.web.conftest import client_of

ROWS = "".join(f'{n},"a text, number {n}",{"even" if n % 2 == 0 else "odd"}\n' for n in range(60))
CSV = "nr,abstract,area\n" + ROWS


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(jobs.Jobs, "start", lambda self, folder, *options: (folder / "started").touch())
    (tmp_path / "runs").mkdir()
    return client_of(tmp_path / "runs")


def upload(client: TestClient, name: str = "labels.csv", content: str = CSV) -> str:
    answer = client.post("/api/uploads", params={"name": name}, content=content.encode())
    assert answer.status_code == 200
    return str(answer.json()["id"])


def test_a_dropped_file_becomes_a_run(client: TestClient, tmp_path: Path) -> None:
    number, text = upload(client), upload(client, "more text.txt", "some text\n")
    preview = client.post("/api/first-rows", json={"upload": number}).json()
    assert preview["columns"] == ["nr", "abstract", "area"]
    assert preview["rows"][1] == ["1", "a text, number 1", "odd"]
    assert preview["used"] == {"text": "abstract", "text_pair": None, "label": "area"}
    assert (preview["problem"], preview["summary"][:7]) == (None, "60 rows")
    new = {"name": "mine", "upload": number, "columns": preview["used"], "budget": "30s", "corpus": [text]}
    answer = client.post("/api/runs", json=new)
    assert (answer.status_code, answer.json()) == (201, {"id": "mine"})
    assert (tmp_path / "runs" / "mine" / "started").exists()
    settings = load_settings(tmp_path / "runs" / "mine" / "settings.yaml")
    assert (str(settings.budget), settings.task.columns.text) == ("30s", "abstract")
    assert Path(settings.task.path).read_text() == CSV
    assert [Path(source.path).name for source in settings.corpus.sources] == ["more-text.txt"]
    again = client.post("/api/runs", json=new)
    assert again.status_code == 409
    assert "choose another name" in again.json()["detail"]


def test_a_preview_says_what_is_missing(client: TestClient) -> None:
    number = upload(client)
    found = client.post("/api/first-rows", json={"upload": number, "columns": {"text": "nothing"}}).json()
    assert "nothing" in found["problem"]
    assert found["columns"] == ["nr", "abstract", "area"]
    broken = upload(client, "broken.csv", 'a,b\n"1,2\n')
    assert client.post("/api/first-rows", json={"upload": broken}).status_code == 422


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "../outside"}, 422),
        ({"name": ".hidden"}, 422),
        ({"name": "-x"}, 422),
        ({"budget": "soon"}, 422),
        ({"upload": "0" * 16}, 422),
        ({"upload": "../../etc/passwd"}, 422),
        ({"preset": "/etc/passwd"}, 422),
        ({"corpus_path": "s3://bucket/x"}, 422),
        ({"corpus_path": "hf:owner/name"}, 422),
        ({"corpus_path": "no/such/file.txt"}, 422),
        ({"columns": {"label": "abstract", "text": "area"}}, 422),
        ({"more": 1}, 422),
    ],
)
def test_wrong_values_start_nothing(client: TestClient, tmp_path: Path, change: dict[str, object], code: int) -> None:
    new = {"name": "mine", "upload": upload(client), "columns": {"text": "abstract", "label": "area"}, "budget": "30s"}
    assert client.post("/api/runs", json=new | change).status_code == code
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == [uploads.FOLDER]


def test_with_a_token_no_path_of_the_server_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.Jobs, "start", lambda self, folder, *options: None)
    (tmp_path / "runs").mkdir()
    (tmp_path / "secret.txt").write_text("secret text\n")
    token = "0123456789abcdef"
    client = client_of(tmp_path / "runs", access=Access(token))
    client.headers["authorization"] = f"Bearer {token}"
    new = {"name": "mine", "upload": upload(client), "budget": "30s", "corpus_path": str(tmp_path / "secret.txt")}
    answer = client.post("/api/runs", json=new)
    assert answer.status_code == 422
    assert "without a token" in answer.json()["detail"]


def test_uploads_have_limits(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("program.exe", "noname", "", "../.csv"):
        assert client.post("/api/uploads", params={"name": name}, content=b"x").status_code == 422
    monkeypatch.setattr(uploads, "MOST_BYTES", 10)
    answer = client.post("/api/uploads", params={"name": "a.csv"}, content=b"x" * 11)
    assert answer.status_code == 413
    assert list((tmp_path / "runs" / uploads.FOLDER).iterdir()) == []


def test_changes_need_the_csrf_token(client: TestClient) -> None:
    del client.headers["x-csrf-token"]
    for address in ("/api/uploads?name=a.csv", "/api/first-rows", "/api/runs"):
        assert client.post(address, json={}).status_code == 403
