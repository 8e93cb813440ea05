"""`endtask verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "verify"
EXAMPLES = examples("endtask verify runs/chemprot", "endtask verify runs  # all runs below a folder")


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, or a folder with runs.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare every file of a run with the size and digest that its stage recorded.

    Each damaged file gets a line with the command that makes it again. The exit code is 1 if there is one.
    """
    from endtask.pipeline.verify import verify

    set_quiet(quiet or as_json)
    found = verify(run)
    if as_json:
        print_json(found.to_dict())
    else:
        print_lines(*found.lines())
    if found.damaged:
        raise typer.Exit(1)
