"""`endtask plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import (
    BudgetOption,
    CorpusOption,
    JsonOption,
    PresetOption,
    QuietOption,
    SetOption,
    SettingsPath,
    TaskOption,
    examples,
    settings_from,
)
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "plan"
EXAMPLES = examples(
    "endtask plan --task data/chemprot --corpus 'corpus/*.jsonl.zst'",
    "endtask plan my-task.yaml --size 160GB --machines 4 --cores 16",
    "endtask plan my-task.yaml --size 1TB --queries 100000 --machines 32 --cores 64 --prices prices.yaml",
)

_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    budget: BudgetOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    text: Annotated[
        str | None,
        typer.Option("--size", metavar="AMOUNT", help="Text of the corpus, such as 160GB [the corpus as it is]."),
    ] = None,
    queries: Annotated[
        int | None, typer.Option("--queries", metavar="N", help="Number of train texts [those of the task].")
    ] = None,
    machines: Annotated[int, typer.Option("--machines", metavar="N", help="Machines of the cluster.")] = 1,
    cores: Annotated[
        int | None, typer.Option("--cores", metavar="N", help="Cores of each machine [those of this one].")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="Prices in YAML or JSON [an example that comes with endtask]."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Plan a run: time, machines, memory, disk, network and money of each stage, for other sizes and machines too.

    About 20 seconds of measurements on this machine give the rates of retrieval, a few timed steps those of training.
    Other machines are assumed to have cores like these. Nothing is written.
    """
    for name, value in (("--queries", queries), ("--machines", machines), ("--cores", cores)):
        if value is not None and value < 1:
            raise InputError(f"{value} is below 1", key=name)
    text_bytes = None if text is None else bytes_of(text)
    set_quiet(quiet or as_json)
    resolved = settings_from(settings, task=task, corpus=corpus, budget=budget, preset=preset, overrides=overrides)
    if not resolved.task.path:
        raise InputError("no task to plan for", key="task.path", hint="--task path/to/task")
    from endtask.planning.plan import Request, plan
    from endtask.planning.prices import example_prices, read_prices

    given = example_prices() if prices is None else read_prices(prices)
    result = plan(resolved, Request(text_bytes, queries, machines, cores), given)
    print_json(result.to_dict()) if as_json else print_lines(*result.lines())


def bytes_of(text: str) -> float:
    """Return the bytes of an amount such as 160GB.

    >>> bytes_of("160GB"), bytes_of("1.5 TB")
    (160000000000.0, 1500000000000.0)
    """
    plain = text.strip().lower().replace(" ", "")
    number, unit = plain[:-2], plain[-2:]
    try:
        amount = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise InputError(f"{text!r} is no size", key="--size", hint="--size 160GB (KB, MB, GB, TB)") from None
    if not 0 < amount < float("inf"):
        raise InputError(f"{text!r} is no size above zero", key="--size")
    return amount
