"""A comparison as the command line gives it: in a file, by flags, or as it stands in a folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from endtask.compare.comparison import Comparison, check_comparison, read_comparison
from endtask.compare.plan import listed_cells
from endtask.compare.record import COMPARE_FILE, read_record
from endtask.config import Settings, resolve
from endtask.config.overrides import read_list, split_entry
from endtask.errors import InputError

_FLAGS = {"cells": "--cell", "grid": "--values"}
_CELL_EXAMPLE = "large:model.size=base,pretrain.learning_rate=5e-4"
# A comma inside a value, such as a list, is not followed by another key.
_BETWEEN_ENTRIES = re.compile(r",(?=\s*[A-Za-z_][A-Za-z0-9_.]*\s*=)")

Tree = dict[str, Any]


def is_comparison(folder: Path) -> bool:
    """Whether a comparison stands in the folder."""
    return (folder / COMPARE_FILE).is_file()


def read_comparison_folder(folder: Path) -> tuple[Settings, Comparison]:
    """Settings and comparison as they were asked for last in a comparison's folder."""
    record, path = read_record(folder), str(folder / COMPARE_FILE)
    settings = resolve({**record.settings, "output_dir": str(folder)}, path)
    return settings, check_comparison(record.comparison, path)


def from_file(path: Path | None, settings: Settings) -> Comparison:
    """The comparison in a file, its cells checked under the file's name; without a file an empty one."""
    if path is None:
        return Comparison()
    comparison = read_comparison(path)
    listed_cells(settings, comparison, str(path))
    return comparison


def with_flags(comparison: Comparison, flags: Mapping[str, Any]) -> Comparison:
    """The comparison with what flags say: cells and grid are added to, everything else is exchanged."""
    tree = comparison.model_dump(mode="json")
    for key, value in flags.items():
        if value is None:
            continue
        if key in ("cells", "grid"):
            value = check_comparison({key: value}).model_dump(mode="json")[key]  # written as the others are
            # The same again is no mistake: that is how a stopped command goes on in a folder that knows it already.
            other = next((name for name in value if tree[key].get(name, value[name]) != value[name]), None)
            if other is not None:
                raise InputError(f"{other!r} is there already, and another one", path=_FLAGS[key])
            value = {**tree[key], **value}
        tree[key] = value
    if flags.get("checkpoint") is not None and tree["baselines"] is not None:
        tree["baselines"] = _with_checkpoint(tree["baselines"], flags.get("baselines"))
    return check_comparison(tree)


def _with_checkpoint(baselines: Mapping[str, Tree] | Sequence[str], flag: Sequence[str] | None) -> Tree:
    """The baselines and the one that `--checkpoint` is for; `flag` is what was said of baselines beside it."""
    if flag is not None and not flag:
        raise InputError("--checkpoint names a baseline, and --no-baselines wants none", hint="leave out one of them")
    named = dict(baselines) if isinstance(baselines, Mapping) else {name: {} for name in baselines}
    return {**named, "checkpoint": named.get("checkpoint", {})}


def read_cells(entries: Sequence[str]) -> dict[str, Tree]:
    """The cells of `--cell NAME:key=value,key=value`, values read as YAML.

    >>> read_cells(["small:", "large:model.size=base,finetune.learning_rate=[0.0001, 0.001]"])
    {'small': {}, 'large': {'model.size': 'base', 'finetune.learning_rate': [0.0001, 0.001]}}
    """
    cells: dict[str, Tree] = {}
    for entry in entries:
        name, colon, text = (part.strip() for part in entry.partition(":"))
        if not name or not colon:
            as_they_are = f"; {name}: is the settings as they are" if name and "=" not in name else ""
            raise InputError(f"--cell {entry!r}: write it like {_CELL_EXAMPLE}{as_they_are}")
        if name in cells:
            raise InputError(f"{name!r} is given twice", path="--cell")
        cells[name] = _read_values(name, text)
    return cells


def _read_values(name: str, text: str) -> Tree:
    values: Tree = {}
    for entry in _BETWEEN_ENTRIES.split(text) if text else ():
        key, value = split_entry(entry, f"--cell {name}:", _CELL_EXAMPLE)
        if key in values:
            raise InputError("the key is given twice", path=f"--cell {name}", key=key)
        try:
            values[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(f"{value!r} is not valid YAML", path=f"--cell {name}", key=key) from None
    return values


def read_grid(entries: Sequence[str]) -> dict[str, list[Any]]:
    """The grid of `--values key=a,b`."""
    grid: dict[str, list[Any]] = {}
    for entry in entries:
        key, text = split_entry(entry, "--values", "pretrain.weighting.rho1=1,19,99")
        if key in grid:
            raise InputError("the key is given twice", path="--values", key=key)
        grid[key] = read_list(text, "--values", key)
    return grid


def read_numbers(text: str | None, flag: str) -> list[int] | None:
    """Seeds between commas.

    >>> read_numbers("0,1,2", "--seeds")
    [0, 1, 2]
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"{flag} {text!r}: write whole numbers with commas between", hint=f"{flag} 0,1,2")
    return [int(part) for part in parts]
