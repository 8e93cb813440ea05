"""`endtask selection`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, examples
from endtask.terminal import print_json, print_lines

NAME = "selection"
EXAMPLES = examples(
    "endtask selection runs/chemprot --to chemprot.jsonl.zst",
    "endtask selection runs/chemprot --to selected.csv --json",
)


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FILE", help="New .jsonl, .parquet or .csv file; .gz, .zst, .xz compress it."),
    ],
    raw_cells: Annotated[
        bool, typer.Option("--raw-cells", help="In CSV, leave cells that begin with = + - @ as they are.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Export the passages that a run selected to a file for other tools.

    JSONL and Parquet have all columns; CSV has `text,id,rank` with ranks from 0, as the TLM authors' programs read it;
    cells that a spreadsheet would run as a formula begin with an apostrophe unless --raw-cells is given.
    Import such a file with --set select.name=imported --set select.path=FILE.
    """
    from endtask.selectors.export import export_selection

    counts = export_selection(run, to, raw_cells=raw_cells)
    if as_json:
        print_json(counts)
        return
    print_lines(f"wrote {to}: {counts['passages']:,} passages, {counts['bytes'] / 1e6:.1f} MB of text")
