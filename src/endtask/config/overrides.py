"""Replace settings at dotted keys, and read such keys and values from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pydantic import BaseModel

from endtask.config.automatic import choose_checkpoint, leave_automatic
from endtask.config.loading import merge, resolve
from endtask.config.messages import holds_named_sections, section_of
from endtask.config.objectives import tlm_objectives
from endtask.config.root import Settings
from endtask.errors import InputError
from endtask.io.parsing import ParseError, parse_yaml

Values = dict[str, Any]


def with_values(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    """Return the settings with new values at dotted keys; `where` begins the line of a mistake.

    Sections are changed key by key; {} removes all sections under names of the user's own, such as `tasks`.

    >>> with_values(Settings(), {"pretrain.weighting.rho1": 3}, "--values").pretrain.weighting.rho1
    3
    >>> with_values(Settings(), {"tokenizer.pth": 3}, "--values")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: --values, key 'tokenizer.pth': unknown setting (did you mean 'tokenizer.path'?)
    """
    tree = without_default_names(settings.model_dump(mode="json"))
    for key, value in values.items():
        *parents, last = key.split(".")
        change = {last: value}
        for name in reversed(parents):
            change = {name: change}
        if value == {} and _holds_names(parents, last):
            reduce(lambda section, name: section.setdefault(name, {}), parents, tree)[last] = {}
        else:
            leave_automatic(tree, change)
            merge(tree, change)
    choose_checkpoint(tree)
    return resolve(tree, where)


def without_default_names(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without the default objectives, so that the objectives of a variant replace them.

    >>> "objectives" in without_default_names(Settings().model_dump(mode="json"))["pretrain"]
    False
    """
    default = {name: item.model_dump(mode="json") for name, item in tlm_objectives().items()}
    if tree["pretrain"]["objectives"] != default:
        return tree
    return {**tree, "pretrain": {key: value for key, value in tree["pretrain"].items() if key != "objectives"}}


def _holds_names(parents: Sequence[str], last: str) -> bool:
    """Whether a key holds sections under names of the user's own, such as auxiliary tasks."""
    model: type[BaseModel] | None = Settings
    for name in parents:
        model = section_of(model, name) if model is not None else None
    return model is not None and holds_named_sections(model, last)


def value_at(settings: Settings, key: str) -> Any:
    """Return the value at a dotted key as plain data for JSON.

    >>> value_at(Settings(), "budget")
    '10min'
    """
    value: Any = settings.model_dump(mode="json")
    for name in key.split("."):
        value = value[name]
    return value


def split_entry(entry: str, where: str, example: str) -> tuple[str, str]:
    """Return key and value of `key=value`.

    >>> split_entry("pretrain.weighting.rho1=1,19", "--values", "pretrain.weighting.rho1=1,19,99")
    ('pretrain.weighting.rho1', '1,19')
    """
    key, _, text = (side.strip() for side in entry.partition("="))
    if not key or not text or not all(key.split(".")):
        raise InputError(f"{where} {entry!r}: write it like {example}")
    return key, text


def read_list(text: str, where: str, key: str) -> list[Any]:
    """Return values between commas, each read as YAML: numbers, words, `null`, lists in brackets.

    >>> read_list("1, inf, null, [0, 1]", "--values", "pretrain.weighting.rho1")
    [1, 'inf', None, [0, 1]]
    """
    try:
        values = parse_yaml(f"[{text}]")
    except ParseError:
        values = None
    if not isinstance(values, list) or not values:
        raise InputError(f"{text!r} is not a list of values with commas between", path=where, key=key)
    return values
