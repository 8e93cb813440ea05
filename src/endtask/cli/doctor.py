"""`endtask doctor`."""

from __future__ import annotations

import typer

from endtask.cli.options import JsonOption, examples
from endtask.terminal import print_json, print_lines

NAME = "doctor"
EXAMPLES = examples("endtask doctor", "endtask doctor --json")


def command(as_json: JsonOption = False) -> None:
    """Show versions, devices, caches and missing extras, and name known problems with a remedy.

    The exit code is 1 if there is a problem.
    """
    from endtask.pipeline.doctor import diagnose

    found = diagnose()
    print_json(found.to_dict()) if as_json else print_lines(*found.lines())
    if found.problems:
        raise typer.Exit(1)
