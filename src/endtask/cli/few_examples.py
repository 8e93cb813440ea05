"""`endtask few-examples`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.errors import InputError
from endtask.progress import set_quiet

NAME = "few-examples"
EXAMPLES = examples(
    "endtask few-examples runs/aligned runs/plain  # both with 50 to 1000 labels, tested against each other",
    "endtask few-examples runs/aligned --labels 200 --folds 5 --seeds 0,1",
    "endtask few-examples runs/aligned --labels 200 --train head,transformer,all --head new,keep",
    "endtask few-examples runs/both --labels 200 --train transformer --tasks main,all  # its auxiliary tasks beside it",
    "endtask few-examples runs/aligned --labels 200 --rates 1e-4,1e-3 --set batch_size=32 --json",
)


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs whose pre-training is finished, of one task."),
    ],
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="A,B,...", help="Numbers of labels [50,100,150,200,1000].")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="Draws of labels from train, scored on test [5].")
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", metavar="N", help="Instead, every row is scored once, in so many folds.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A,B,...", help="Seeds of heads, batches and dropout [0,1].")
    ] = None,
    train: Annotated[
        str | None, typer.Option("--train", metavar="PARTS", help="What learns: head, transformer or all [head].")
    ] = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HEADS", help="new, or keep: the head of pre-training [new].")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option("--tasks", metavar="TASKS", help="main, or all: auxiliary tasks learn beside it [main]."),
    ] = None,
    rates: Annotated[
        str | None, typer.Option("--rates", metavar="A,B,...", help="Learning rates [1e-3 for heads, else 1e-4].")
    ] = None,
    held_out: Annotated[
        str | None, typer.Option("--held-out", metavar="SHARE", help="Rows that choose the epoch: a share, or dev.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="epochs, patience, batch_size, dropout or seed; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FOLDER", help="Folder of results [RUN-few-examples].")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Learn from few labels on top of pre-training, many times, and draw the learning curve.

    Of several runs, parts, heads and tasks each combination is a line of the table, tested against the first in pairs.
    The same command given again goes on after a stop; runs, labels, seeds and rates may be added.
    """
    from endtask.few_examples import few_examples
    from endtask.few_examples.page import PAGE, print_tables, verdict

    set_quiet(quiet)
    lists = {"labels": labels, "seeds": seeds, "train": train, "head": head, "tasks": tasks, "learning_rates": rates}
    tree: dict[str, Any] = {key: _read_list(text, key) for key, text in lists.items() if text is not None}
    numbers = {"samples": samples, "folds": folds}
    tree |= {key: number for key, number in numbers.items() if number is not None}
    if held_out is not None:
        tree["held_out"] = _read_one(held_out, "--held-out")
    if samples is not None and folds is not None:
        raise InputError("give one of --samples and --folds")
    outcome = few_examples(runs, _plan(tree, overrides or []), output)
    if as_json:
        print(json.dumps(outcome.statistics(), ensure_ascii=False))
        return
    print_tables(outcome)
    print(verdict(outcome))
    print(f"report: {outcome.folder / PAGE}")


def _plan(tree: dict[str, Any], overrides: list[str]) -> Any:
    from endtask.config.loading import apply_override
    from endtask.few_examples.plan import check_plan

    for override in overrides:
        apply_override(tree, override)
    return check_plan(tree)


_FLAGS = {"labels": "--labels", "seeds": "--seeds", "learning_rates": "--rates"}


def _read_list(text: str, key: str) -> list[Any]:
    """The values between commas; names as they are, numbers as numbers."""
    parts = [part.strip() for part in text.split(",")]
    return [_read_one(part, _FLAGS[key]) for part in parts] if key in _FLAGS else parts


def _read_one(text: str, flag: str) -> int | float | str:
    """A number, or `dev`."""
    if flag == "--held-out" and text == "dev":
        return text
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        hint = "a share such as 0.25, or dev" if flag == "--held-out" else f"{flag} 1,2"
        raise InputError(f"{flag} {text!r}: not a number", hint=hint) from None
