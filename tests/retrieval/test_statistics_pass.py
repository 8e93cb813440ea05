"""Pass 1 reads each shard once, in this process or in others, and again after damage and changes."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from endtask.config import CorpusSettings, SourceSettings
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.executors.processes import LocalExecutor
from endtask.progress import set_quiet
from endtask.retrieval.bm25 import shards
from endtask.retrieval.bm25 import statistics_pass as pass_one
from endtask.retrieval.bm25.join import JoinedCorpus
from endtask.retrieval.bm25.statistics_pass import ScanSpec, read_corpus
from tests.corpus.dumps import DumpPage, official
from tests.retrieval.corpora import all_passages, text_corpus, write_rows, zipf_texts

ASKED = ScanSpec.of(["w0", "w1", "w7", "absent"], ["w3 w3 w3"])
TEXTS = zipf_texts(300, words=50, longest=12, seed=1)


@pytest.fixture(autouse=True)
def one_file_per_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    set_quiet(True)
    monkeypatch.setattr(shards, "_LARGE", 1)


def corpus_in(folder: Path) -> Corpus:
    """Four files, the largest first."""
    return text_corpus(folder, TEXTS, cuts=[150, 220, 270])


def read(corpus: Corpus, folder: Path, *, workers: int = 1, asked: ScanSpec = ASKED) -> JoinedCorpus:
    return read_corpus(corpus, asked, folder, LocalExecutor(workers))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("*/*"))}


def times(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_ino, (path / "shard.json").stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.is_dir() and (path / "shard.json").exists()
    }


@pytest.fixture
def others_at_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for shards; this process does nothing before another one has finished a shard in it."""
    folder = tmp_path / "others"
    handle = pass_one.handle

    def patient(job: dict[str, Any], report: Any) -> None:
        end = time.monotonic() + 100
        while not any(folder.glob("*/shard.json")) and time.monotonic() < end:
            time.sleep(0.01)
        handle(job, report)

    monkeypatch.setattr(pass_one, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(pass_one, "handle", patient)
    return folder


def test_other_processes_find_the_same(others_at_work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_in(tmp_path / "corpus")
    there = read(corpus, others_at_work, workers=2)
    monkeypatch.undo()
    monkeypatch.setattr(shards, "_LARGE", 1)
    here = read(corpus, tmp_path / "here")
    assert len(here.shards) == 4
    assert contents(others_at_work) == contents(tmp_path / "here")
    assert there.statistics == here.statistics
    np.testing.assert_array_equal(there.document_frequency, here.document_frequency)
    assert all_passages(there, tmp_path / "a") == all_passages(here, tmp_path / "b")


def break_file(path: Path, how: str) -> tuple[Path, str]:
    """Damage a file of the corpus; returns its path and the complaint to expect."""
    content = path.read_bytes()
    if how == "cut off":
        path.unlink()
        path = path.with_suffix(".jsonl.zst")
        whole = zstandard.ZstdCompressor(level=1).compress(content)
        path.write_bytes(whole[: len(whole) // 2])
        return (
            path,
            rf"^{path}, row \d+: the file is cut off \(copy or download it again; corpus\.on_error=skip leaves it out\)$",
        )
    lines = content.splitlines()
    lines[2] = b'{"id": "x", "text": '
    path.write_bytes(b"\n".join(lines))
    return path, rf"^{path}, row 3: not valid JSON: .*\(one object per line; corpus\.on_error=skip leaves it out\)$"


@pytest.mark.parametrize("how", ["cut off", "bad row"])
@pytest.mark.parametrize("workers", [1, 2])
def test_one_bad_shard_is_named_and_the_others_are_kept(
    how: str, workers: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "shards" if workers == 1 else request.getfixturevalue("others_at_work")
    corpus_in(tmp_path / "corpus")
    good = (tmp_path / "corpus" / "c-01.jsonl").read_bytes()
    bad, complaint = break_file(tmp_path / "corpus" / "c-01.jsonl", how)
    with pytest.raises(InputError, match=complaint):
        read(Corpus.read(tmp_path / "corpus"), folder, workers=workers)
    kept = times(folder)
    assert len(kept) == 3
    bad.unlink()
    (tmp_path / "corpus" / "c-01.jsonl").write_bytes(good)
    joined = read(Corpus.read(tmp_path / "corpus"), folder, workers=workers)
    assert len(times(folder)) == 4
    assert kept.items() <= times(folder).items(), "what stood there was not read again"
    assert [row["text"] for row in all_passages(joined, tmp_path / "texts")] == list(dict.fromkeys(TEXTS))
    assert not list(folder.glob("*.partial"))


def mixed_folder(folder: Path) -> Path:
    """Files of several formats; some rows and files cannot be read, some files are of no known format."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"text": "w0 w1"}\n{"text": \n{"text": "w1 w7"}\n{"text": "\xff"}\n')
    (folder / "b.md").write_text("---\ntitle: T\n---\nw7 w7 w2")
    (folder / "c.csv.gz").write_bytes(b"cut off")
    (folder / "d.xml.bz2").write_bytes(official([DumpPage(n, f"T{n}", f"w{n} [[w0]] w{n}") for n in range(1, 9)]))
    with zipfile.ZipFile(folder / "e.zip", "w") as archive:
        archive.writestr("x/f.json", '[{"text": "w0 w1"}, {"text": "w3 w4"}, 5]')
        archive.writestr("g.txt", b"w5\n\xff\nw6")
    (folder / "h.png").write_bytes(b"")
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_all_formats_are_counted_and_fetched_as_the_corpus_streams_them(tmp_path: Path, workers: int) -> None:
    pytest.importorskip("mwparserfromhell")
    sources = (SourceSettings(path=str(mixed_folder(tmp_path / "mixed"))),)
    corpus = Corpus.read(CorpusSettings(sources=sources, on_error="skip"))
    streamed = list(corpus.documents())
    joined = read(corpus, tmp_path / "shards", workers=workers)
    assert joined.statistics == corpus.statistics
    assert corpus.statistics.total.skipped == 5
    assert corpus.statistics.total.unread_files == 1
    found = all_passages(joined, tmp_path / "texts", workers=workers)
    assert [(row["id"], row["source"], row["title"], row["text"]) for row in found] == [
        (document.id, document.source, document.title, document.text) for document in streamed
    ]


def test_a_second_call_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_in(tmp_path / "corpus")
    first = read(corpus, tmp_path / "shards")
    monkeypatch.setattr(LocalExecutor, "run", lambda *_, **__: pytest.fail("there is nothing to read"))
    again = read(corpus, tmp_path / "shards")
    assert again.statistics == first.statistics
    assert (again.scored, again.contaminated, again.mean_length) == (
        first.scored,
        first.contaminated,
        first.mean_length,
    )


def test_a_damaged_shard_alone_is_read_again(tmp_path: Path) -> None:
    corpus = corpus_in(tmp_path / "corpus")
    read(corpus, tmp_path / "shards")
    whole = contents(tmp_path / "shards")
    before = times(tmp_path / "shards")
    damaged = sorted(before)[1]
    (tmp_path / "shards" / damaged / "pairs").write_bytes(b"")
    (tmp_path / "shards" / f"{damaged}.123.partial").mkdir()
    read(corpus, tmp_path / "shards")
    after = times(tmp_path / "shards")
    assert {name for name in before if before[name] != after[name]} == {damaged}
    assert contents(tmp_path / "shards") == whole


def test_a_changed_corpus_redoes_only_what_changed(tmp_path: Path) -> None:
    corpus_in(tmp_path / "corpus")
    folder = tmp_path / "shards"
    first = read(Corpus.read(tmp_path / "corpus"), folder)
    before = times(folder)
    write_rows(tmp_path / "corpus" / "c-09.jsonl", [{"id": "new", "text": "w0 of a new file"}])
    more = read(Corpus.read(tmp_path / "corpus"), folder)
    assert before.items() < times(folder).items()
    assert more.scored == first.scored + 1
    (tmp_path / "corpus" / "c-00.jsonl").unlink()
    fewer = read(Corpus.read(tmp_path / "corpus"), folder)
    assert len(times(folder)) == 4, "shards of no more use are removed"
    assert all(before.get(name, place) == place for name, place in times(folder).items())
    assert fewer.statistics.total.documents == len(TEXTS) - 150 + 1


def test_leaving_out_documents_reads_nothing_again(tmp_path: Path) -> None:
    corpus = corpus_in(tmp_path / "corpus")
    first = read(corpus, tmp_path / "shards")
    before = times(tmp_path / "shards")
    less = read(Corpus(corpus.sources, exclude=["c/d0", "c/d299"]), tmp_path / "shards")
    assert times(tmp_path / "shards") == before
    assert less.statistics.total.excluded == 2
    assert less.statistics.total.documents == first.statistics.total.documents


def test_other_words_are_looked_for_anew(tmp_path: Path) -> None:
    corpus = corpus_in(tmp_path / "corpus")
    read(corpus, tmp_path / "shards")
    before = set(times(tmp_path / "shards"))
    joined = read(corpus, tmp_path / "shards", asked=ScanSpec.of(["w1"]))
    assert not before & set(times(tmp_path / "shards"))
    assert joined.document_frequency.tolist() == [sum("w1" in text.split() for text in dict.fromkeys(TEXTS))]


def test_progress_tells_all_that_was_read(tmp_path: Path) -> None:
    corpus = corpus_in(tmp_path / "corpus")
    ASKED.save(tmp_path / "asked.npz")
    told: list[dict[str, int]] = []
    for number, shard in enumerate(shards.shards_of(corpus)):
        spec = [str(tmp_path / "asked.npz"), ASKED.key]
        job = {"shard": shard.to_json(), "folder": str(tmp_path / str(number)), "spec": spec}
        pass_one.handle(job, lambda **numbers: told.append(numbers))
    assert sum(numbers["read"] for numbers in told) == corpus.files_bytes()
    assert sum(numbers["passages"] for numbers in told) == len(TEXTS)
    assert sum(numbers["text"] for numbers in told) == sum(len(text.encode()) for text in TEXTS)
