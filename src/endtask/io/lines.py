"""Stream the lines of text files: UTF-8, UTF-16 and UTF-32 by their mark, or Windows-1252 where guesses are allowed."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, open_bytes, read_failure
from endtask.io.input_files import InputFile, ReadOptions, ReadProgress
from endtask.io.limits import LINE, MEGABYTE

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before that of UTF-16, which it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LATIN, _LATIN_NAME = "cp1252", "Windows-1252"
_MOST_HIGH_LETTERS = 0.25
"""Share of the letters that are outside ASCII; Western European languages have less than half of it."""
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x7f]")
_LETTERS = re.compile(rb"[A-Za-z\x80-\xff]")
_HIGH = re.compile(rb"[\x80-\xff]")
_CHUNK = 1 << 20


def read_lines(path: str | Path, progress: ReadProgress | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a text file, without the line ends."""
    return lines_of(Path(path), ReadOptions(progress))


def lines_of(path: InputFile, options: ReadOptions) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a text file, without the line ends; lines that cannot be decoded are errors."""
    guessed = guess_encoding(path, options) if options.note else None
    with open_bytes(path, options.progress) as file:
        try:
            marked = _marked_encoding(file)
        except READ_FAILURES as error:
            options.on_error(read_failure(error, path, 1))
            return
        if marked is None:
            yield from _decoded_lines(file, path, options, guessed or "utf-8-sig")
        else:
            yield from _wide_lines(file, path, options, marked)


def _marked_encoding(file: io.BufferedReader) -> str | None:
    """Return the encoding whose byte order mark the file starts with; None for UTF-8 and for files without a mark."""
    start = file.peek(4)[:4]
    return next((encoding for mark, encoding in _MARKS.items() if start.startswith(mark)), None)


def _decoded_lines(
    file: io.BufferedReader, path: InputFile, options: ReadOptions, encoding: str
) -> Iterator[tuple[int, str]]:
    number, longest = 0, LINE.value * MEGABYTE
    try:
        for line in iter(partial(file.readline, longest + 1), b""):
            number += 1
            if len(line) > longest:
                raise _too_long(path, number)
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                options.on_error(_not_utf8(path, number, error.start))
                continue
            finally:
                encoding = "utf-8" if encoding == "utf-8-sig" else encoding  # only the first line may have a mark
            yield number, text.rstrip("\r\n")
    except READ_FAILURES as error:
        options.on_error(read_failure(error, path, number + 1))


def _wide_lines(
    file: io.BufferedReader, path: InputFile, options: ReadOptions, encoding: str
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file in UTF-16 or UTF-32; after an error the rest is lost."""
    number, longest = 0, LINE.value * MEGABYTE
    try:
        text = io.TextIOWrapper(file, encoding=encoding, newline="\n")
        for line in iter(partial(text.readline, longest + 1), ""):
            number += 1
            if len(line) > longest:
                raise _too_long(path, number)
            yield number, line.rstrip("\r\n")
    except UnicodeDecodeError:
        options.on_error(InputError(f"not valid {encoding.upper()}", path=path, row=number + 1))
    except READ_FAILURES as error:
        options.on_error(read_failure(error, path, number + 1))


def guess_encoding(path: InputFile, options: ReadOptions) -> str | None:
    """Return the encoding to decode each line with; None for UTF-8 and marked files.

    Reads the whole file. Raises `InputError` where neither UTF-8 nor Windows-1252 fits.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_bytes(path) as file:
        try:
            if marked := _marked_encoding(file):
                if options.note:
                    options.note(f"{path.name} was read as {marked.upper()}")
                return None
            while chunk := file.read(_CHUNK):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            pass
        except READ_FAILURES:
            return None  # the reader reports it, with the row
        else:
            return None
    _check_latin(path)
    if options.note:
        shown = f"{path.name} is not UTF-8 and was read as {_LATIN_NAME}"
        options.note(f"{shown}; if letters with accents look wrong, save it as UTF-8")
    return _LATIN


def _check_latin(path: InputFile) -> None:
    """Raise `InputError` for a file that is hardly Western European text, or that is UTF-8 but for some lines."""
    letters = high = 0
    has_utf8 = False
    first_other: tuple[int, int] | None = None  # line and byte
    with open_bytes(path) as file:
        lines = iter(partial(file.readline, LINE.value * MEGABYTE), b"")
        for number, line in enumerate(lines, start=1):
            index = _invalid_byte(line, _LATIN)
            if index is None and (control := _CONTROL.search(line)):
                index = control.start()
            if index is not None:
                raise _no_encoding(path, number, index)
            letters += len(_LETTERS.findall(line))
            if line.isascii():
                continue
            high += len(_HIGH.findall(line))
            invalid = _invalid_byte(line, "utf-8")
            has_utf8 = has_utf8 or invalid is None
            first_other = first_other or (None if invalid is None else (number, invalid))
    if has_utf8 and first_other:
        row, index = first_other
        raise _not_utf8(path, row, index)
    if high > _MOST_HIGH_LETTERS * letters:
        raise _no_encoding(path)


def _invalid_byte(line: bytes, encoding: str) -> int | None:
    """Return the index of the first byte that cannot be decoded; None without one."""
    try:
        line.decode(encoding)
    except UnicodeDecodeError as error:
        return error.start
    return None


def _too_long(path: InputFile, row: int) -> InputError:
    return InputError(f"a line of more than {LINE.value} MB", path=path, row=row, hint=LINE.hint)


def _not_utf8(path: InputFile, row: int, index: int) -> InputError:
    message = f"not valid UTF-8 (byte {index + 1} of the line)"
    return InputError(message, path=path, row=row, hint="save the file as UTF-8")


def _no_encoding(path: InputFile, row: int | None = None, index: int | None = None) -> InputError:
    byte = "" if index is None else f" (byte {index + 1} of the line)"
    message = f"neither UTF-8 nor {_LATIN_NAME}{byte}"
    return InputError(message, path=path, row=row, hint="save the file as UTF-8")
