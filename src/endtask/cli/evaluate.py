"""`endtask evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "evaluate"
EXAMPLES = examples(
    "endtask evaluate runs/chemprot data/new-rows.csv",
    "endtask evaluate runs/chemprot data/new-rows.jsonl --json",
)


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, or that of a saved model.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Labelled rows with the columns of the task: CSV, JSONL, Parquet.")
    ],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score a finished run on other labelled rows, with every fine-tuning seed.

    Prints scores with 95% intervals, scores of each class, the calibration error, and the score without the rows whose
    text is in train.
    """
    from endtask.api.model import load

    set_quiet(quiet or as_json)
    if not file.exists():
        raise InputError("no such file", path=file)
    found = load(run).evaluate(file)
    print_json(found.to_dict()) if as_json else print_lines(*str(found).split("\n"))
