"""`endtask ls`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, examples

NAME = "ls"
EXAMPLES = examples("endtask ls", "endtask ls runs/chemprot-compare --json")


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look [runs].")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """List the runs in a folder with their state, score and cost."""
    from endtask.reporting.run_list import list_runs, table_lines

    runs = list_runs(folder)
    if as_json:
        print(json.dumps([run.to_dict() for run in runs], ensure_ascii=False))
        return
    print("\n".join(table_lines(runs)) if runs else f"no runs in {folder}")
