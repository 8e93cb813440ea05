"""`endtask report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import JsonOption, examples
from endtask.errors import InputError
from endtask.io.run_layout import SETTINGS_FILE
from endtask.terminal import print_json, print_lines

NAME = "report"
EXAMPLES = examples(
    "endtask report runs/chemprot",
    "endtask report runs/chemprot --latency  # also measure the model's latency",
    "endtask report runs/chemprot --json",
)


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    latency: Annotated[bool, typer.Option("--latency", help="Measure the latency for one text on the CPU.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run again, as a self-contained HTML page."""
    from endtask.reporting.page import summary, verdict_lines, write_report

    if not (run / SETTINGS_FILE).exists():
        raise InputError("no run here", path=run, hint="endtask run --output FOLDER makes one")
    latency_lines = []
    if latency:
        from endtask.serving.latency import latency_line, write_latency

        latency_lines.append(latency_line(write_latency(run)))
    page = write_report(run)
    if as_json:
        print_json(summary(run))
        return
    print_lines(*verdict_lines(run), *latency_lines, f"report: {page}")
