"""A reader under atheris, which keeps the inputs that reach new lines: python -m benchmarks.robustness.guided READER SEEDS.

Any error but `InputError` and `ParseError` ends it, with the input in a file. Arguments after the folder of seeds go to
libFuzzer, such as -max_total_time=60.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Reader = Callable[[Path], Any]
READERS = {
    "rows.jsonl": "rows",
    "rows.json": "rows",
    "rows.csv": "rows",
    "rows.tsv": "rows",
    "rows.conll": "rows",
    "corpus.jsonl": "documents",
    "corpus.html": "documents",
    "corpus.md": "documents",
    "settings.yaml": "settings",
    "settings.json": "settings",
    "manifest.json": "manifest",
}
"""What reads a file of each name."""


def readers() -> dict[str, Reader]:
    """Return the readers by name."""
    from endtask.config import load_settings
    from endtask.corpus import Corpus
    from endtask.io.stage_files import parse_manifest
    from endtask.io.tables import read_rows

    return {
        "rows": lambda path: exhaust(read_rows(path)),
        "documents": lambda path: exhaust(Corpus.read(path).documents()),
        "settings": load_settings,
        "manifest": lambda path: parse_manifest(path.read_bytes()),
    }


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
