"""Parse JSON and YAML that anyone may have written; mistakes, deep nesting and alias bombs are a `ParseError`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from endtask.errors import InputError
from endtask.io.input_files import open_file
from endtask.io.limits import NESTING

_FEW = 20
"""Brackets; a text with fewer cannot be nested too deeply under any sensible limit."""
_MOST_YAML_VALUES = 100_000
"""Values of a YAML text after aliases are replaced; ten lines of aliases can make billions."""
_CONTAINERS = (dict, list, tuple, set)
_decode = json.JSONDecoder().raw_decode


class ParseError(ValueError):
    """A text is not valid JSON or YAML; `row` is its line, if known."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def parse_json(text: str | bytes, *, unique_keys: bool = False) -> Any:
    """Return the value of a JSON text; `unique_keys` refuses objects that give a key twice.

    >>> parse_json("[" * 5000)
    Traceback (most recent call last):
    endtask.io.parsing.ParseError: nested more than 100 levels deep
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique if unique_keys else None)
    except RecursionError:
        raise too_deep() from None
    except json.JSONDecodeError as error:
        raise ParseError(error.msg, error.lineno) from None
    except ValueError as error:  # not UTF-8, a number of thousands of digits, a key given twice
        raise ParseError(str(error)) from None
    return _checked_depth(value, text)


def parse_json_line(line: str) -> Any:
    """Return the value of a JSON text without white space around it; faster than `parse_json`."""
    try:
        value, end = _decode(line)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise ParseError(getattr(error, "msg", str(error))) from None
    if end < len(line):
        raise ParseError("Extra data")
    return _checked_depth(value, line)


def read_json(path: Path, *, hint: str | None = None) -> Any:
    """Return the value in a JSON file; `hint` is for a file that is damaged."""
    with open_file(path) as file:
        content = file.read()
    try:
        return parse_json(content)
    except ParseError as error:
        raise InputError(f"not valid JSON: {error}", path=path, row=error.row, hint=hint) from None


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text, which may not give a key twice, nor hold tags that make objects.

    >>> parse_yaml("when: !!bool maybe")
    Traceback (most recent call last):
    endtask.io.parsing.ParseError: 'maybe' does not fit its tag !!bool
    >>> parse_yaml("[1, two]")
    [1, 'two']
    """
    try:
        value = yaml.load(text, _YamlLoader)
    except RecursionError:
        raise too_deep() from None
    except yaml.MarkedYAMLError as error:
        row = error.problem_mark.line + 1 if error.problem_mark else None
        raise ParseError(error.problem or "a mistake that the parser does not name", row) from None
    except yaml.reader.ReaderError as error:
        raise ParseError(error.reason, text.count("\n", 0, error.position) + 1) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ParseError(" ".join(str(error).split())) from None
    _check_size(value)
    return value


class _YamlLoader(yaml.SafeLoader):
    """YAML that refuses repeated keys; PyYAML alone would silently let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; PyYAML raises many kinds of errors for words that do not fit their tag."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, IndexError, TypeError, OverflowError):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            shown = f"{node.value[:40]!r}" if isinstance(node, yaml.ScalarNode) else "a value"
            problem = f"{shown} does not fit its tag {tag}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


def too_deep() -> ParseError:
    """Return the error for a text that is nested too deeply."""
    return ParseError(f"nested more than {NESTING.value} levels deep")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in tree if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return tree


def _checked_depth(value: Any, text: str | bytes) -> Any:
    if isinstance(value, dict | list) and _brackets(text) > _FEW:
        _check_size(value, most=None)
    return value


def _brackets(text: str | bytes) -> int:
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{")
    return text.count("[") + text.count("{")


def _check_size(value: Any, most: int | None = _MOST_YAML_VALUES) -> None:
    """Raise for a value that is nested too deeply or, counted with repetitions, has too many values."""
    count, level = 0, [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(NESTING.value):
        inner = (each for outer in level for each in _inside(outer))
        values = list(inner if most is None else islice(inner, most + 1))
        count += len(values)
        if most is not None and count > most:
            raise ParseError(f"more than {most:,} values, counted with aliases")
        level = [each for each in values if isinstance(each, _CONTAINERS)]
        if not level:
            return
    raise too_deep()


def _inside(value: Any) -> Iterable[Any]:
    """Return the values in a list or mapping."""
    return value.values() if isinstance(value, dict) else value
