"""Markdown, HTML, PDF, web archives, zip archives and tables of a corpus; damage, and what is skipped."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.config import CorpusSettings, SourceSettings
from endtask.corpus import Corpus
from endtask.corpus.reading import source_contents
from endtask.errors import InputError
from endtask.records import Document
from endtask.registry import load_plugin

FILES = [HealthCheck.function_scoped_fixture]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def corpus_of(path: Path, **values: Any) -> Corpus:
    return Corpus.read(CorpusSettings(sources=(SourceSettings(path=str(path)),), **values))


def documents(path: Path, **values: Any) -> list[Document]:
    return list(corpus_of(path, **values).documents())


def texts(path: Path, **values: Any) -> dict[str, str]:
    return {document.id: document.text for document in documents(path, **values)}


def error_of(path: Path, **values: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        documents(path, **values)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return caught.value


# Markdown


@pytest.mark.parametrize(
    ("content", "text", "title"),
    [
        ("---\ntitle: A note\ntags: [x]\n---\n\n# Heading\n\n*Text*.\n", "# Heading\n\n*Text*.", "A note"),
        ("---\ntitle: [\n---\nText.\n", "Text.", None),
        ("---\n1: 2\n...\nText.\n", "Text.", None),
        ("---\nText after a rule.\n", "---\nText after a rule.", None),
        ("# Heading\n\n---\n\nText.\n", "# Heading\n\n---\n\nText.", None),
    ],
)
def test_markdown(tmp_path: Path, content: str, text: str, title: str | None) -> None:
    (document,) = documents(write(tmp_path / "a.md", content))
    assert (document.text, document.title) == (text, title)


def test_the_fingerprint_of_markdown_without_front_matter_is_that_of_its_content(tmp_path: Path) -> None:
    plain, front = write(tmp_path / "a.md", "Text."), write(tmp_path / "b.md", "---\na: 1\n---\nText.")
    contents = [source_contents(corpus_of(path).sources[0])["files"][0] for path in (plain, front)]
    assert [len(parts) for parts in contents] == [3, 4]


# HTML

PAGE = """<!doctype html><html><head><title>Bears &amp; men</title><meta charset="utf-8"><script>var x;</script></head>
<body><nav><a href="/">Home</a> <a href="/about">About us</a></nav><main><h1>Bears</h1>
<p>Bears are <b>large</b> animals, and they sleep all through the winter in caves.</p>
<p>Men are smaller, and most of them sleep at night in b\u00e9ds of their own.</p></main>
<footer>Copyright by nobody</footer></body></html>"""


def test_html(tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    cats_page = PAGE.replace("utf-8", "iso-8859-1").replace("Bears", "Cats").encode("latin-1")
    write(tmp_path / "site" / "a.html", PAGE)
    write(tmp_path / "site" / "sub" / "b.htm", cats_page)
    bears, cats = documents(tmp_path / "site")
    assert (bears.id, bears.source, bears.title) == ("site/a.html", "site", "Bears & men")
    assert bears.text.startswith("Bears\n")
    assert "sleep at night in béds of their own." in bears.text
    assert not any(word in bears.text for word in ("Home", "Copyright", "var x"))
    assert (cats.id, cats.text) == ("site/sub/b.htm", bears.text.replace("Bears", "Cats"))


@settings(max_examples=25, suppress_health_check=FILES)
@given(content=st.binary(max_size=60) | st.text(st.sampled_from("<>/ap b&;!-\"'")).map(str.encode))
def test_any_bytes_are_a_page(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("resiliparse")
    write(tmp_path / "b.txt", "at least this")
    write(tmp_path / "a.html", content)
    assert documents(tmp_path)[-1].text == "at least this"


# PDF


def pdf(*pages: str) -> bytes:
    """A PDF file with one line of text on each page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    numbers = []
    for page in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        resources = b"/Resources << /Font << /F1 3 0 R >> >>"
        box = b"/MediaBox [0 0 612 792]"
        objects.append(b"<< /Type /Page /Parent 2 0 R %s %s /Contents %d 0 R >>" % (box, resources, len(objects)))
        numbers.append(len(objects))
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages))
    content, offsets = b"%PDF-1.4\n", []
    for number, value in enumerate(objects, start=1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, value)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(content))
    return content + head + table + trailer


