"""Differences between nested mappings, such as settings, by dotted key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def flatten(tree: Mapping[str, Any], prefix: str = "", *, keep_empty: bool = False) -> dict[str, Any]:
    """Return the values of a nested mapping by dotted key; with `keep_empty`, empty mappings are values too.

    >>> flatten({"seed": 0, "pretrain": {"rho1": 19}})
    {'seed': 0, 'pretrain.rho1': 19}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and (value or not keep_empty):
            flat |= flatten(value, f"{prefix}{key}.", keep_empty=keep_empty)
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return (old, new) of each dotted key that differs; None for a missing value.

    >>> differences({"pretrain": {"rho1": 19, "rho2": 20}}, {"pretrain": {"rho1": 99, "rho2": 20}, "seed": 1})
    {'pretrain.rho1': (19, 99), 'seed': (None, 1)}
    """
    before, after = flatten(old), flatten(new)
    keys = dict.fromkeys([*after, *before])
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def changes_in_words(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences, each as `key (old -> new)`.

    >>> changes_in_words({"budget": "60steps"}, {"budget": "90steps"})
    ['budget (60steps -> 90steps)']
    """
    changed = differences(old, new).items()
    return [f"{key} ({in_yaml(before)} -> {in_yaml(after)})" for key, (before, after) in changed]


def in_yaml(value: Any) -> str:
    """Return a plain value as YAML on one line, as a user would type it.

    >>> in_yaml(None), in_yaml(True), in_yaml(0.1), in_yaml(["a", "b"])
    ('null', 'true', '0.1', '[a, b]')
    """
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
