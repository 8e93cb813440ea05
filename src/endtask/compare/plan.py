"""The cells of a comparison with their whole settings, and the runs that they come to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from endtask.compare.baselines import baseline_cells, untrained_baselines
from endtask.compare.cell import CELLS, Cell, refuse_keys, seeds_that_matter
from endtask.compare.comparison import Comparison
from endtask.config import Settings
from endtask.config.overrides import value_at, with_values
from endtask.encoders.bundled_checkpoint import SMALL_PRETRAINED
from endtask.errors import InputError, did_you_mean

ONLY_CELL = "base"
"""The name of the one cell where none is given: the settings as they are, against the baselines."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]*")
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Plan:
    """All cells, the untrained baselines, the name that the others are tested against, and the comparison asked for.

    In `asked` nothing is left to defaults, which may be others elsewhere.
    """

    settings: Settings
    asked: Comparison
    cells: tuple[Cell, ...]
    untrained: tuple[str, ...]
    against: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every row of the table: cells, then baselines from the plainest on."""
        own = tuple(cell.name for cell in self.cells if not cell.is_baseline)
        return (*own, *self.untrained, *(cell.name for cell in self.cells if cell.is_baseline))

    def cell(self, name: str) -> Cell:
        """The cell of a name."""
        return next(cell for cell in self.cells if cell.name == name)


def make_plan(settings: Settings, comparison: Comparison, where: str = "comparison") -> Plan:
    """Everything that is to be run; `settings.output_dir` is the comparison's folder."""
    base = settings
    if comparison.finetune_seeds is not None:
        base = with_values(settings, {"finetune.seeds": comparison.finetune_seeds}, where)
    cells = listed_cells(base, comparison, where)
    names = [cell.name for cell in cells]
    against = comparison.against or names[0]
    if against not in names:
        raise InputError(f"no cell is named {against!r}", path=where, key="against", hint=did_you_mean(against, names))
    first = next(cell for cell in cells if cell.name == against)
    seeds = comparison.seeds or (base.pretrain_seed,)
    baselines = baseline_cells(comparison, first, seeds, Path(settings.output_dir) / CELLS, where)
    untrained = untrained_baselines(comparison)
    asked = _as_asked(comparison, [*untrained, *(cell.name for cell in baselines)], seeds, base, against)
    plan = Plan(base, asked, (*cells, *baselines), untrained, against)
    _refuse_twice(plan.names, where)
    return plan


def _as_asked(
    comparison: Comparison, baselines: Iterable[str], seeds: tuple[int, ...], settings: Settings, against: str
) -> Comparison:
    told = comparison.baselines or {}
    changes: dict[str, Any] = {
        "cells": comparison.cells if comparison.cells or comparison.grid else {ONLY_CELL: {}},
        "seeds": seeds,
        "finetune_seeds": settings.finetune.seeds,
        "baselines": {name: told.get(name, {}) for name in baselines},
        "against": against,
    }
    if "checkpoint" in changes["baselines"]:
        changes["checkpoint"] = comparison.checkpoint or SMALL_PRETRAINED
    return comparison.model_copy(update=changes)


def listed_cells(settings: Settings, comparison: Comparison, where: str) -> list[Cell]:
    """The cells that were listed, then those of the grid."""
    values = {**comparison.cells, **_grid(settings, comparison, where)} or {ONLY_CELL: {}}
    _refuse_twice([*comparison.cells, *(name for name in values if name not in comparison.cells)], where)
    seeds = comparison.seeds or (settings.pretrain_seed,)
    cells = []
    for name, changed in values.items():
        place = f"{where}, cell {name!r}"
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            hint = f"letters, digits and . _ = , + - only, at most {_LONGEST_NAME}, as it names a folder too"
            raise InputError("not a name for a cell", path=place, hint=hint)
        refuse_keys(changed, place)
        found = with_values(settings, changed, place)
        cells.append(Cell(name, found, seeds_that_matter(found, seeds)))
    return cells


def _grid(settings: Settings, comparison: Comparison, where: str) -> dict[str, dict[str, Any]]:
    """A cell for each combination, the last key changing fastest, named after its values."""
    grid = {key: _checked(settings, key, values, where) for key, values in comparison.grid.items()}
    if not grid:
        return {}
    last = [key.rpartition(".")[2] for key in grid]
    short = {key: name if last.count(name) == 1 else key for key, name in zip(grid, last, strict=True)}
    found: dict[str, dict[str, Any]] = {}
    for values in product(*grid.values()):
        name = ",".join(f"{short[key]}={_as_name(value)}" for key, value in zip(grid, values, strict=True))
        if name in {*found, *comparison.cells}:
            raise InputError(f"two cells would be named {name!r}", path=where, key="grid", hint="list them as `cells`")
        found[name] = dict(zip(grid, values, strict=True))
    return found


def _checked(settings: Settings, key: str, values: Iterable[Any], where: str) -> list[Any]:
    """The values as settings give them, which tells 1e-3 and 0.001 for the same."""
    found: list[Any] = []
    refuse_keys({key: None}, where)
    for value in values:
        read = value_at(with_values(settings, {key: value}, where), key)
        if isinstance(read, dict):
            raise InputError("a section, not a value", path=where, key=key)
        if read in found:
            raise InputError(f"the value {value!r} stands twice", path=where, key=key)
        found.append(read)
    return found


def _as_name(value: Any) -> str:
    """A value as a part of a name; what a folder's name should not hold becomes a hyphen.

    >>> _as_name(0.0003), _as_name(1000.0), _as_name("hf:some/model"), _as_name([0, 1])
    ('0.0003', '1000', 'hf-some-model', '0-1')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-") or "-"


def _refuse_twice(names: Iterable[str], where: str) -> None:
    """Names are folders too, and some disks do not tell upper from lower case."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            message = (
                f"two cells are named {name!r}" if name == other else f"{other!r} and {name!r} differ only in case"
            )
            raise InputError(message, path=where, hint="baselines count; --no-baselines leaves them out")
        seen[name.casefold()] = name
