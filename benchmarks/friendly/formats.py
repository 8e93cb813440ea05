"""Write the same labelled rows and the same passages in every file format, and read them with endtask's defaults."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from endtask.corpus.corpus import Corpus
from endtask.errors import InputError
from endtask.task import Task

Row = dict[str, Any]
SENTENCES = tuple(f"{color} {animal} near the river" for color in ("red", "grey", "brown") for animal in ("fox", "owl"))
LABELLED = tuple((f"{text} café {number}", text.split()[1]) for number in range(10) for text in SENTENCES)
PASSAGES = tuple(f"Passage {number}: a {text}, seen in spring." for number, text in enumerate(SENTENCES))


def format_rows(folder: Path) -> list[Row]:
    """Return for every format whether endtask reads it as written, and the message where it does not."""
    rows = []
    for kind, writers, check in (("task", TASKS, _task_is_read), ("corpus", CORPORA, _corpus_is_read)):
        for name, write in writers.items():
            target = folder / kind / name
            target.mkdir(parents=True, exist_ok=True)
            rows.append({"measure": "format", "kind": kind, "format": name, **_attempt(write, check, target)})
    return rows


def _attempt(write: Callable[[Path], Path], check: Callable[[Path], bool], folder: Path) -> Row:
    try:
        return {"read": check(write(folder))}
    except (InputError, ImportError, ValueError, OSError) as error:
        return {"read": False, "message": str(error)}


def _task_is_read(path: Path) -> bool:
    task = Task.read(path)
    examples = [example for split in task.splits.values() for example in split]
    if task.type == "token_classification":
        found = sorted((" ".join(example.tokens or ()), len(example.tokens or ())) for example in examples)
        return found == sorted((text, len(text.split())) for text, _ in LABELLED) and "animal" in str(task.labels)
    return sorted((example.text, str(example.label)) for example in examples) == sorted(LABELLED)


def _corpus_is_read(path: Path) -> bool:
    text = "\n".join(document.text for document in Corpus.read(path).documents())
    return all(passage in text for passage in PASSAGES)


def _records() -> list[dict[str, str]]:
    return [{"text": text, "label": label} for text, label in LABELLED]


def _delimited(name: str, delimiter: str = ",", encoding: str = "utf-8") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with open(folder / name, "w", newline="", encoding=encoding) as file:
            csv.writer(file, delimiter=delimiter).writerows([("text", "label"), *LABELLED])
        return folder / name

    return write


def _text(name: str, content: Callable[[], str | bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        value = content()
        (folder / name).write_bytes(value.encode() if isinstance(value, str) else value)
        return folder / name

    return write


def _json_lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def _parquet(name: str, records: list[dict[str, Any]]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        pq.write_table(pa.Table.from_pylist(records), folder / name)
        return folder / name

    return write


def _excel(folder: Path) -> Path:
    import openpyxl

    book = openpyxl.Workbook()
    for row in (("text", "label"), *LABELLED):
        book.active.append(row)
    book.save(folder / "rows.xlsx")
    return folder / "rows.xlsx"


def _saved_data_set(folder: Path) -> Path:
    from datasets import Dataset

    Dataset.from_list(_records()).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def _class_folders(folder: Path) -> Path:
    for number, (text, label) in enumerate(LABELLED):
        (folder / "classes" / label).mkdir(parents=True, exist_ok=True)
        (folder / "classes" / label / f"{number:03}.txt").write_text(text, encoding="utf-8")
    return folder / "classes"


def _conll() -> str:
    sentences = (
        "".join(f"{word} {'B-animal' if word == label else 'O'}\n" for word in text.split()) for text, label in LABELLED
    )
    return "\n".join(sentences)


def _span_rows() -> list[dict[str, Any]]:
    starts = [(text, text.index(label), label) for text, label in LABELLED]
    return [
        {"text": text, "spans": [{"start": start, "end": start + len(label), "label": "animal"}]}
        for text, start, label in starts
    ]


TASKS: dict[str, Callable[[Path], Path]] = {
    "csv": _delimited("rows.csv"),
    "csv, semicolons": _delimited("rows.csv", ";"),
    "csv, Windows-1252": _delimited("rows.csv", encoding="cp1252"),
    "csv, UTF-16": _delimited("rows.csv", encoding="utf-16"),
    "tsv": _delimited("rows.tsv", "\t"),
    "jsonl": _text("rows.jsonl", lambda: _json_lines(_records())),
    "jsonl.gz": _text("rows.jsonl.gz", lambda: gzip.compress(_json_lines(_records()).encode())),
    "json list": _text("rows.json", lambda: json.dumps(_records())),
    "parquet": _parquet("rows.parquet", _records()),
    "xlsx": _excel,
    "save_to_disk": _saved_data_set,
    "a folder for each class": _class_folders,
    "CoNLL": _text("rows.conll", _conll),
    "span offsets": _text("rows.jsonl", lambda: _json_lines(_span_rows())),
}


def _paragraphs() -> str:
    return "\n\n".join(PASSAGES)


def _page() -> str:
    paragraphs = "".join(f"<p>{passage}</p>" for passage in PASSAGES)
    return f"<html><head><title>Animals</title></head><body><article>{paragraphs}</article></body></html>"


def _pdf(lines: tuple[str, ...]) -> bytes:
    """Return a PDF file with one page for each line."""
    first_page = 4
    kids = " ".join(f"{first_page + 2 * number} 0 R" for number in range(len(lines)))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(lines)} >>"]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, line in enumerate(lines):
        stream = f"BT /F1 10 Tf 50 720 Td ({line}) Tj ET"
        page = "/Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< {page} /Contents {first_page + 2 * number + 1} 0 R >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    content, offsets = "%PDF-1.4\n", []
    for number, value in enumerate(objects, start=1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{value}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    return f"{content}xref\n0 {size}\n0000000000 65535 f \n{table}{end}".encode()


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number, passage in enumerate(PASSAGES):
            archive.writestr(f"notes/{number}.txt", passage)
    return file.getvalue()


def _web_archive(kind: str, content: str, content_type: str) -> bytes:
    """Return a gzipped web archive with one record: a page as fetched, or text as Common Crawl extracts it."""
    if kind == "response":
        content = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n\r\n{content}"
        content_type = "application/http; msgtype=response"
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000001>\r\n"
        f"WARC-Date: 2024-01-01T00:00:00Z\r\nWARC-Target-URI: http://example.org/\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(content.encode())}\r\n\r\n"
    )
    return gzip.compress((head + content + "\r\n\r\n").encode())


def _wikipedia() -> bytes:
    pages = "".join(
        f"<page><title>Page {number}</title><ns>0</ns><id>{number}</id><revision><id>1</id><model>wikitext</model>"
        f'<text xml:space="preserve">{passage}</text></revision></page>\n'
        for number, passage in enumerate(PASSAGES, start=1)
    )
    space = '<siteinfo><sitename>Wikipedia</sitename><namespaces><namespace key="0" /></namespaces></siteinfo>'
    head = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="en">{space}\n'
    return b"".join(map(bz2.compress, (head.encode(), pages.encode(), b"</mediawiki>\n")))


CORPORA: dict[str, Callable[[Path], Path]] = {
    "txt": _text("notes.txt", _paragraphs),
    "markdown": _text("notes.md", lambda: f"# Animals\n\n{_paragraphs()}\n"),
    "jsonl": _text("notes.jsonl", lambda: _json_lines([{"text": passage} for passage in PASSAGES])),
    "parquet": _parquet("notes.parquet", [{"text": passage} for passage in PASSAGES]),
    "html": _text("page.html", _page),
    "pdf": _text("paper.pdf", lambda: _pdf(PASSAGES)),
    "zip": _text("notes.zip", _zip),
    "txt.bz2": _text("notes.txt.bz2", lambda: bz2.compress(_paragraphs().encode())),
    "WARC": _text("crawl.warc.gz", lambda: _web_archive("response", _page(), "text/html; charset=utf-8")),
    "WET": _text("crawl.warc.wet.gz", lambda: _web_archive("conversion", "\n".join(PASSAGES), "text/plain")),
    "Wikipedia dump": _text("enwiki-20240101-pages-articles-multistream.xml.bz2", _wikipedia),
}
