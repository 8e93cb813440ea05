"""Files of an unquoted glob after `--corpus`."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.cli.arguments import with_whole_globs


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "notes/a.txt",
        "notes/b.txt",
        "notes/b2.txt",
        "notes/x.md",
        "books/1/t.txt",
        "books/2/t.txt",
        "my.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "notes" / "run").mkdir()
    (tmp_path / "notes" / "run" / "settings.yaml").write_text("seed: 1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--corpus notes/a.txt notes/b.txt notes/b2.txt --quiet", "--corpus notes/*.txt --quiet"),
        ("--corpus notes/b.txt notes/b2.txt", "--corpus notes/b*.txt"),
        ("--corpus notes/a.txt notes/b.txt", "--corpus notes/a.txt --corpus notes/b.txt"),
        ("--corpus books/1/t.txt books/2/t.txt", "--corpus books/*/*.txt"),
        ("--corpus notes/a.txt notes/b.txt notes/b2.txt my.yaml", "--corpus notes/*.txt my.yaml"),
        ("--corpus notes/a.txt notes/run", "--corpus notes/a.txt notes/run"),
        ("--corpus notes/*.txt my.yaml", "--corpus notes/*.txt my.yaml"),
        ("--corpus a=notes/*.txt --corpus notes/x.md", "--corpus a=notes/*.txt --corpus notes/x.md"),
        ("--task t.csv --corpus", "--task t.csv --corpus"),
    ],
)
def test_a_glob_that_the_shell_expanded_comes_back(words: str, expected: str) -> None:
    assert with_whole_globs(["run", *words.split()]) == ["run", *expected.split()]
