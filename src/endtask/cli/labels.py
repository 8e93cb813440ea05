"""`endtask labels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, examples
from endtask.terminal import print_json, print_lines

NAME = "labels"
EXAMPLES = examples(
    "endtask labels runs/chemprot --to labels.csv",
    "endtask labels runs/chemprot --to labels.parquet --json",
)


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="New .csv, .tsv, .jsonl or .parquet file; .gz, .zst compress.")
    ],
    raw_cells: Annotated[
        bool, typer.Option("--raw-cells", help="In CSV and TSV, leave cells that begin with = + - @ as they are.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List dev and test labels that may be wrong, with the label that the model suggests, the surest first.

    The rule is confident learning: another label is more probable than the given one, and as probable as it usually
    is where it is given. Some candidates are errors of the model: read a text before you change its label.
    """
    from endtask.serving.label_file import write_label_file

    count = write_label_file(run, to, raw_cells=raw_cells)
    if as_json:
        print_json({"file": str(to), "labels": count})
        return
    print_lines(f"wrote {to}: {count:,} labels to check")
