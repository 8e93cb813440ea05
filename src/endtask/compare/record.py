"""compare.json: what a comparison was asked, how each run ended and the table; written whole after every change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from endtask.compare.cell import CELLS
from endtask.compare.plan import Plan
from endtask.config.loading import up_to_date
from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.nested import changes_in_words
from endtask.io.stage_folder import MANIFEST

COMPARE_FILE = "compare.json"
Tree = dict[str, Any]

# These never change what a run comes to.
_MAY_CHANGE = ("output_dir", "keep_scratch", "bundle_size")


@dataclass(frozen=True)
class Record:
    """A comparison as it stands.

    `settings` are those that all cells start from, `comparison` is what was asked last. `cells` holds what every cell
    ever asked for differs in, `failures` why runs failed by their key, and `outcome` the figures of the table.
    """

    folder: Path
    settings: Tree
    comparison: Tree
    cells: dict[str, Tree] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    outcome: Tree | None = None

    def with_failure(self, key: str, reason: str) -> Record:
        """The record with one more run that failed; saved."""
        return replace(self, failures={**self.failures, key: reason}).save()

    def with_outcome(self, outcome: Mapping[str, Any]) -> Record:
        """The record with the figures of the table; saved."""
        return replace(self, outcome=dict(outcome)).save()

    def statistics(self) -> Tree:
        """Plain values for JSON."""
        return {
            "settings": self.settings,
            "comparison": self.comparison,
            "cells": self.cells,
            "failures": self.failures,
            "outcome": self.outcome,
        }

    def save(self) -> Record:
        """Write the record to its folder; returns it."""
        write_json(self.folder / COMPARE_FILE, self.statistics())
        return self


def open_record(folder: Path, plan: Plan) -> Record:
    """The record in the folder with what is asked now; other settings than its runs were made with are refused.

    Cells and seeds may be added and left out; a cell that something was done for must stay what it was. Nothing is
    written yet.
    """
    settings = plan.settings.model_dump(mode="json", exclude=set(_MAY_CHANGE))
    cells = {cell.name: cell.differs(plan.settings) for cell in plan.cells}
    comparison = plan.asked.model_dump(mode="json")
    asked: Tree = json.loads(json.dumps({"settings": settings, "comparison": comparison, "cells": cells}))
    if not _is_begun(folder):
        return Record(folder, **asked)
    found = read_record(folder)
    before = up_to_date(found.settings, without=_MAY_CHANGE, where=str(folder / COMPARE_FILE))
    _refuse_other(folder, "", _without_seeds(before), _without_seeds(asked["settings"]))
    changed = {name for name, values in asked["cells"].items() if found.cells.get(name, values) != values}
    for name in sorted(changed):
        if _has_stages(folder, name):
            _refuse_other(folder, f"the cell {name!r} in ", found.cells[name], asked["cells"][name])
    asked["cells"] = {**found.cells, **asked["cells"]}
    failures = {key: reason for key, reason in found.failures.items() if key.partition("/")[0] not in changed}
    return Record(folder, **asked, failures=failures, outcome=found.outcome)


def _without_seeds(settings: Tree) -> Tree:
    """Fine-tuning with other seeds is done again, on the same pre-training."""
    finetune = {name: value for name, value in settings["finetune"].items() if name != "seeds"}
    return {**settings, "finetune": finetune}


def _is_begun(folder: Path) -> bool:
    """Whether there is work in the folder that what is asked has to agree with."""
    return (folder / COMPARE_FILE).exists() and (folder / CELLS).exists()


def _has_stages(folder: Path, cell: str) -> bool:
    """Whether some stage of the cell was begun."""
    return any((folder / CELLS / cell).glob(f"seed-*/*/{MANIFEST}"))


def read_record(folder: Path) -> Record:
    """The record in a comparison's folder."""
    path = folder / COMPARE_FILE
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        names = ("settings", "comparison", "cells", "failures", "outcome")
        return Record(folder, **{name: tree[name] for name in names})
    except FileNotFoundError:
        hint = "endtask compare --output FOLDER makes one"
        raise InputError("no comparison here", path=folder, hint=hint) from None
    except (ValueError, KeyError, TypeError):
        raise InputError("not the record of a comparison", path=path, hint="was the file changed by hand?") from None


def _refuse_other(folder: Path, what: str, old: Tree, new: Tree) -> None:
    changes = changes_in_words(old, new)
    if changes:
        raise InputError(
            f"this comparison was asked otherwise: {what}{', '.join(changes[:4])}",
            path=folder,
            hint="choose another --output; nothing was touched",
        )
