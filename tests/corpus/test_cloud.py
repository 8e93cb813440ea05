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

from endtask.config import SourceSettings, resolve
from endtask.corpus import Corpus, cloud
from endtask.errors import InputError
from endtask.executors.base import Job
from endtask.executors.processes import LocalExecutor
from endtask.retrieval.bm25 import shards
from endtask.retrieval.bm25.statistics_pass import ScanSpec, read_corpus
from endtask.task import Task

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
    assert list(Corpus.read(bucket).documents()) == list(Corpus.read(tmp_path / "pile").documents())


def test_files_are_downloaded_when_they_are_read(bucket: str, cache: Path) -> None:
    corpus = Corpus.read(bucket)
    corpus.fingerprint()
    assert (corpus.files_bytes(), list(cache.rglob("*"))) == (37, [])
    next(corpus.documents())
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["news-00.jsonl"]


def test_the_fingerprint_changes_with_the_version(bucket: str) -> None:
    before = Corpus.read(bucket).fingerprint()
    assert Corpus.read(bucket).fingerprint() == before
    put(f"{bucket}/sub/a.txt", b"eerht")
    assert Corpus.read(bucket).fingerprint() != before


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
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match=r"needs the package fsspec \(pip install 'endtask\[cloud\]'\)"):
        Corpus.read(bucket)


@pytest.mark.usefixtures("no_s3fs")
def test_a_missing_package_is_named() -> None:
    with pytest.raises(InputError, match=r"s3://bucket/a\.jsonl: Install s3fs"):
        Corpus.read("s3://bucket/a.jsonl")


def test_a_download_that_ends_early_leaves_nothing(bucket: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = cloud.list_files(f"{bucket}/news-00.jsonl")
    short = cloud.RemoteFile(file.address, file.label, 99, file.key)
    with pytest.raises(InputError, match="16 of 99 bytes arrived"):
        cloud.local_copy(short)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_full_disk_is_named_and_not_the_address(bucket: str) -> None:
    with (
        pytest.raises(InputError, match=r"^/dev: No space left on device"),
        cloud.file_system(f"{bucket}/news-00.jsonl") as (system, path),
    ):
        cloud.download(system, path, Path("/dev/full"), lambda amount: None)


def test_copies_go_where_the_disk_is_full(bucket: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "_MOST_OF_DISK", 0.0)
    assert len(texts(bucket)) == 3
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_errors_name_the_address_and_not_the_copy(bucket: str) -> None:
    put(f"{bucket}/news-01.jsonl", b'{"text": "two"}\n{"text": 5}\n')
    with pytest.raises(InputError, match=r"^memory://.*/news-01\.jsonl, row 2: column 'text' is of type int") as caught:
        texts(bucket)
    assert "downloads" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "s3://KEY:hunter2@bucket/a.jsonl",
        "https://hunter2@host/a.jsonl",
        "https://host/a.jsonl?X-Amz-Signature=hunter2",
        "https://host/a.jsonl?se=2026&sig=hunter2",
    ],
)
def test_credentials_are_refused_and_not_shown(address: str) -> None:
    trees: list[dict[str, Any]] = [{"corpus": {"sources": [{"path": address}]}}, {"task": {"path": address}}]
    for tree in (*trees, {"corpus": {"sources": [address]}}):
        with pytest.raises(InputError, match="holds credentials") as caught:
            resolve(tree)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(InputError, match="holds credentials") as caught:
        Corpus.read(address)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match="holds credentials") as refused:
        SourceSettings(path=address)
    assert "hunter2" not in str(refused.value)


def shards_read(corpus: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run pass 1; return the labels of the files that were read."""
    found: list[str] = []
    run = LocalExecutor.run

    def count(executor: LocalExecutor, module: str, jobs: list[Job], *arguments: Any, **named: Any) -> None:
        found.extend(label for job in jobs for _, label, _ in job["shard"]["files"])
        run(executor, module, jobs, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(LocalExecutor, "run", count)
        patch.setattr(shards, "_LARGE", 1)
        read_corpus(corpus, ScanSpec.of(["one"]), folder, LocalExecutor(1))
    return sorted(found)


def test_new_and_changed_shards_alone_are_read_again(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = ["news-00.jsonl", "news-01.jsonl", "sub/a.txt"]
    assert shards_read(Corpus.read(bucket), tmp_path, monkeypatch) == everything
    assert shards_read(Corpus.read(bucket), tmp_path, monkeypatch) == []
    put(f"{bucket}/news-02.jsonl", b'{"text": "three"}\n')
    assert shards_read(Corpus.read(bucket), tmp_path, monkeypatch) == ["news-02.jsonl"]
    put(f"{bucket}/news-00.jsonl", b'{"text": "eno"}\n')
    assert shards_read(Corpus.read(bucket), tmp_path, monkeypatch) == ["news-00.jsonl"]


@pytest.mark.parametrize(("change", "message"), [("delete", "vanished"), ("replace", "changed")])
def test_a_shard_that_vanishes_or_changes_is_named_and_the_others_are_kept(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    corpus = Corpus.read(bucket)
    path = f"{bucket}/news-01.jsonl"
    if change == "delete":
        fsspec.url_to_fs(path)[0].rm(path)
    else:
        put(path, b'{"text": "six"}\n')
    with pytest.raises(InputError, match=rf"^memory://.*/news-01\.jsonl: {message} since its folder was listed"):
        shards_read(corpus, tmp_path, monkeypatch)
    put(path, b'{"text": "seven"}\n')
    assert shards_read(Corpus.read(bucket), tmp_path, monkeypatch) == ["news-01.jsonl"]


def test_a_task_at_an_address(bucket: str) -> None:
    rows = "text,label\n" + "".join(f"text {number},{'xy'[number % 2]}\n" for number in range(8))
    for split in ("train", "dev", "test"):
        put(f"{bucket}/task/{split}.csv", rows.encode())
    read = Task.read(f"{bucket}/task")
    assert (read.name, {split: len(part) for split, part in read.splits.items()}) == (
        "task",
        {"train": 8, "dev": 8, "test": 8},
    )
    put(f"{bucket}/task/train.csv", rows.encode() + b"another,x\n")
    assert len(Task.read(f"{bucket}/task").train) == 9
    assert Task.read(f"{bucket}/task/train.csv").name == "train"


def test_s3(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        put(f"{s3}/deep/c-{number}.jsonl", b'{"text": "one %d"}\n' % number)
    expected = ["one 0", "one 1", "one 2"]
    assert list(texts(f"{s3}/deep/").values()) == list(texts(f"{s3}/**/c-*.jsonl").values()) == expected
    labels = [f"deep/c-{number}.jsonl" for number in range(4)]
    assert shards_read(Corpus.read(s3), tmp_path / "s", monkeypatch) == labels[:3]
    put(f"{s3}/deep/c-3.jsonl", b'{"text": "one 3"}\n')
    assert shards_read(Corpus.read(s3), tmp_path / "s", monkeypatch) == labels[3:]
    with pytest.raises(InputError, match=f"{s3}/absent: no such file"):
        Corpus.read(f"{s3}/absent")
