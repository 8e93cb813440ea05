"""A corpus streams each passage once, in order, with stable ids and correct counts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.config import CorpusSettings, SourceSettings
from endtask.corpus import Corpus, docstrings
from endtask.corpus.corpus import SourceStatistics
from endtask.corpus.formats import text as text_format
from endtask.errors import InputError
from endtask.records import Document


def jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(corpus: Corpus) -> list[str]:
    return [document.text for document in corpus.documents()]


def ids(corpus: Corpus) -> list[str]:
    return [document.id for document in corpus.documents()]


def with_settings(path: Path, **values: Any) -> Corpus:
    return Corpus.read(CorpusSettings(sources=(SourceSettings(path=str(path)),), **values))


def error_of(corpus: Corpus) -> InputError:
    with pytest.raises(InputError) as caught:
        list(corpus.documents())
    assert "\n" not in str(caught.value)
    return caught.value


def test_every_format_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("text\nfrom csv\n")
    (tmp_path / "t.tsv").write_text("content\nfrom tsv\n")
    (tmp_path / "n.txt").write_text("from text\nand more\n")
    (tmp_path / "m.md.gz").write_bytes(gzip.compress(b"from markdown"))
    jsonl(tmp_path / "j.jsonl", {"body": "from jsonl"})
    parquet.write_table(arrow.table({"abstract": ["from parquet"]}), tmp_path / "p.parquet")
    names = ["p.parquet", "c.csv", "t.tsv", "n.txt", "m.md.gz", "j.jsonl"]
    corpus = Corpus.read([tmp_path / name for name in names])
    assert [(document.id, document.text, document.source) for document in corpus.documents()] == [
        ("p/p.parquet#1", "from parquet", "p"),
        ("c/c.csv#2", "from csv", "c"),
        ("t/t.tsv#2", "from tsv", "t"),
        ("n/n.txt", "from text\nand more", "n"),
        ("m/m.md.gz", "from markdown", "m"),
        ("j/j.jsonl#1", "from jsonl", "j"),
    ]


def test_what_a_row_may_carry(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "s.jsonl",
        {
            "text": "a",
            "id": "s/doc#1",
            "title": "T",
            "license": "CC0",
            "source": "ignored",
            "links": [[0, 1]],
        },
        {"text": "b", "id": 7, "title": None, "license": "MIT"},
        {"text": "c", "id": None, "title": ""},
    )
    corpus = Corpus.read(CorpusSettings(sources=(SourceSettings(path=str(path), license="mine"),)))
    assert list(corpus.documents()) == [
        Document("s/doc#1", "a", "s", "T", "CC0"),
        Document("s/7", "b", "s", None, "MIT"),
        Document("s/s.jsonl#3", "c", "s", None, "mine"),
    ]


def test_ids_are_made_unique_by_their_place(tmp_path: Path) -> None:
    row = {"id": "x"}
    path = jsonl(tmp_path / "s.jsonl", {**row, "text": "a"}, {**row, "text": "b"}, {"id": "x~s.jsonl#2", "text": "c"})
    assert ids(Corpus.read(path)) == ["s/x", "s/x~s.jsonl#2", "s/x~s.jsonl#2~s.jsonl#3"]


def test_passage_ids_cannot_collide(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "s.jsonl", {"id": "x#p1", "text": "a"}, {"id": "x", "text": "One two. Three four."})
    assert ids(with_settings(path, passage_characters=12)) == ["s/x#p1", "s/x#p1~s.jsonl#2", "s/x#p2"]


def test_ids_do_not_depend_on_deduplication(tmp_path: Path) -> None:
    rows = [{"id": "x", "text": "a"}, {"id": "x", "text": "a"}, {"id": "x", "text": "b"}]
    path = jsonl(tmp_path / "s.jsonl", *rows)
    every = with_settings(path, deduplicate=False)
    assert {document.text: document.id for document in Corpus.read(path).documents()} == {
        "a": "s/x",
        "b": ids(every)[2],
    }


def test_equal_passages_are_kept_once(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", {"text": "same  text"}, {"text": "other"}, {"text": "same text"})
    jsonl(tmp_path / "b.jsonl", {"text": "\nsame\ntext\n"}, {"text": "Same text"})
    corpus = Corpus.read(tmp_path)
    assert texts(corpus) == ["same  text", "other", "Same text"]
    assert corpus.statistics.to_dict()["a"]["duplicates"] == 1
    assert corpus.statistics.to_dict()["b"]["duplicates"] == 1
    assert len(texts(with_settings(tmp_path, deduplicate=False))) == 5


def test_counts(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", {"text": "é"}, {"text": " \n"}, {"text": "é"}, {"text": "One two. Three four."})
    (tmp_path / "unknown.doc").write_text("")
    corpus = with_settings(tmp_path, passage_characters=12)
    assert corpus.statistics.total == SourceStatistics(unread_files=1)
    list(corpus.documents())
    expected = SourceStatistics(
        documents=3,
        empty=1,
        passages=3,
        duplicates=1,
        bytes=len("éOne two.Three four.".encode()),
        unread_files=1,
    )
    assert corpus.statistics.sources == {"a": replace(expected, first_unread=["unknown.doc"])}
    assert corpus.statistics.total == expected
    list(corpus.documents())
    assert corpus.statistics.total == expected


def test_progress_adds_up(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", *({"text": f"text {number}"} for number in range(50)))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"text"))
    corpus = Corpus.read(tmp_path)
    counts: list[int] = []
    assert len(list(corpus.documents(counts.append))) == 51
    assert sum(counts) == corpus.files_bytes() > 0


def test_reading_is_lazy(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"text": "a"})
    path.write_text(path.read_text() + "broken\n")
    stream = Corpus.read(path).documents()
    assert next(stream).text == "a"
    with pytest.raises(InputError, match="row 2: not valid JSON"):
        next(stream)


def test_two_streams_do_not_disturb_each_other(tmp_path: Path) -> None:
    corpus = Corpus.read(jsonl(tmp_path / "a.jsonl", {"text": "a"}, {"text": "b"}))
    pairs = zip(corpus.documents(), corpus.documents(), strict=True)
    assert [(one.text, two.text) for one, two in pairs] == [("a", "a"), ("b", "b")]
    assert corpus.statistics.total.passages == 2


def test_a_large_text_file_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_format, "_BLOCK_CHARACTERS", 300)
    paragraphs = [f"Paragraph {number} says little. It ends here." for number in range(50)]
    path = tmp_path / "book.txt"
    path.write_text("\n\n".join(paragraphs))
    corpus = with_settings(path, passage_characters=100)
    documents = list(corpus.documents())
    assert "".join("".join(document.text.split()) for document in documents) == "".join("".join(paragraphs).split())
    assert [document.id for document in documents] == [
        f"book/book.txt#p{number}" for number in range(1, len(documents) + 1)
    ]
    assert corpus.statistics.total.documents == 1


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=30))
def test_all_text_comes_through_once(tmp_path: Path, rows: list[str]) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"text": "at least this"}, *({"text": text} for text in rows))
    every = with_settings(path, passage_characters=20, deduplicate=False)
    documents = list(every.documents())
    joined = "".join("".join(document.text.split()) for document in documents)
    assert joined == "atleastthis" + "".join("".join(text.split()) for text in rows)
    assert len({document.id for document in documents}) == len(documents)
    once = [" ".join(text.split()) for text in texts(with_settings(path, passage_characters=20))]
    assert once == list(dict.fromkeys(" ".join(document.text.split()) for document in documents))


@pytest.mark.parametrize(
    ("rows", "row", "message"),
    [
        ([{"txet": "a", "number": 1}], None, "among txet, number (name it with the path: corpus.sources=[{path: "),
        ([{"text": "a"}, {"text": None}], 2, "column 'text' is null, not a text"),
        ([{"text": "a"}, {"text": 5}], 2, "column 'text' is of type int, not a text"),
        (
            [{"text": "a"}, {"txt": "b"}],
            2,
            "no column 'text' (did you mean 'txt'?; corpus.on_error=skip leaves it out)",
        ),
        ([{"text": "a"}, {}], 2, "no column 'text'"),
    ],
)
def test_rows_without_a_text_are_named(
    tmp_path: Path, rows: list[dict[str, Any]], row: int | None, message: str
) -> None:
    error = error_of(Corpus.read(jsonl(tmp_path / "a.jsonl", *rows)))
    assert message in str(error)
    assert "a.jsonl" in str(error)
    assert error.row == row


def test_a_named_text_column(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"text": "wrong", "comment": "right"})
    named = CorpusSettings(sources=(SourceSettings(path=str(path), text="comment"),))
    assert texts(Corpus.read(named)) == ["right"]
    misspelt = CorpusSettings(sources=(SourceSettings(path=str(path), text="coment"),))
    assert "no column 'coment' for the text (did you mean 'comment'?)" in str(error_of(Corpus.read(misspelt)))


@pytest.mark.parametrize("content", ["", '{"text": ""}\n{"text": " "}\n'])
def test_an_empty_corpus_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    (tmp_path / "b.txt").write_text("\n")
    error = error_of(Corpus.read(["first=" + str(tmp_path / "a.jsonl"), tmp_path / "b.txt"]))
    assert "the corpus is empty" in str(error)
    assert "first (" in str(error)
    assert "b (" in str(error)


def test_files_must_exist_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        Corpus.read(tmp_path / "absent.jsonl")


def test_broken_text_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\n\xff\n")
    error = error_of(Corpus.read(tmp_path))
    assert error.row == 2
    assert "a.txt, row 2: not valid UTF-8" in str(error)


def test_the_fingerprint_follows_content_and_settings(tmp_path: Path) -> None:
    def mark(folder: str, **values: Any) -> str:
        return with_settings(tmp_path / folder, **values).fingerprint()

    for folder in ("one", "copy"):
        jsonl(tmp_path / folder / "a.jsonl", {"text": "a"})
    assert mark("one") == mark("copy")
    assert mark("one") != mark("one", passage_characters=100)
    assert mark("one") != mark("one", deduplicate=False)
    before = mark("copy")
    jsonl(tmp_path / "copy" / "a.jsonl", {"text": "b"})
    assert mark("copy") != before
    before = mark("one")
    (tmp_path / "one" / "a.jsonl").rename(tmp_path / "one" / "b.jsonl")
    assert mark("one") != before


def test_the_fingerprint_of_a_lost_file_is_one_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"text": "a"})
    corpus = Corpus.read(path)
    path.unlink()
    with pytest.raises(InputError, match=r"a\.jsonl: cannot be read: No such file"):
        corpus.fingerprint()
    with pytest.raises(InputError, match="cannot be read"):
        corpus.files_bytes()


def test_docstrings_are_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def documents() -> Iterator[Document]:
        yield Document("numpy/core.py:add", "Add two arrays.", "docstrings", "numpy", "BSD")

    monkeypatch.setattr(docstrings, "docstring_documents", documents)
    monkeypatch.setattr(docstrings, "docstring_fingerprint", lambda: "f")
    corpus = Corpus.read("docstrings")
    expected = Document("docstrings/numpy/core.py:add", "Add two arrays.", "docstrings", "numpy", "BSD")
    assert list(corpus.documents()) == [expected]
    before = corpus.fingerprint()
    monkeypatch.setattr(docstrings, "docstring_fingerprint", lambda: "g")
    assert Corpus.read("docstrings").fingerprint() != before


def test_the_sample_corpus(shared_data: Path) -> None:
    corpus = Corpus.read(str(shared_data / "corpus" / "*.jsonl.zst"))
    names = [source.name for source in corpus.sources]
    assert len(names) == 16
    pages = corpus.sources[names.index("wikipedia_2019_pages")]
    assert [file.label.partition("-")[2] for file in pages.files] == [f"0{shard}.jsonl.zst" for shard in range(3)]
    small = Corpus.read(shared_data / "corpus" / "fakenewsnet_articles.jsonl.zst")
    documents = list(small.documents())
    assert small.statistics.total.documents == 848
    assert len({document.id for document in documents}) == len(documents) >= 848
    assert documents[0].id.startswith("fakenewsnet_articles/")
