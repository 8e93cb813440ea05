"""`endtask export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "export"
EXAMPLES = examples(
    "endtask export runs/chemprot --to onnx",
    "endtask export runs/chemprot --to int8 --output models/chemprot-int8",
    "endtask export runs/chemprot --to hub --repo my-name/chemprot",
)


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder; for --to hub also an exported folder.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="KIND", help="onnx, int8, sentence-transformers, encoder, dataset, hub, or a plug-in's."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FOLDER", help="A new folder [RUN/exports/KIND].")
    ] = None,
    repository: Annotated[
        str | None, typer.Option("--repo", metavar="OWNER/NAME", help="For --to hub: the repository.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="For --to hub: a public repository [private].")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Export the model or the selection of a finished run for other tools.

    onnx and int8 compare outputs, score and latency with torch on dev. Nothing is sent anywhere but by --to hub.
    """
    from endtask.export.base import export

    set_quiet(quiet or as_json)
    exported = export(run, to, output=output, repository=repository, public=public)
    if as_json:
        print_json({"target": exported.target, **exported.facts})
        return
    print_lines(*exported.lines, f"exported: {exported.target}")
