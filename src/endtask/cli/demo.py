"""`endtask demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "demo"
EXAMPLES = examples("endtask demo", "endtask demo --output runs/demo --json")


def command(
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Folder for the demo's runs.")] = Path(
        "runs/demo"
    ),
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run all stages in about five minutes on two cores, on text that is already on this computer.

    The task: which of eight Python libraries does a documentation text come from? The corpus: the documentation
    strings of all libraries installed with endtask. Nothing is downloaded.
    """

    from endtask.demo import run_demo

    set_quiet(quiet)
    outcome = run_demo(output)
    print_json(outcome.statistics()) if as_json else print_lines(*outcome.table().split("\n"))
