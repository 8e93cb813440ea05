"""`endtask schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import examples
from endtask.terminal import print_lines

NAME = "schema"
EXAMPLES = examples(
    "endtask schema > endtask.schema.json",
    "endtask schema --output endtask.schema.json  # then in a settings file: # yaml-language-server: $schema=FILE",
)


def command(
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write a file instead of printing.")
    ] = None,
) -> None:
    """Print the JSON schema of settings files, with which editors complete keys and mark mistakes."""
    from endtask.config.schema import settings_schema
    from endtask.io.atomic import write_text

    text = json.dumps(settings_schema(), indent=2, ensure_ascii=False)
    if output is None:
        print_lines(*text.split("\n"))
    else:
        write_text(output, text + "\n")
        print_lines(f"wrote {output}")
