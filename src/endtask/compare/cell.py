"""A cell: one setting of a comparison, run once for each pre-training seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.io.digests import fingerprint
from endtask.io.nested import differences

CELLS = "cells"

_REFUSED = {
    "preset": "name the settings that it would change (docs/weighting.md has those of the ways to train)",
    "output_dir": "every run has a folder of its own",
    "evaluate.metric": "cells are compared by one metric",
    "pretrain.seed": "seeds are the same for all cells: give them as `seeds`",
    "finetune.seeds": "seeds are the same for all cells: give them as `finetune_seeds`",
}


@dataclass(frozen=True)
class Cell:
    """A name, the whole settings of its runs, the seeds of pre-training, and what a reader of its row has to know.

    `tokenizer_of` names another cell whose tokenizer is taken, which has to be there first.
    """

    name: str
    settings: Settings
    seeds: tuple[int, ...]
    is_baseline: bool = False
    note: str = ""
    tokenizer_of: str | None = None

    def differs(self, settings: Settings) -> dict[str, Any]:
        """The settings in which the cell differs from these, by dotted key, but for a tokenizer of another cell."""
        mine, theirs = (each.model_dump(mode="json", exclude={"output_dir"}) for each in (self.settings, settings))
        changed = {key: new for key, (_, new) in differences(theirs, mine).items()}
        if self.tokenizer_of is not None:
            changed.pop("tokenizer.path")
        return changed

    def runs(self, folder: Path) -> tuple[CellRun, ...]:
        """The cell's runs in a comparison's folder."""
        return tuple(CellRun(self, seed, folder / CELLS / self.name / f"seed-{seed}") for seed in self.seeds)

    def learned_tokenizer(self, folder: Path) -> str | None:
        """A mark of the tokenizer that the cell's runs learned; None where it was given, or none stands there."""
        if self.settings.model.path is not None or self.settings.tokenizer.path is not None:
            return None
        files = (run.tokenizer / "tokenizer.json" for run in self.runs(folder))
        return next((fingerprint(file.read_text("utf-8")) for file in files if file.exists()), None)


@dataclass(frozen=True)
class CellRun:
    """One run of a cell: an ordinary run folder."""

    cell: Cell
    seed: int
    folder: Path

    @property
    def key(self) -> str:
        """The run's name in the record."""
        return f"{self.cell.name}/seed-{self.seed}"

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer that the run reads by, once it has packed its texts."""
        return self.folder / "pack" / "tokenizer"

    @property
    def settings(self) -> Settings:
        """The whole settings of the run."""
        values: dict[str, Any] = {"output_dir": str(self.folder)}
        if self.seed != self.cell.settings.pretrain_seed:  # else it may stay unset, as in a run of the same settings
            values["pretrain.seed"] = self.seed
        return with_values(self.cell.settings, values, f"cell {self.cell.name!r}")


def refuse_keys(values: Mapping[str, Any], where: str) -> None:
    """Refuse settings in which cells may not differ.

    >>> refuse_keys({"pretrain.seed": 1}, "cells.yaml")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: cells.yaml, key 'pretrain.seed': cells cannot differ in this: seeds are the same for all \
cells: give them as `seeds`
    """
    for key in values:
        for refused, reason in _REFUSED.items():
            if key == refused or refused.startswith(f"{key}."):
                raise InputError(f"cells cannot differ in this: {reason}", path=where, key=key)


def seeds_that_matter(settings: Settings, seeds: tuple[int, ...]) -> tuple[int, ...]:
    """The pre-training seeds: of a checkpoint that is fine-tuned as it is there is nothing to repeat.

    >>> seeds_that_matter(Settings(), (0, 1))
    (0, 1)
    """
    return seeds[:1] if is_fine_tuned_as_it_is(settings) else seeds


def is_fine_tuned_as_it_is(settings: Settings) -> bool:
    """Whether a checkpoint is, with a new head: no seed but those of fine-tuning then changes anything."""
    return settings.skip_pretraining and settings.model.path is not None and settings.finetune.reset_head
