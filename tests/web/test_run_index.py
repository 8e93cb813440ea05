"""Ids of runs stand for folders and never become paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from endtask.web.run_index import RunIndex, UnknownRun, run_id


def make_runs(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).mkdir(parents=True)
        (root / path / "settings.yaml").write_text("")


def test_every_run_has_its_own_id(tmp_path: Path) -> None:
    paths = ("a/b", "a~b", "a=7Eb", "a~", "~b", "c~/d", "c/~d")
    make_runs(tmp_path, *paths)
    index = RunIndex(tmp_path)
    folders = index.folders()
    assert sorted(folders.values()) == sorted(tmp_path / path for path in paths)
    assert all(index.folder(name) == folder for name, folder in folders.items())


def test_a_run_that_is_made_or_deleted_later_is_noticed(tmp_path: Path) -> None:
    index = RunIndex(tmp_path)
    with pytest.raises(UnknownRun):
        index.folder("a")
    make_runs(tmp_path, "a")
    assert index.folder("a") == tmp_path / "a"
    (tmp_path / "a" / "settings.yaml").unlink()
    (tmp_path / "a").rmdir()
    with pytest.raises(UnknownRun):
        index.folder("a")


def test_the_served_folder_may_be_a_run(tmp_path: Path) -> None:
    make_runs(tmp_path, "one")
    assert RunIndex(tmp_path / "one").folder("one") == tmp_path / "one"


@pytest.mark.parametrize(
    "name", ["..", "../outside", "..~outside", "%2e%2e~outside", "/etc", "inside~..~..~outside", "link", "", "a\0"]
)
def test_nothing_leaves_the_served_folder(tmp_path: Path, name: str) -> None:
    make_runs(tmp_path, "outside", "root/inside")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UnknownRun):
        RunIndex(tmp_path / "root").folder(name)
    assert run_id(tmp_path / "root" / "inside", tmp_path / "root") == "inside"


@pytest.mark.parametrize(
    "path",
    [
        "/runs/..%2f..%2fetc%2fpasswd/try",
        "/runs/%2e%2e/try",
        "/runs/..~..~etc/try",
        "/static/..%2fapp.py",
        "/static/%2e%2e%2fapp.py",
        "/static/pages.css%00.js",
    ],
)
def test_addresses_with_dots_find_nothing(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404
