"""Apply command line flags to a study: variants, grid, seeds and baselines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from endtask.config.overrides import read_list, split_entry
from endtask.errors import InputError
from endtask.experiments.spec import Study, check_study
from endtask.io.parsing import ParseError, parse_yaml

_FLAGS = {"variants": "--variant", "grid": "--values"}
_VARIANT_EXAMPLE = "large:model.size=base,pretrain.learning_rate=5e-4"
# A comma inside a value, such as a list, is not followed by another key.
_BETWEEN_ENTRIES = re.compile(r",(?=\s*[A-Za-z_][A-Za-z0-9_.]*\s*=)")

Tree = dict[str, Any]


def with_flags(study: Study, flags: Mapping[str, Any]) -> Study:
    """Return the study with the values of flags: variants and grid are added, all other values are replaced."""
    tree = study.model_dump(mode="json")
    for key, value in flags.items():
        if value is None:
            continue
        if key in _FLAGS:
            value = check_study({key: value}).model_dump(mode="json")[key]  # in the same form as those of the study
            # An equal variant is allowed: a resumed command finds the variants of its first call in the folder.
            changed = next((name for name in value if tree[key].get(name, value[name]) != value[name]), None)
            if changed is not None:
                raise InputError(f"{changed!r} exists already with other settings", path=_FLAGS[key])
            value = {**tree[key], **value}
        tree[key] = value
    if flags.get("checkpoint") is not None and tree["baselines"] is not None:
        tree["baselines"] = _with_checkpoint(tree["baselines"], flags.get("baselines"))
    return check_study(tree)


def _with_checkpoint(baselines: Mapping[str, Tree] | Sequence[str], flag: Sequence[str] | None) -> Tree:
    """Return the baselines with that of `--checkpoint`; `flag` has the baselines of other flags."""
    if flag is not None and not flag:
        raise InputError("--checkpoint adds a baseline, and --no-baselines allows none", hint="leave out one of them")
    named = dict(baselines) if isinstance(baselines, Mapping) else {name: {} for name in baselines}
    return {**named, "checkpoint": named.get("checkpoint", {})}


def read_variants(entries: Sequence[str]) -> dict[str, Tree]:
    """Return the variants of `--variant NAME:key=value,key=value`, with values read as YAML.

    >>> read_variants(["small:", "large:model.size=base,finetune.learning_rate=[0.0001, 0.001]"])
    {'small': {}, 'large': {'model.size': 'base', 'finetune.learning_rate': [0.0001, 0.001]}}
    """
    variants: dict[str, Tree] = {}
    for entry in entries:
        name, colon, text = (part.strip() for part in entry.partition(":"))
        if not name or not colon:
            unchanged = f"; {name}: is the settings as they are" if name and "=" not in name else ""
            raise InputError(f"--variant {entry!r}: write it like {_VARIANT_EXAMPLE}{unchanged}")
        if name in variants:
            raise InputError(f"{name!r} is given twice", path="--variant")
        variants[name] = _read_values(name, text)
    return variants


def _read_values(name: str, text: str) -> Tree:
    values: Tree = {}
    for entry in _BETWEEN_ENTRIES.split(text) if text else ():
        key, value = split_entry(entry, f"--variant {name}:", _VARIANT_EXAMPLE)
        if key in values:
            raise InputError("the key is given twice", path=f"--variant {name}", key=key)
        try:
            values[key] = parse_yaml(value)
        except ParseError:
            raise InputError(f"{value!r} is not valid YAML", path=f"--variant {name}", key=key) from None
    return values


def read_grid(entries: Sequence[str]) -> dict[str, list[Any]]:
    """Return the grid of `--values key=a,b`."""
    grid: dict[str, list[Any]] = {}
    for entry in entries:
        key, text = split_entry(entry, "--values", "pretrain.weighting.rho1=1,19,99")
        if key in grid:
            raise InputError("the key is given twice", path="--values", key=key)
        grid[key] = read_list(text, "--values", key)
    return grid


def read_names(text: str | None) -> list[str] | None:
    """Return names separated by commas; None stays None.

    >>> read_names("plain, tapt"), read_names(None)
    (['plain', 'tapt'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",")]


def read_numbers(text: str | None, flag: str) -> list[int] | None:
    """Return whole numbers separated by commas; None stays None.

    >>> read_numbers("0,1,2", "--seeds")
    [0, 1, 2]
    """
    names = read_names(text)
    if names is None:
        return None
    if not all(name.isdecimal() for name in names):
        raise InputError(f"{flag} {text!r}: write whole numbers separated by commas", hint=f"{flag} 0,1,2")
    return [int(name) for name in names]


def read_variables(entries: Sequence[str]) -> dict[str, str]:
    """Return the variables of `--var NAME=TEXT`.

    >>> read_variables(["data=/mnt/data"])
    {'data': '/mnt/data'}
    """
    return dict(split_entry(entry, "--var", "data=/mnt/data") for entry in entries)
