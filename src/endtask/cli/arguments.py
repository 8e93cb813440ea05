"""Arguments as the shell hands them over: files of an unquoted glob after `--corpus`."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from endtask.io.run_layout import SETTINGS_FILE

_CORPUS = "--corpus"
_SETTINGS_SUFFIXES = (".yaml", ".yml")


def with_whole_globs(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with one `--corpus GLOB` where a shell expanded an unquoted glob to several files.

    The glob comes back where it still matches the same files, so that both spellings are the same run; else each file
    is a `--corpus` of its own. Settings files and runs after the files stay what they are.

    >>> with_whole_globs(["check", "--corpus", "a.txt", "my.yaml"])
    ['check', '--corpus', 'a.txt', 'my.yaml']
    """
    rewritten: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument != _CORPUS or position == len(arguments):
            rewritten.append(argument)
            continue
        end = position + 1
        while end < len(arguments) and _is_another_file(arguments[end], arguments[position]):
            end += 1
        for entry in _as_glob(arguments[position:end]):
            rewritten += [_CORPUS, entry]
        position = end
    return rewritten


def _is_another_file(argument: str, first: str) -> bool:
    """Return whether an argument may come from the same glob as `first`: it is like it, and no settings."""
    path, like = Path(argument), Path(first)
    if argument.startswith("-") or path.suffix in _SETTINGS_SUFFIXES or (path / SETTINGS_FILE).exists():
        return False
    return path.exists() and (path.parent == like.parent or path.suffix == like.suffix)


def _as_glob(paths: Sequence[str]) -> list[str]:
    """Return a glob that matches exactly these paths, or the paths."""
    if len(paths) < 2:
        return list(paths)
    folder, suffix = os.path.commonpath(map(os.path.dirname, paths)), _common_suffix(paths)
    for below in ("*", "*/*", f"{glob.escape(_common_start(paths))}*"):
        pattern = os.path.join(glob.escape(folder), f"{below}{glob.escape(suffix)}")
        if {*map(os.path.normpath, glob.glob(pattern))} == {*map(os.path.normpath, paths)}:
            return [pattern]
    return list(paths)


def _common_start(paths: Sequence[str]) -> str:
    """Return the letters with which all file names begin."""
    letters = zip(*(os.path.basename(path) for path in paths), strict=False)
    return "".join(column[0] for column in takewhile(lambda column: len(set(column)) == 1, letters))


def _common_suffix(paths: Sequence[str]) -> str:
    suffixes = {Path(path).suffix for path in paths}
    return suffixes.pop() if len(suffixes) == 1 else ""
