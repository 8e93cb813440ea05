"""`endtask analyze`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "analyze"
EXAMPLES = examples(
    "endtask analyze runs/chemprot",
    "endtask analyze runs/chemprot --also package:endtask-mini --also runs/chemprot-random",
)


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--also",
            metavar="PATH",
            help="Another run, or a checkpoint: a folder, package:NAME or hf:NAME; may be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Count attention heads by what they look at, and map the sentence vectors of a run's dev texts.

    Heads are counted as in the TLM paper: positional ones have at least 90% of their maxima on the token before or
    after, vertical ones more than 90% on [CLS], [SEP] or full stops. The map is t-SNE, coloured by class, as in the ISS
    paper. Both cover the run's encoder before and after fine-tuning; analysis.json and the report keep them.
    """
    from endtask.analysis.analyze import analyze
    from endtask.reporting.page import write_report

    set_quiet(quiet or as_json)
    analysis = analyze(run, also or ())
    page = write_report(run)
    if as_json:
        print_json(analysis)
        return
    _print_models(analysis)
    print_lines(f"report: {page}")


def _print_models(analysis: dict[str, Any]) -> None:
    from endtask.experiments.page import Table, print_tables

    columns = ["Model", "Layers", "Heads", "Positional", "Vertical", "Other", "Same class"]
    print_tables([Table(columns, [list(_cells(model)) for model in analysis["models"]])], _notes(analysis))


def _cells(model: dict[str, Any]) -> Iterator[str]:
    yield from (str(model[key]) for key in ("name", "layers", "heads"))
    for kind in ("positional", "vertical", "other"):
        yield f"{model[kind]} ({model[kind] / model['heads']:.0%})"
    yield "" if model["same_class"] is None else f"{model['same_class']:.1%}"


def _notes(analysis: dict[str, Any]) -> Iterator[str]:
    yield f"over {len(analysis['texts']):,} texts of {analysis['split']}"
    if analysis["same_class_by_chance"] is not None:
        yield f"same class: share of the 10 nearest texts; by chance {analysis['same_class_by_chance']:.1%}"
