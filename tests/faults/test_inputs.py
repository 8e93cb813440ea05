"""Bad input at every door: one line, exit code 2, nothing touched, and no wait for a pipe or a device without an end."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from endtask.pipeline.stages import select
from tests.conftest import Answer
from tests.toy_run import hashes, write_settings, write_toy

Command = Callable[..., Answer]
LONG = "n" * 300


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a toy task, a corpus, settings, pipes, devices and links in a circle."""
    write_toy(tmp_path)
    write_settings(tmp_path / "settings.json", Path(), Path("out"))
    monkeypatch.chdir(tmp_path)
    for name in ("pipe.jsonl", "pipe.yaml", "pipe.tar.zst", "pipe.csv"):
        os.mkfifo(name)
    for name in ("zero.jsonl", "zero.yaml", "zero.tar.zst", "zero.csv", "zero.jsonl.gz"):
        os.symlink("/dev/zero", name)
    os.symlink("loop", "loop")
    os.symlink("loop.jsonl", "loop.jsonl")
    return tmp_path


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Fail a test that waits for input that never comes."""
    signal.alarm(60)
    yield
    signal.alarm(0)


def refused(command: Command, *words: object) -> str:
    """Return the line of a command that must be refused and leave everything as it is."""
    before = _state()
    answer = command(*words)
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("endtask: "), answer
    assert answer.err.count("\n") == 1, answer
    assert len(answer.err) < 1200
    assert _state() == before
    return answer.err.removeprefix("endtask: ").rstrip("\n")


def _state() -> Any:
    here = Path()
    return hashes(here, "task/*", "*.json"), sorted(path for path in here.rglob("*") if "__pycache__" not in path.parts)


NO_FILE = ("is a device", "is a pipe")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "{}.yaml"],
        ["run", "settings.json", "--task", "{}.jsonl"],
        ["run", "settings.json", "--task", "{}.csv"],
        ["check", "settings.json", "--corpus", "{}.jsonl"],
        ["run", "settings.json", "--corpus", "{}.jsonl"],
        ["run", "--bundle", "{}.tar.zst"],
        ["compare", "{}.yaml"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("kind", ["pipe", "zero"])
def test_pipes_and_devices(folder: Path, command: Command, words: list[str], kind: str) -> None:
    assert any(name in refused(command, *(word.format(kind) for word in words)) for name in NO_FILE)


@pytest.mark.parametrize(
    "path", [LONG, f"{LONG}.jsonl", f"sub/{LONG}.yaml", "~nobody-here/x", "loop", "loop/x", "loop.jsonl"]
)
@pytest.mark.parametrize(
    "words",
    [
        ["run", "{}"],
        ["run", "settings.json", "--task", "{}"],
        ["run", "settings.json", "--corpus", "{}"],
        ["run", "settings.json", "--set", "tokenizer.path={}"],
        ["run", "settings.json", "--set", "model.path={}"],
        ["run", "--bundle", "{}.tar.zst"],
        ["predict", "{}", "text"],
        ["evaluate", "{}", "task/test.jsonl"],
        ["report", "{}"],
        ["why", "{}", "x"],
        ["selection", "{}", "--to", "a.csv"],
        ["export", "{}", "--to", "onnx"],
        ["bundle", "{}"],
        ["ls", "{}"],
        ["run", "settings.json", "--results", "{}/x/y"],
        ["--plugin", "{}", "ls"],
    ],
    ids=" ".join,
)
def test_paths_that_cannot_be(folder: Path, command: Command, words: list[str], path: str) -> None:
    refused(command, *(word.format(path) for word in words))


@pytest.mark.parametrize("path", [LONG, f"sub/{LONG}", "loop", "loop/x", "settings.json/x"])
def test_outputs_that_cannot_be(folder: Path, command: Command, path: str) -> None:
    refused(command, "run", "settings.json", "--output", path)
    refused(command, "init", f"{path}.yaml" if path != "loop" else "loop/a.yaml", "--task", "task")


@pytest.mark.parametrize("name", ["pipe.yaml", "zero.yaml", "loop", LONG])
def test_token_files(folder: Path, command: Command, name: str) -> None:
    refused(command, "serve", "--token-file", name)


def test_homes(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    for words in (
        ["--set", "output_dir=~no-such-user/a"],
        ["--output", "~no-such-user/a"],
        ["--task", "~no-such-user/a"],
    ):
        assert "no user of this machine has that name" in refused(command, "run", "settings.json", *words)
    assert (
        command("run", "settings.json", "--output=~/mine", "--task", "~/task", "--until", "read", "--quiet").code == 0
    )
    assert (folder / "mine" / "read").is_dir()
    assert command("schema", "--output=~/schema.json").code == 0
    assert (folder / "schema.json").is_file()


DEEP = "[" * 3000
SETTINGS = {
    "deep JSON": ("a.json", '{"seed": ' + DEEP, "nested more than 100 levels deep"),
    "deep YAML": ("a.yaml", f"seed: {DEEP}", "nested more than 100 levels deep"),
    "deep mappings": ("a.yaml", "\n".join(" " * n + "a:" for n in range(500)), "nested more than 100 levels deep"),
    "laughs": (
        "a.yaml",
        "a: &a [1,1]\n" + "".join(f"{n}: &{n} [{f'*{p},' * 20}]\n" for p, n in zip("abcde", "bcdef", strict=True)),
        "values, counted with aliases",
    ),
    "a NUL": ("a.json", '{"output_dir": "a\\u0000b"}', "key 'output_dir': holds '\\x00'"),
    "half a character": ("a.json", '{"task": {"path": "\\ud800"}}', "key 'task.path': holds '\\ud800'"),
    "a wrong tag": ("a.yaml", "seed: !!bool maybe", "row 1: not valid YAML: 'maybe' does not fit its tag !!bool"),
    "keys that are numbers": ("a.yaml", "task: {1: 2}", "a.yaml"),
    "keys that are lists": ("a.yaml", "? [1, 2]\n: 3", "a.yaml"),
    "a long key": ("a.yaml", f"{'k' * 900}: 1", "unknown setting"),
    "not UTF-8": ("a.yaml", b"seed: \xff", "not valid UTF-8"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(folder: Path, command: Command, name: str) -> None:
    file, content, message = SETTINGS[name]
    Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused(command, "run", file)


def test_settings_that_are_too_large(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDTASK_MAX_SETTINGS_MB", "1")
    Path("a.yaml").write_bytes(b"#" * 1_000_001)
    assert "too large for settings: over 1 MB" in refused(command, "run", "a.yaml")
    monkeypatch.setenv("ENDTASK_MAX_SETTINGS_MB", "many")
    assert "ENDTASK_MAX_SETTINGS_MB=many: not a positive whole number" in refused(command, "run", "a.yaml")


@pytest.mark.parametrize(
    "value", ["!!bool maybe", "2024-13-45", "!!timestamp soon", "!!int ''", DEEP, "&a [*a]", "!!binary x"]
)
def test_values_of_set(folder: Path, command: Command, value: str) -> None:
    refused(command, "run", "settings.json", "--set", f"output_dir={value}")
    refused(command, "search", "settings.json", "--values", f"seed=1,{value}")
    refused(command, "compare", "settings.json", "--variant", f"a: seed={value}")


ROWS = {
    "deep rows": ("rows.jsonl", '{"text": "a", "label": ' + DEEP + "\n", "row 1: not valid JSON: nested more than 100"),
    "a deep column": (
        "rows.jsonl",
        '{"text": "a", "x": ' + "[" * 200 + "]" * 200 + ', "label": "b"}\n',
        "nested more than 100",
    ),
    "a deep list": ("rows.json", DEEP, "nested more than 100 levels deep"),
    "a deep cell": ("rows.csv", f"text,label\nword,{'[' * 3000}{']' * 3000}\nother,b\n", "rows.csv"),
    "a number of 5000 digits": ("rows.jsonl", '{"text": "a", "label": ' + "1" * 5000 + "}\n", "not valid JSON"),
    "a long message": ("rows.csv", f"text,{'l' * 5000}\na,b\n", "rows.csv"),
    "half a character": ("rows.jsonl", '{"text": "a\\ud800", "label": "b"}\n', "half of a character"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(folder: Path, command: Command, name: str) -> None:
    file, content, message = ROWS[name]
    Path(file).write_text(content)
    assert message in refused(command, "run", "--task", file, "--output", "out")


def test_long_lines_and_bombs(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDTASK_MAX_LINE_MB", "1")
    Path("long.jsonl").write_text(json.dumps({"text": "word " * 300_000}) + "\n")
    assert "long.jsonl, row 1: a line of more than 1 MB" in refused(
        command, "run", "settings.json", "--corpus", "long.jsonl"
    )
    monkeypatch.setattr("endtask.io.compression._FREE", 1 << 20)
    monkeypatch.setenv("ENDTASK_MAX_RATIO", "100")
    Path("bomb.jsonl.gz").write_bytes(gzip.compress(b"\n" * 3_000_000))
    message = "decompresses to over 100 times its size (the variable ENDTASK_MAX_RATIO sets this limit"
    assert message in refused(command, "run", "settings.json", "--corpus", "bomb.jsonl.gz")


def test_a_run_folder_that_is_removed_while_at_work(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(*arguments: object) -> None:
        shutil.rmtree("out")
        Path("out/retrieve/anything").read_bytes()

    monkeypatch.setattr(select.Select, "run", remove)
    answer = command("run", "settings.json", "--quiet")
    assert answer.code == 2
    assert answer.errors == [
        "endtask: out/retrieve/anything: No such file or directory (was it moved or removed while endtask was at work?)"
    ]
    assert not Path("out").exists()
