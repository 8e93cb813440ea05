"""What a waiting person sees, on standard error only."""

from __future__ import annotations

import pytest

from endtask.progress import bar, say, set_quiet


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


def test_an_error_inside_a_bar_comes_out() -> None:
    with pytest.raises(ValueError, match="inside"), bar("pretrain", 3):
        raise ValueError("inside")
