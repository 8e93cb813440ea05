"""Who may do what: Host, token, origin, CSRF token, and the headers of every answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from endtask.errors import InputError
from endtask.web.app import make_app
from endtask.web.security import Access
from tests.web.conftest import ADDRESS

TOKEN = "0123456789abcdef-secret"


def plain_client(folder: Path, access: Access | None = None, base: str = ADDRESS) -> TestClient:
    return TestClient(make_app(folder, access), base_url=base)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[TestClient]:
    with plain_client(tmp_path) as client:
        yield client


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "LOCALHOST"])
def test_names_of_the_loopback_address_are_served(empty: TestClient, host: str) -> None:
    assert empty.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1", "", "[::1", "localhost@evil"])
def test_other_names_are_refused(empty: TestClient, host: str) -> None:
    assert empty.get("/", headers={"host": host}).status_code == 400


def test_every_answer_has_the_policy(empty: TestClient) -> None:
    for answer in (empty.get("/"), empty.get("/nothing"), empty.get("/", headers={"host": "evil.example"})):
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_have_neither_inline_scripts_nor_inline_styles(client: TestClient) -> None:
    pages = ("live", "selection", "errors", "try")
    for path in ("/", "/start", "/compare?run=run&run=run", *(f"/runs/run/{page}" for page in pages)):
        text = client.get(path).text
        assert "<script" in text or path.startswith("/compare")
        assert "<script>" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        assert "http://" not in text
        assert "https://" not in text


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer {TOKEN}",
        f"bearer {TOKEN}",
        "Basic " + base64.b64encode(f"anyone:{TOKEN}".encode()).decode(),
    ],
)
def test_the_token_opens_everything(tmp_path: Path, header: str) -> None:
    client = plain_client(tmp_path, Access(TOKEN))
    for path in ("/", "/api/runs", "/static/pages.css", "/api/openapi.json"):
        assert client.get(path, headers={"authorization": header}).status_code == 200


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic ????", f"Digest {TOKEN}", f"Bearer {TOKEN}x"])
def test_without_the_token_nothing_is_answered(tmp_path: Path, header: str) -> None:
    client = plain_client(tmp_path, Access(TOKEN))
    for path in ("/", "/api/runs", "/static/pages.css", "/api/openapi.json", "/nothing"):
        answer = client.get(path, headers={"authorization": header})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")


def test_with_a_token_addresses_and_given_names_are_served(tmp_path: Path) -> None:
    authorization = {"authorization": f"Bearer {TOKEN}"}
    client = plain_client(tmp_path, Access(TOKEN, frozenset(["tlm.example"])))
    codes = [
        client.get("/", headers={**authorization, "host": host}).status_code
        for host in ("10.0.0.1:80", "tlm.example", "evil.example")
    ]
    assert codes == [200, 200, 400]


def test_other_machines_need_a_long_token() -> None:
    Access().check_address("127.0.0.1")
    Access(TOKEN).check_address("0.0.0.0")
    with pytest.raises(InputError, match=r"--host 0\.0\.0\.0: other machines .* needs a token"):
        Access().check_address("0.0.0.0")
    with pytest.raises(InputError, match="the token has 5 characters"):
        Access("short").check_address("127.0.0.1")
    with pytest.raises(InputError, match="the token has 0 characters"):
        Access("").check_address("127.0.0.1")


def change(client: TestClient, **headers: str | bytes) -> int:
    """Send a change; a request that passes the checks gets 404, since nothing has this address."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/api/nothing", json={}, headers=names).status_code


def test_changes_need_the_csrf_token_and_the_same_origin(empty: TestClient) -> None:
    csrf = empty.get("/api/session").json()["csrf"]
    assert change(empty, x_csrf_token=csrf) == 404
    assert change(empty, x_csrf_token=csrf, origin=ADDRESS, sec_fetch_site="same-origin") == 404
    assert change(empty) == 403
    assert change(empty, x_csrf_token="wrong") == 403
    assert change(empty, x_csrf_token="ä".encode()) == 403
    for origin in ("http://evil.example", "null", "http://localhost:9999", "http://[", ""):
        assert change(empty, x_csrf_token=csrf, origin=origin) == 403
    for site in ("cross-site", "same-site"):
        assert change(empty, x_csrf_token=csrf, sec_fetch_site=site) == 403


def test_the_csrf_token_is_that_of_the_pages_and_of_one_server(tmp_path: Path, empty: TestClient) -> None:
    csrf = empty.get("/api/session").json()["csrf"]
    assert f'name="csrf-token" content="{csrf}"' in empty.get("/").text
    assert plain_client(tmp_path).get("/api/session").json()["csrf"] != csrf


def test_predictions_need_the_same_origin_only(client: TestClient) -> None:
    def send(**headers: str) -> int:
        content = {"texts": ["soup"]}
        return client.post("/api/runs/run/predict", json=content, headers={"x-csrf-token": "", **headers}).status_code

    assert send() == 200
    assert send(origin="http://evil.example") == 403
