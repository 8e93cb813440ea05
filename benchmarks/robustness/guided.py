"""A reader under atheris, which keeps the inputs that reach new lines: python -m benchmarks.robustness.guided READER SEEDS.

Any error but `InputError` and `ParseError` ends it, with the input in a file. Arguments after the folder of seeds go to
libFuzzer, such as -max_total_time=60.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Reader = Callable[[Path], Any]
_PACKAGE = Path(__file__).resolve().parents[2] / "src" / "endtask"  # not imported before atheris
READERS = {
    **dict.fromkeys(("rows.jsonl", "rows.json", "rows.csv", "rows.tsv", "rows.conll", "rows.xlsx"), "rows"),
    **dict.fromkeys(("corpus.jsonl", "corpus.html", "corpus.md", "corpus.txt", "corpus.zip"), "documents"),
    **dict.fromkeys(("corpus.xml", "corpus.warc"), "documents"),
    **dict.fromkeys(("settings.yaml", "settings.json"), "settings"),
    "manifest.json": "manifest",
    "config.json": "checkpoint",
}
"""What reads a file of each name."""


def readers() -> dict[str, Reader]:
    """Return the readers by name."""
    from endtask.config import load_settings
    from endtask.corpus import Corpus
    from endtask.encoders.checkpoint import open_checkpoint
    from endtask.io.stage_files import parse_manifest
    from endtask.io.tables import read_rows

    return {
        "rows": lambda path: exhaust(read_rows(path)),
        "documents": lambda path: exhaust(Corpus.read(path).documents()),
        "settings": load_settings,
        "manifest": lambda path: parse_manifest(path.read_bytes()),
        "checkpoint": lambda path: open_checkpoint(str(path.parent)),
    }


def more_seeds() -> dict[str, bytes]:
    """Return valid files of the formats that other attacks have no seed for."""
    from tests.corpus.dumps import DumpPage, dump

    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>A page with some words.</p>"
    head = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
        "WARC-Record-ID: <urn:uuid:1>\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(page)}\r\n\r\n"
    )
    articles = [DumpPage(1, "Town", "A ''town'' in [[Land|the land]]. {{x}}"), DumpPage(2, "Land", "Text.")]
    return {
        "rows.conll": b"EU B-ORG\nrejects O\n\nGerman B-MISC\ncall O\n",
        "rows.xlsx": _workbook([["text", "label"], ["a text", "x"], ["another", "y"]]),
        "corpus.xml": dump(articles),
        "corpus.warc": head.encode() + page + b"\r\n\r\n",
        "config.json": (_PACKAGE / "pretrained" / "endtask_mini" / "config.json").read_bytes(),
    }


def _workbook(rows: list[list[str]]) -> bytes:
    from openpyxl import Workbook

    book, content = Workbook(), BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(content)
    return content.getvalue()


def exhaust(items: Iterator[Any]) -> None:
    """Read everything."""
    for _ in items:
        pass


def main(name: str, folder: Path, options: list[str]) -> None:
    """Give a reader mutated seeds until the time is over or it fails."""
    import atheris

    with atheris.instrument_imports(include=["endtask"]):
        read = readers()[READERS[name]]
    from endtask.errors import InputError
    from endtask.io.parsing import ParseError
    from endtask.progress import set_quiet

    set_quiet(True)
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / name

        def attack(content: bytes) -> None:
            path.write_bytes(content)
            with suppress(InputError, ParseError):
                read(path)

        atheris.Setup([sys.argv[0], *options, str(folder)], attack)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
