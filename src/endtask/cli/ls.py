"""`endtask ls`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, examples
from endtask.terminal import print_json, print_lines

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
        print_json([run.to_dict() for run in runs])
        return
    print_lines(*(table_lines(runs) if runs else [f"no runs in {folder}"]))