def test_pdf(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    path = write(tmp_path / "papers" / "a.pdf", pdf("The first page.", "The second page."))
    (document,) = documents(path.parent)
    assert (document.id, document.text) == ("papers/a.pdf", "The first page.\n\nThe second page.")


def test_a_locked_pdf_is_named(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter(io.BytesIO(pdf("text")))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(tmp_path / "a.pdf")
    assert "a.pdf: the file needs a password" in str(error_of(tmp_path / "a.pdf"))


# Web archives


def warc(*records: tuple[str, str, str, bytes]) -> bytes:
    """A web archive of (type, address, content type, content); responses have status 200, or 404 for `missing`."""
    library = pytest.importorskip("warcio")
    headers = pytest.importorskip("warcio.statusandheaders").StatusAndHeaders
    file = io.BytesIO()
    writer = library.WARCWriter(file, gzip=False)
    for kind, address, content_type, content in records:
        http = None
        if kind in ("response", "missing"):
            status = "200 OK" if kind == "response" else "404 Not Found"
            http = headers(status, [("Content-Type", content_type)], protocol="HTTP/1.0")
        record = writer.create_warc_record(
            address,
            "response" if http else kind,
            payload=io.BytesIO(content),
            http_headers=http,
            warc_content_type="" if http else content_type,
        )
        writer.write_record(record)
    return file.getvalue()


RECORDS = (
    ("warcinfo", "http://a/info", "application/warc-fields", b"x: y"),
    ("response", "http://a/1", "text/html; charset=utf-8", PAGE.encode()),
    ("missing", "http://a/2", "text/html", PAGE.encode()),
    ("response", "http://a/3", "text/plain; charset=latin-1", "gr\u00fcn".encode("latin-1")),
    ("response", "http://a/4", "image/png", b"\x89PNG"),
    ("conversion", "http://a/5", "text/plain", "the text of \u00e9 page".encode()),
)


def test_web_archives(tmp_path: Path) -> None:
    import gzip

    pytest.importorskip("resiliparse")
    page, plain, converted = documents(write(tmp_path / "crawl-00.warc.gz", gzip.compress(warc(*RECORDS))))
    ids = [found.id for found in (page, plain, converted)]
    assert ids == ["crawl/http://a/1", "crawl/http://a/3", "crawl/http://a/5"]
    assert (page.title, page.text.startswith("Bears\n")) == ("Bears & men", True)
    assert (plain.text, converted.text) == ("grün", "the text of é page")


def test_wet_files_need_no_extractor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = warc(*RECORDS[-1:])
    monkeypatch.setitem(sys.modules, "resiliparse", None)
    path = write(tmp_path / "CC-MAIN.warc.wet", content)
    assert texts(path) == {"CC-MAIN.warc/http://a/5": "the text of é page"}
    assert corpus_of(path).fingerprint()


# Zip archives


def zipped(path: Path, members: dict[str, str | bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as arrow
    import pyarrow.parquet as tables

    file = io.BytesIO()
    tables.write_table(arrow.Table.from_pylist(rows), file)
    return file.getvalue()


def test_zip_members_are_read_like_files(tmp_path: Path) -> None:
    import gzip

    members: dict[str, str | bytes] = {
        "b/rows.jsonl": '{"text": "one", "id": "x"}\n{"text": "two"}\n',
        "a.txt": "a text",
        "c.csv.gz": gzip.compress(b"text;label\nthree;y\n"),
        "d.parquet": parquet([{"text": "four"}]),
        "notes/e.md": "---\ntitle: T\n---\nfive",
        "f.json": json.dumps([{"text": "six"}]),
        "settings.json": '{"text": 1}',
        "image.png": b"\x89PNG",
        "inner.zip": b"PK",
        "__MACOSX/a.txt": "hidden",
        ".hidden/a.txt": "hidden",
    }
    path = zipped(tmp_path / "data" / "pile.zip", members)
    assert texts(path) == {
        "pile/pile.zip/a.txt": "a text",
        "pile/x": "one",
        "pile/pile.zip/b/rows.jsonl#2": "two",
        "pile/pile.zip/c.csv.gz#2": "three",
        "pile/pile.zip/d.parquet#1": "four",
        "pile/pile.zip/f.json#1": "six",
        "pile/pile.zip/notes/e.md": "five",
    }
    assert corpus_of(path).sources[0].unread == ("image.png", "inner.zip", "settings.json")
    assert corpus_of(path.parent).sources[0].unread[0] == "pile.zip/image.png"
    counts: list[int] = []
    list(corpus_of(path).documents(counts.append))
    assert sum(counts) == path.stat().st_size


names = st.text(st.sampled_from("abc/"), min_size=1, max_size=8).filter(lambda name: "" not in name.split("/"))
bodies = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30)


@settings(max_examples=25, suppress_health_check=FILES)
@given(members=st.dictionaries(names, bodies, min_size=1, max_size=5))
def test_zip_round_trip(tmp_path: Path, members: dict[str, str]) -> None:
    path = zipped(tmp_path / "a.zip", {f"{name}.txt": body for name, body in members.items()})
    found = texts(path, deduplicate=False)
    assert found == {f"a/a.zip/{name}.txt": body for name, body in members.items()}
    assert list(found) == sorted(found)


def test_damage_in_a_zip_archive_is_named(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a.txt": "abcdefghijklmnopqrstuvwxyz" * 3, "b.txt": "fine"})
    content = bytearray(path.read_bytes())
    content[40:50] = bytes(10)
    path.write_bytes(content)
    assert "a.zip/a.txt" in str(error_of(path))
    assert texts(path, on_error="skip") == {"a/a.zip/b.txt": "fine"}


# Tables


def test_json_and_excel_in_a_corpus(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    write(tmp_path / "a.json", json.dumps({"data": [{"text": "one"}]}))
    book = openpyxl.Workbook()
    for row in (["id", "text"], [7, "two"]):
        book.active.append(row)
    book.save(tmp_path / "b.xlsx")
    write(tmp_path / "tags.conll", "a O\n")
    assert texts(tmp_path / "a.json") == {"a/a.json#1": "one"}
    assert texts(tmp_path / "b.xlsx") == {"b/7": "two"}
    corpus = corpus_of(tmp_path)
    assert [source.name for source in corpus.sources] == ["b"]
    assert corpus.sources[0].unread == ("a.json", "tags.conll"), "in folders only lists of objects are tables"
    with pytest.raises(InputError, match=r"tags\.conll: unknown kind of file"):
        corpus_of(tmp_path / "tags.conll")


# Errors

LIBRARIES = {
    "a.html": ("resiliparse", "html"),
    "a.pdf": ("pypdf", "pdf"),
    "a.warc": ("warcio", "warc"),
    "a.xlsx": ("openpyxl", "excel"),
    "a.xml": ("mwparserfromhell", "wikipedia"),
}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_missing_libraries_are_named_and_never_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on_error: str
) -> None:
    library, extra = LIBRARIES[name]
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.exceptions", None)
    error = error_of(write(tmp_path / name, b"<mediawiki>"), on_error=on_error)
    assert f"needs the package {library} (pip install 'endtask[{extra}]')" in str(error)


def test_an_archive_of_the_future_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("b.txt", "inside")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[content.rindex(b"PK\1\2") + 6] = 112  # the version that is needed to read it
    (tmp_path / "a.zip").write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"a\.zip: cannot be decompressed: zip file version 11\.2"):
        list(corpus_of(tmp_path).documents())


def test_a_member_without_a_name_is_not_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("b.txt", "inside")
        archive.writestr("x.txt", "nameless")
    whole = (tmp_path / "a.zip").read_bytes()
    place = whole.rindex(b"x.txt")  # in the directory at the end: its length is 18 bytes before
    nameless = whole[: place - 18] + b"\0\0" + whole[place - 16 : place] + whole[place + 5 :]
    end = nameless.rindex(b"PK\5\6")
    size = int.from_bytes(nameless[end + 12 : end + 16], "little") - 5
    (tmp_path / "a.zip").write_bytes(nameless[: end + 12] + size.to_bytes(4, "little") + nameless[end + 16 :])
    assert zipfile.ZipFile(tmp_path / "a.zip").namelist() == ["b.txt", ""]
    assert [document.text for document in corpus_of(tmp_path).documents()] == ["inside"]


BAD: dict[str, tuple[str | bytes, str, int]] = {
    "bad-row.jsonl": ('{"text": "a"}\n{"text": \n{"text": "b"}\n', "row 2: not valid JSON", 1),
    "bad-byte.txt": (b"a\n\xff\nb\n", r"row 2: not valid UTF-8 (byte 1 of the line)", 1),
    "no-text.jsonl": ('{"text": "a"}\n{"text": null}\n{"txt": "c"}\n', "row 2: column 'text' is null", 2),
    "other.csv": ("name,number\nx,1\n", "no column for the text among name, number", 1),
    "no-header.tsv": ("\n", "the first line must name the columns", 1),
    "cut.jsonl.gz": (b"\x1f\x8b\x08\x00", "the file is cut off", 1),
    "bad.parquet": (b"PAR1", "not a readable Parquet file", 1),
    "bad.pdf": (b"%PDF-1.4 no more", "not a readable PDF file, page 1", 1),
    "bad.warc": (b"no archive\r\n\r\n", "not a readable WARC record", 1),
    "headless.warc": (
        b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: 5\r\n\r\nHTTP/\r\n\r\n",
        "not a readable WARC record",
        1,
    ),
    "bad.json": ('[{"text": ]', "row 1: not valid JSON", 1),
    "bad.zip": (b"PK", "cannot be decompressed", 1),
    "bad.xlsx": (b"PK", "not a readable Excel file", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_stops_the_reader_or_is_skipped_and_listed(tmp_path: Path, name: str) -> None:
    content, message, count = BAD[name]
    error = str(error_of(write(tmp_path / name, content)))
    assert message in error
    assert error.endswith("corpus.on_error=skip leaves it out)")
    write(tmp_path / "z.txt", "the end")
    corpus = corpus_of(tmp_path, on_error="skip")
    assert [document.text for document in corpus.documents()][-1] == "the end"
    assert corpus.statistics.total.skipped == count
    (line,) = corpus.statistics.skipped_lines()
    assert message in line
    assert line.startswith(f"{count} item")
    assert corpus.fingerprint()


def test_skipping_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n')
    assert corpus_of(path, on_error="skip").fingerprint() != corpus_of(path).fingerprint()


def test_a_named_column_that_is_missing_is_never_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n')
    named = CorpusSettings(sources=(SourceSettings(path=str(path), text="body"),), on_error="skip")
    with pytest.raises(InputError, match="no column 'body' for the text"):
        list(Corpus.read(named).documents())


def test_only_the_first_messages_are_stored(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"text": "a"}\n' + "{\n" * 2000)
    corpus = corpus_of(tmp_path, on_error="skip")
    list(corpus.documents())
    counts = corpus.statistics.to_dict()["a"]
    assert (counts["skipped"], len(counts["first_skipped"])) == (2000, 5)
    (line,) = corpus.statistics.skipped_lines()
    assert line.startswith("2,000 items of a skipped")
    assert line.endswith("; ...")


def test_the_format_of_the_documentation_is_a_plugin(tmp_path: Path, repository: Path) -> None:
    page = (repository / "docs" / "reference" / "corpora.md").read_text(encoding="utf-8")
    film = write(tmp_path / "film.srt", "1\n00:01 --> 00:02\nHello.\n\n2\n00:03 --> 00:04\nGoodbye.\n")
    with pytest.raises(InputError, match=r"film\.srt: unknown kind of file"):
        corpus_of(film)
    plugin = write(tmp_path / "plugin.py", page.partition("```python\n")[2].partition("```")[0])
    load_plugin(plugin)
    assert texts(film) == {"film/film.srt": "Hello.\nGoodbye."}
    assert len(source_contents(corpus_of(film).sources[0])["files"][0]) == 4, "the digest of the plug-in counts"
