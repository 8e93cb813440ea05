"""The attack that atheris guides: its readers take valid inputs and refuse others in one line, and failures are told."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from benchmarks.robustness.commands import toy
from benchmarks.robustness.guided import READERS, more_seeds, readers
from benchmarks.robustness.parts import guided
from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.parsing import ParseError
from endtask.io.stage_files import sealed

VALID = {
    "rows.jsonl": '{"text": "a", "label": "x"}\n',
    "rows.json": '[{"text": "a", "label": "x"}]',
    "rows.csv": "text,label\na,x\n",
    "rows.tsv": "text\tlabel\na\tx\n",
    "corpus.jsonl": '{"text": "a"}\n',
    "corpus.html": "<p>some text</p>",
    "corpus.md": "# a\n\nb\n",
    "corpus.txt": "a\n\nb\n",
    "settings.yaml": "seed: 1\n",
}


def test_readers_take_valid_inputs(tmp_path: Path) -> None:
    for name, content in VALID.items():
        (tmp_path / name).write_text(content)
    for name, seed in more_seeds().items():
        (tmp_path / name).write_bytes(seed)
    with ZipFile(tmp_path / "corpus.zip", "w") as archive:
        archive.writestr("a.txt", "some text")
    write_json(tmp_path / "settings.json", toy())
    write_json(tmp_path / "manifest.json", sealed({"fingerprint": "a", "status": "finished", "files": {}}))
    assert {path.name for path in tmp_path.iterdir()} == READERS.keys()
    known = readers()
    for name, reader in READERS.items():
        known[reader](tmp_path / name)


@pytest.mark.parametrize("name", ["rows.jsonl", "corpus.jsonl", "settings.json", "manifest.json"])
def test_readers_refuse_others(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'{"text": \xff')
    with pytest.raises((InputError, ParseError)):
        readers()[READERS[name]](tmp_path / name)


def test_what_ended_a_reader_is_told_with_its_input(tmp_path: Path) -> None:
    assert guided._failure(0, "Done 5 runs in 1 second(s)", tmp_path) is None
    (tmp_path / "crash-1").write_bytes(b"\xff{")
    told = guided._failure(
        77, " === Uncaught Python exception: ===\nValueError: odd\nTraceback\n==1== libFuzzer", tmp_path
    )
    assert told == 'exit code 77: ValueError: odd "\\u00ff{"'


def test_inputs_and_failures_add_up() -> None:
    rows = [{"inputs": 5, "failure": None}, {"inputs": 2, "failure": "exit code 77"}]
    assert guided.summarize(rows) == {"guided_inputs": 7, "guided_failures": 1}
