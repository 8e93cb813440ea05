"""JSON Lines, an object per line; and JSON files with one list of objects."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

from endtask.errors import InputError, a_few
from endtask.io.compression import READ_FAILURES, open_bytes
from endtask.io.input_files import InputFile, ReadOptions
from endtask.io.lines import lines_of
from endtask.io.parsing import ParseError, parse_json, parse_json_line
from endtask.io.rows.base import NumberedRows, Row, RowFormat, row_formats

_ONE_PER_LINE = "one object per line"
_FORMS = '[{...}, {...}] or {"data": [{...}, {...}]}'


@row_formats.register("json_lines")
class JsonLines(RowFormat):
    """A JSON object per line; blank lines are skipped."""

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    precedence = 0

    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the objects, numbered by their lines."""
        for number, line in lines_of(path, options):
            line = line.strip()
            if not line:
                continue
            try:
                row = _object_of(line, path, number)
            except InputError as error:
                options.on_error(error)
            else:
                yield number, row


def _object_of(line: str, path: InputFile, number: int) -> Row:
    try:
        row = parse_json_line(line)
    except ParseError as error:
        raise InputError(f"not valid JSON: {error}", path=path, row=number, hint=_ONE_PER_LINE) from None
    if not isinstance(row, dict):
        raise InputError("not a JSON object", path=path, row=number, hint=_ONE_PER_LINE)
    if "\\ud" in line or "\\uD" in line:
        check_surrogates(row, path, number)
    return row


def check_surrogates(row: Row, path: InputFile, number: int) -> None:
    """Raise an InputError for half of a surrogate pair, which JSON allows but no file, hash or tokenizer accepts."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InputError(f"half of a character (\\u{ord(half):04x})", path=path, row=number) from None


@row_formats.register("json_list")
class JsonList(RowFormat):
    """A list of JSON objects, alone or as the only list of objects in an object; or JSON Lines under another name."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    def recognizes(self, path: InputFile) -> bool:
        """Return whether the file starts with a list of objects; other JSON of a folder may be settings."""
        try:
            with open_bytes(path) as file:
                start = file.read(1 << 12).decode("utf-8-sig", errors="replace")
        except (InputError, *READ_FAILURES):
            return True  # so that reading it reports the damage
        return "".join(start.split())[:2] in ("[{", "[]")

    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the objects, numbered from 1."""
        text = "\n".join(line for _, line in lines_of(path, options))
        try:
            value = parse_json(text)
        except ParseError as error:
            if _is_object(text.strip().partition("\n")[0]):
                yield from JsonLines().rows(path, replace(options, progress=None))
            else:
                options.on_error(InputError(f"not valid JSON: {error}", path=path, row=error.row))
            return
        yield from _checked_objects(_list_in(value, path), "\\ud" in text.lower(), path, options)


def _is_object(line: str) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ParseError:
        return False


def _list_in(value: Any, path: InputFile) -> list[Any]:
    """Return the list of rows: the value itself, or the only list of objects in an object."""
    if isinstance(value, list):
        return value
    members = value if isinstance(value, dict) else {}
    lists = {key: found for key, found in members.items() if isinstance(found, list) and _has_objects(found)}
    if len(lists) == 1:
        return next(iter(lists.values()))
    if len(lists) > 1:
        message = f"several lists of objects ({a_few(map(repr, lists), 5)})"
        raise InputError(message, path=path, hint="write each to a file of its own")
    if set(map(type, members.values())) <= {str, int, float, bool, type(None)} and members:
        return [value]  # JSON Lines of one line
    raise InputError("no list of JSON objects", path=path, hint=f"known: {_FORMS}")


def _has_objects(items: list[Any]) -> bool:
    return any(isinstance(item, dict) for item in items)


def _checked_objects(items: list[Any], has_escapes: bool, path: InputFile, options: ReadOptions) -> NumberedRows:
    """Yield the items, which must be objects."""
    for number, item in enumerate(items, start=1):
        try:
            if not isinstance(item, dict):
                raise InputError(f"not a JSON object but {_type_of(item)}", path=path, row=number, hint=_FORMS)
            if has_escapes:
                check_surrogates(item, path, number)
        except InputError as error:
            options.on_error(error)
        else:
            yield number, item


def _type_of(item: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(item), "null")
