"""Prepare the evidence for end-task aware training where the corpus is; a GPU then trains.

    .venv/bin/python -m benchmarks.tartan.prepare sciie plain tapt --name first     # here, a few minutes
    python3 -m benchmarks.tartan.train runs/tartan/sciie-scratch-first.tar.zst --out rows      # on a GPU
    .venv/bin/python -m benchmarks.tartan.page --results rows                                  # what came back

The tables named are one comparison, whose cells share their tokens. Several comparisons may train at once on one GPU,
which a small model leaves idle most of the time; the page takes all files of a task and a body together. All cells from
random weights share one tokenizer, learned from the task and all of the domain. `--body checkpoint` continues from a
small pretrained encoder (`--checkpoint`, in half precision if it is to fit into a bundle: see
benchmarks.half_checkpoint).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.arms import some_arms
from benchmarks.tartan.cells import DOMAINS, PLAIN, TABLES, Body, base_settings, cells, seeds
from endtask.bundle import write_bundle
from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.encoders.checkpoint_files import SMALL_PRETRAINED
from endtask.errors import InputError
from endtask.experiments import ComparisonResult, compare
from endtask.pipeline.run import Run

ROOT = Path(__file__).resolve().parents[2]
STEPS = 300
_WHOLE_DOMAIN = {"pretrain.objectives.dapt.weight": 1, "domain.amount": "all"}


class Prepared:
    """The folder of a task and a body: the tokenizer, and a comparison for each table."""

    def __init__(self, folder: Path, settings: Settings, encoder: Body) -> None:
        self.folder, self.settings, self.encoder = folder, settings, encoder

    def shared(self) -> Settings:
        """The settings of all cells: with the tokenizer that is learned first, unless a checkpoint brings its own."""
        if self.settings.model.path is not None:
            return self.settings
        values = {**_WHOLE_DOMAIN, "output_dir": str(self.folder / "base")}
        Run(with_values(self.settings, values, "base")).go(until="pack")
        tokenizer = str(self.folder / "base" / "pack" / "tokenizer")
        return with_values(self.settings, {"tokenizer.path": tokenizer}, "base")

    def compared(
        self, tables: Sequence[str], *, arms: Sequence[str] = (), some: Sequence[int] = (), name: str = "", **asked: Any
    ) -> ComparisonResult:
        """A comparison of all arms of some tables, or of some, up to its tokens or, with `until`, another stage.

        `some` are the seeds, where not all ten are wanted.
        """
        name = name or name_of(tables)
        settings = with_values(self.shared(), {"output_dir": str(self.folder / name)}, name)
        found = {arm: values for table in tables for arm, values in self._cells(table).items()}
        found = some_arms(found, arms, name)
        comparison: dict[str, Any] = {"variants": found, **seeds(found, self.encoder, some), "baselines": []}
        until = asked.pop("until", "pack")
        return compare(settings, comparison | asked, until=until)

    def _cells(self, table: str) -> dict[str, dict[str, Any]]:
        return cells(table, self.encoder, self.settings.budget)


def name_of(tables: Sequence[str]) -> str:
    """What the folder and the bundle of some tables are called."""
    return "_".join(tables)


def main() -> None:
    """Prepare and bundle the tables that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=sorted(DOMAINS))
    parser.add_argument("tables", nargs="*", help=f"which of {', '.join(TABLES)}; all that go together")
    parser.add_argument("--arms", nargs="*", default=[], help="some of the tables'; all")
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="some of the ten, where others are trained")
    parser.add_argument("--name", default="", help="of the bundle; the names of its tables")
    parser.add_argument("--body", choices=("scratch", "checkpoint"), default="scratch")
    parser.add_argument("--checkpoint", default=SMALL_PRETRAINED, help="what the encoder `checkpoint` goes on from")
    parser.add_argument("--steps", type=int, default=STEPS, help="of pre-training, at most")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "tartan", help="where everything goes")
    given = parser.parse_args()
    try:
        if unknown := [table for table in given.tables if table not in TABLES]:
            raise InputError(f"no table is named {unknown[0]!r}", hint=f"known: {', '.join(TABLES)}")
        settings = base_settings(given.task, given.encoder, given.data, steps=given.steps, checkpoint=given.checkpoint)
        found = Prepared(given.out / f"{given.task}-{given.encoder}", settings, given.encoder)
        if (given.arms or given.seeds) and not given.name:
            raise InputError(
                "some arms or seeds are not their whole table", key="--name", hint="give the bundle a name"
            )
        tables = given.tables or [table for table in TABLES if (table, given.encoder) != (PLAIN, "checkpoint")]
        name = given.name or name_of(tables)
        found.compared(tables, arms=given.arms, some=given.seeds, name=name)
        bundle = write_bundle(found.folder / name, given.out / f"{found.folder.name}-{name}.tar.zst")
        print(json.dumps({"file": str(bundle.file), "bytes": bundle.bytes}))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
