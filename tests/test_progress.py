"""Progress bars and messages, on standard error only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from endtask.progress import bar, say, set_quiet, warn


def test_off_a_terminal_a_bar_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("pretrain", 3) as advance:
        for _ in range(3):
            advance(1, note="loss 1.0")
    captured = capsys.readouterr()
    assert captured.err == "pretrain\n"
    assert captured.out == ""


def test_lines_are_said_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    line = "[red]not markup[/red] " + "long " * 60
    say(line)
    assert capsys.readouterr().err.rstrip() == line.rstrip()


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    set_quiet(True)
    say("anything")
    with bar("pretrain", 3) as advance:
        advance()
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


def test_warnings_are_told_each_time_when_not_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    warn("too few rows")
    warn("too few rows")
    warn("all rows stand in train", level="error")
    assert capsys.readouterr().err.splitlines() == ["warning: too few rows"] * 2 + ["error: all rows stand in train"]


def test_quiet_leaves_each_warning_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_quiet(True)
    for text in ("too few rows", "too many rows", "too few rows"):
        warn(text)
    assert capsys.readouterr().err.splitlines() == ["warning: too few rows", "warning: too many rows"]
    set_quiet(True)  # another command of the same process
    warn("too few rows")
    assert capsys.readouterr().err == "warning: too few rows\n"


def test_warnings_go_through_the_one_function(repository: Path) -> None:
    """Lines that are said are lost with `-q`."""
    sources = {path: path.read_text(encoding="utf-8") for path in (repository / "src").rglob("*.py")}
    assert [path.name for path, text in sources.items() if re.search(r"\bsay\(\s*f?[\"']warning", text)] == []


def test_an_error_inside_a_bar_comes_out() -> None:
    with pytest.raises(ValueError, match="inside"), bar("pretrain", 3):
        raise ValueError("inside")
