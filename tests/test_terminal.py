"""What reaches the terminal: no text controls it, JSON stays exact, and streams may be closed or full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.terminal import print_json, print_lines, print_message, printable, shortened
from tests.conftest import Answer

HOSTILE = ["\x1b[31mred", "two\nlines", "\x9b2J", "\u202egnp.exe", "zero\u200bwidth", "\ud800", "\U000e0041", "\r\x07"]


@given(st.text(st.characters()))
def test_no_character_that_controls_the_terminal_is_left(text: str) -> None:
    shown = printable(text)
    left = {char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")}
    assert left <= {"\t"}
    assert not any(unicodedata.bidirectional(char) in ("LRE", "RLE", "LRO", "RLO", "LRI", "RLI") for char in shown)


def test_lines_are_escaped_and_json_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(*HOSTILE)
    assert len(capsys.readouterr().out.splitlines()) == len(HOSTILE)
    print_json({"label": HOSTILE, "café": "\u200d naïve"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"label": HOSTILE, "café": "\u200d naïve"}
    assert "café" in out
    assert printable(out.rstrip("\n")) == out.rstrip("\n")


def test_a_message_is_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_message(f"endtask: {'x' * 9000}\n\x1b[2J (the hint)")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert len(err) < 1100
    assert err.startswith("endtask: xxx")
    assert err.endswith("\\x1b[2J (the hint)\n")
    assert shortened("short") == "short"


SHELL = {
    "an error on a full device": ("run absent.yaml 2>/dev/full", 2, ""),
    "closed streams": ("run absent.yaml <&- >&- 2>&-", 2, ""),
    "output on a full device": ("--version >/dev/full", 2, "endtask: standard output: No space left on device\n"),
}


def test_bytes_that_are_not_utf8(command: Callable[..., Answer]) -> None:
    answer = command("run", os.fsdecode(b"caf\xe9.yaml"))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "endtask: the argument 'caf\\xe9.yaml' is not valid UTF-8 (rename the file)\n"


def test_streams_that_are_closed_or_full() -> None:
    lines = "\n".join(f"{sys.executable} -m endtask {words}; echo code $? >&3" for words, _, _ in SHELL.values())
    script = f"exec 3>&1 4>&2\n{lines}"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    codes = [line for line in ran.stdout.splitlines() if line.startswith("code")]
    assert codes == [f"code {code}" for _, code, _ in SHELL.values()], ran
    assert "Traceback" not in ran.stderr
    assert all(expected in ran.stderr for _, _, expected in SHELL.values())
