"""What reaches the terminal: lines and JSON without characters that control it, and streams that are closed or full."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_LONGEST_MESSAGE = 1000
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # control characters but TAB, those of 8 bits too
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # direction, invisible, line ends
    "\ud800-\udfff\U000e0000-\U000e007f]"  # halves of characters, and tags that nobody sees
)


def printable(text: str) -> str:
    r"""Return one line in which characters that control a terminal or hide text are escapes as in Python.

    >>> print(printable("red: \x1b[31m, two\nlines, \u202ereversed"))
    red: \x1b[31m, two\nlines, \u202ereversed
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def shortened(text: str, most: int = _LONGEST_MESSAGE) -> str:
    """Return a message without its middle if it is too long: the file is named at its start, the hint at its end.

    >>> shortened("a" * 50 + "b" * 50, most=21)
    'aaaaaaaaa ... bbbbbbb'
    """
    if len(text) <= most:
        return text
    start = (most - 5) * 3 // 5
    return f"{text[:start]} ... {text[start + 5 - most :]}"


def print_lines(*lines: str) -> None:
    """Print lines on standard output, each as one line."""
    _write("\n".join(map(printable, lines)) + "\n")


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output; unsafe characters are escapes, which are the same value in JSON."""
    text = json.dumps(value, ensure_ascii=False)
    _write(_UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n")


def print_message(message: str) -> None:
    """Print a message on standard error: one line, safe for the terminal, not too long."""
    with without_full_stream():
        print(printable(shortened(" ".join(message.splitlines()))), file=sys.stderr, flush=True)


@contextmanager
def without_full_stream() -> Iterator[None]:
    """Ignore that standard error cannot be written: a full disk under a log must not end the work."""
    try:
        yield
    except OSError:
        discard_output(sys.stderr)


def _write(text: str) -> None:
    """Write to standard output at once; where that fails, discard what it holds and raise an error with its name."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        discard_output(sys.stdout)
        error.filename = "standard output"
        raise


def discard_output(stream: TextIO) -> None:
    """Send what a stream still holds, and all that follows, to nowhere; else Python's exit would fail on it."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def prepare_streams() -> None:
    """Open closed standard streams, and let all take every character, whatever the locale.

    A file that is opened while 2 is closed would become 2, and the next message would be written into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            _open_nowhere(number)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            encoding = stream.encoding if _is_unicode(stream.encoding) else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _open_nowhere(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().replace("-", "").startswith("utf")


def unsafe_argument(arguments: Iterable[str]) -> str | None:
    """Return the first argument that is not valid UTF-8, as bytes would be written; None without one."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            return repr(os.fsencode(argument))[1:]
    return None
