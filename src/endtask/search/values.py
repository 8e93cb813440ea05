"""Settings with some values exchanged, and the checks that a searched key and its values must pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import yaml

from endtask.errors import InputError
from endtask.settings import Settings, resolve
from endtask.settings.load import merge

Values = dict[str, Any]

# Trials that differ in one of these have other dev rows, another score or another price.
_NOT_SEARCHED = ("output_dir", "budget", "seed", "task", "evaluate")
_MOST_COMBINATIONS = 4096


def with_values(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    """The settings with the values at some dotted keys exchanged; `where` begins the line of a mistake.

    >>> with_values(Settings(), {"train.rho1": 3}, "--values").train.rho1
    3
    >>> with_values(Settings(), {"train.rho3": 3}, "--values")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: --values, key 'train.rho3': unknown setting (did you mean 'train.rho2'?)
    """
    tree = settings.model_dump(mode="json")
    for key, value in values.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        merge(tree, value)
    return resolve(tree, where)


def value_at(settings: Settings, key: str) -> Any:
    """The value at a dotted key, as JSON has it.

    >>> value_at(Settings(), "budget")
    '10min'
    """
    value: Any = settings.model_dump(mode="json")
    for name in key.split("."):
        value = value[name]
    return value


def checked(settings: Settings, key: str, values: Sequence[Any], where: str) -> tuple[Any, ...]:
    """The values of one key in the form settings give them; keys and values that settings refuse are refused."""
    if key.partition(".")[0] in _NOT_SEARCHED:
        raise InputError("trials that differ in this cannot be compared on dev", path=where, key=key)
    found = tuple(value_at(with_values(settings, {key: value}, where), key) for value in values)
    if any(isinstance(value, dict) for value in found):
        raise InputError("a section, not a value", path=where, key=key)
    twice = next((value for value in found if found.count(value) > 1), None)
    if twice is not None:
        raise InputError(f"the value {twice!r} stands twice", path=where, key=key)
    return found


def check_together(settings: Settings, axes: Mapping[str, Sequence[Any]], where: str) -> None:
    """Refuse now what would stop a search half-way: values that are right alone and wrong together."""
    if math.prod(map(len, axes.values())) <= _MOST_COMBINATIONS:
        for values in product(*axes.values()):
            with_values(settings, dict(zip(axes, values, strict=True)), where)


def split_entry(entry: str, where: str, example: str) -> tuple[str, str]:
    """The two sides of `key=...`."""
    key, _, text = (side.strip() for side in entry.partition("="))
    if not key or not text or not all(key.split(".")):
        raise InputError(f"{where} {entry!r}: write it like {example}")
    return key, text


def read_list(text: str, where: str, key: str) -> list[Any]:
    """Values between commas, each read as YAML: numbers, words, `null`, lists in brackets."""
    try:
        values = yaml.safe_load(f"[{text}]")
    except yaml.YAMLError:
        values = None
    if not isinstance(values, list) or not values:
        raise InputError(f"{text!r} is not a list of values with commas between", path=where, key=key)
    return values
