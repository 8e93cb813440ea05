"""The checks that a searched key and its values must pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import value_at, with_values
from endtask.errors import InputError

# Trials that differ in one of these have other dev rows, another score, another price, or nothing but other luck.
_NOT_SEARCHED = ("output_dir", "budget", "seed", "pretrain.seed", "task", "evaluate")
_MOST_COMBINATIONS = 4096


def checked(settings: Settings, key: str, values: Sequence[Any], where: str) -> tuple[Any, ...]:
    """The values of one key in the form settings give them; keys and values that settings refuse are refused."""
    if key in _NOT_SEARCHED or key.partition(".")[0] in _NOT_SEARCHED:
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
