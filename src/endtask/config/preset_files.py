"""The presets that come with the package: short YAML files, some with a column of values per task of a paper."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

from endtask.errors import InputError, did_you_mean, nearest

Layer = dict[str, Any]

_FOLDER = resources.files("endtask.config") / "presets"
_SUFFIX = ".yaml"


def preset_names() -> list[str]:
    """Return all presets; for those with values per task also `preset:task` for each task.

    >>> [name for name in preset_names() if name.startswith("tlm-") and name.endswith("imdb")]
    ['tlm-large:imdb', 'tlm-medium:imdb', 'tlm-small:imdb']
    """
    with_task = [f"{name}:{task}" for name in _files() if name in _table() for task in _tasks_of(name)]
    return sorted([*_files(), *with_task])


def preset_layers(name: str) -> list[Layer]:
    """Return mappings to merge in this order: the preset that it builds on, its own settings, its task's column.

    >>> [layer["budget"] for layer in preset_layers("tlm-medium:hyperpartisan")]
    ['150000steps', '300000steps', '100000steps']
    """
    preset, colon, task = str(name).partition(":")
    if preset not in _files():
        near = nearest(preset, _files() if colon else preset_names())
        hint = f"did you mean '{near}{colon}{task}'?" if near else f"known: {', '.join(_files())}"
        raise InputError(f"unknown preset {name!r}", hint=hint)
    layer = _read(f"{preset}{_SUFFIX}")
    below = layer.pop("preset", None)
    layers = [*(preset_layers(below) if below else []), layer]
    return [*layers, _task_layer(preset, task)] if colon else layers


def _task_layer(preset: str, task: str) -> Layer:
    """Return the column of a task as nested sections."""
    table, columns, plain = _table(), _columns(), task.lower().replace("_", "-")
    if preset not in table:
        raise InputError(f"the preset {preset!r} has no values for single tasks", hint=f"write {preset} alone")
    if plain not in columns:
        raise InputError(f"unknown task {task!r} behind the preset {preset!r}", hint=did_you_mean(plain, columns))
    if table["tasks"][columns[plain]] not in _tasks_of(preset):
        hint = f"known: {', '.join(_tasks_of(preset))}"
        raise InputError(f"the preset {preset!r} has no values for the task {plain!r}", hint=hint)
    layer: Layer = {}
    for key, values in {**table["every_scale"], **table[preset]}.items():
        *sections, last = key.split(".")
        parent = layer
        for section in sections:
            parent = parent.setdefault(section, {})
        parent[last] = values[columns[plain]]
    return layer


def _tasks_of(preset: str) -> list[str]:
    """Return the tasks that have a value in every row of a preset."""
    table = _table()
    rows = table[preset].values()
    return [task for index, task in enumerate(table["tasks"]) if all(row[index] is not None for row in rows)]


def _columns() -> dict[str, int]:
    """Return the column of each task in the table, also by its other names."""
    table = _table()
    indices = {task: index for index, task in enumerate(table["tasks"])}
    others = {name: indices[task] for task, names in table["also_called"].items() for name in names}
    return indices | others


@cache
def _files() -> tuple[str, ...]:
    names = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


@cache
def _table() -> Layer:
    return {**_read("by_task/tlm.yaml"), **_read("by_task/iss.yaml")}


def _read(path: str) -> Layer:
    tree: Layer = yaml.safe_load(_FOLDER.joinpath(*path.split("/")).read_text(encoding="utf-8"))
    return tree
