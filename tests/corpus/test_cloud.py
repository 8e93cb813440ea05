"""Corpora at addresses: local copies of files in memory and on a web server of this computer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from endtask.corpus import Corpus, cloud
from endtask.errors import InputError

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "endtask" / "downloads"


@pytest.fixture
def bucket() -> str:
    """The address of a folder of files in memory."""
    address = f"memory://bucket-{uuid4().hex}/pile"
    put(f"{address}/news-00.jsonl", b'{"text": "one"}\n')
    put(f"{address}/news-01.jsonl", b'{"text": "two"}\n')
    put(f"{address}/sub/a.txt", b"three")
    put(f"{address}/image.png", b"")
    put(f"{address}/.hidden/b.txt", b"hidden")
    return address


def put(address: str, content: bytes) -> None:
    with fsspec.open(address, "wb") as file:
        file.write(content)


def texts(path: str) -> dict[str, str]:
    return {document.id: document.text for document in Corpus.read(path).documents()}


def test_a_folder(bucket: str) -> None:
    assert texts(bucket) == {
        "news/news-00.jsonl#1": "one",
        "news/news-01.jsonl#1": "two",
        "pile/sub/a.txt": "three",
    }
    assert [source.unread for source in Corpus.read(bucket).sources] == [("image.png",), ()]


def test_globs_and_files(bucket: str) -> None:
    assert texts(f"{bucket}/news-*.jsonl") == {"news/news-00.jsonl#1": "one", "news/news-01.jsonl#1": "two"}
    assert texts(f"mine={bucket}/sub/a.txt") == {"mine/a.txt": "three"}
    assert texts(f"{bucket}/**/*.txt") == {"pile/sub/a.txt": "three"}


def test_the_corpus_is_that_of_local_files(bucket: str, tmp_path: Path) -> None:
    for name in ("news-00.jsonl", "news-01.jsonl", "sub/a.txt"):
        path = tmp_path / "pile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fsspec.open(f"{bucket}/{name}").open().read())
    assert Corpus.read(bucket).fingerprint() == Corpus.read(tmp_path / "pile").fingerprint()


def test_files_are_downloaded_once_and_again_when_they_change(
    bucket: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = texts(bucket)
    with monkeypatch.context() as patch:
        patch.setattr(cloud, "bar", lambda *_, **__: pytest.fail("downloaded again"))
        assert texts(bucket) == before
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 3
    put(f"{bucket}/news-00.jsonl", b'{"text": "another"}\n')
    assert texts(bucket)["news/news-00.jsonl#1"] == "another"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a web server of this computer."""
    pytest.importorskip("aiohttp")
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "from the web"}\n')

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_the_web(server: str) -> None:
    assert texts(f"{server}/a.jsonl") == {"a/a.jsonl#1": "from the web"}
    with pytest.raises(InputError, match=r"absent\.jsonl: no such file"):
        Corpus.read(f"{server}/absent.jsonl")


def test_errors_are_one_line(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for address, message in [
        (f"{bucket}/absent.jsonl", "no such file"),
        (f"{bucket}/image.png", "no file of a known kind"),
        (f"{bucket}/*.csv", "no file"),
        ("klingon://a/b.jsonl", "cannot be reached"),
        ("http://127.0.0.1:1/a.jsonl", "no such file|cannot be reached"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            Corpus.read(address)
        assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InputError, match=r"s3://bucket/a\.jsonl: Install s3fs"):
        Corpus.read("s3://bucket/a.jsonl")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match=r"needs the package fsspec \(pip install 'endtask\[cloud\]'\)"):
        Corpus.read(bucket)


def test_a_download_that_ends_early_leaves_nothing(bucket: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = cloud.list_files(f"{bucket}/news-00.jsonl")
    short = cloud.RemoteFile(file.address, file.label, 99, file.key)
    with pytest.raises(InputError, match="16 of 99 bytes arrived"):
        cloud.local_copy(short)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
