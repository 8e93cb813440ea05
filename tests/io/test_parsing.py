"""Parsers of JSON and YAML that anyone may have written: a value as the libraries give it, or one kind of error."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from endtask.io.parsing import ParseError, parse_json, parse_json_line, parse_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(TREES)
def test_values_are_those_of_the_libraries(value: Any) -> None:
    text = json.dumps(value)
    assert parse_json(text) == parse_json_line(text) == json.loads(text)
    assert parse_json(text.encode()) == value


@given(st.text(st.sampled_from("[]{}:,&*!\"'-?|>#%@ \n\tab01.~<")))
def test_yaml_is_a_value_or_a_parse_error(text: str) -> None:
    try:
        value = parse_yaml(text)
    except ParseError:
        return
    assert repr(value) == repr(yaml.safe_load(text))


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD_YAML = {
    "a tag with a wrong word": ("x: 1\ny: !!bool maybe", "'maybe' does not fit its tag !!bool", 2),
    "an empty number": ("!!int ''", "'' does not fit its tag !!int", 1),
    "an impossible date": ("when: 2024-13-45", "'2024-13-45' does not fit its tag !!timestamp", 1),
    "a wrong date": ("!!timestamp soon", "'soon' does not fit its tag !!timestamp", 1),
    "an object of Python": ("!!python/object:os.system x", "could not determine a constructor", 1),
    "deep lists": ("[" * 3000, "nested more than 100 levels deep", None),
    "deep mappings": ("\n".join(" " * n + "a:" for n in range(2000)), "nested more than 100 levels deep", None),
    "a billion laughs": (LAUGHS, "more than 100,000 values", None),
    "a list in itself": ("&a [*a]", "nested more than 100 levels deep", None),
    "a control character": ("a: 1\nb: \x01", "special characters are not allowed", 2),
    "a number too long for Python": ("9" * 5000, "does not fit its tag !!int", 1),
}


@pytest.mark.parametrize("name", BAD_YAML)
def test_bad_yaml(name: str) -> None:
    text, message, row = BAD_YAML[name]
    with pytest.raises(ParseError) as caught:
        parse_yaml(text)
    assert message in str(caught.value)
    assert caught.value.row == row


@pytest.mark.parametrize("parse", [parse_json, parse_json_line])
@pytest.mark.parametrize("text", ["[" * 99_999, '{"a":' * 150 + "1" + "}" * 150, "[" * 101 + "]" * 101, "1" * 5000, ""])
def test_bad_json(parse: Any, text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)
    assert parse("[" * 90 + "]" * 90)


def test_the_limit_on_nesting_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDTASK_MAX_NESTING", "30")
    with pytest.raises(ParseError, match="more than 30 levels"):
        parse_json("[" * 31 + "]" * 31)
