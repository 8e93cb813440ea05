"""`endtask search`."""

from __future__ import annotations

from typing import Annotated

import typer

from endtask.cli.options import (
    BudgetOption,
    CorpusOption,
    ExperimentOutputOption,
    JsonOption,
    PresetOption,
    QuietOption,
    SetOption,
    SettingsPath,
    TaskOption,
    examples,
    settings_from,
)
from endtask.cli.predict import trial_line
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "search"
EXAMPLES = examples(
    "endtask search my-task.yaml --grid --budget 4h  # the TLM paper's rho1 x rho2",
    "endtask search my-task.yaml --grid --values pretrain.weighting.rho1=1,19,99 --budget 60min",
    "endtask search my-task.yaml --trials 20 --budget 60min",
    "endtask search my-task.yaml --trials 20 --space pretrain.learning_rate=log:1e-4:3e-3 --output runs/rates",
)

GridOption = Annotated[bool, typer.Option("--grid", help="Try every combination; TLM's grid unless --values is given.")]
ValuesOption = Annotated[
    list[str] | None,
    typer.Option("--values", metavar="KEY=A,B,...", help="A setting and its values for --grid; may be repeated."),
]
TrialsOption = Annotated[int | None, typer.Option("--trials", metavar="N", help="Let Optuna choose N trials.")]
SpaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar="KEY=KIND:...",
        help="A setting and its range for --trials: log:LOW:HIGH, float:, int:, logint: or choice:A,B; repeatable.",
    ),
]


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    budget: BudgetOption = None,
    output: ExperimentOutputOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    grid: GridOption = False,
    values: ValuesOption = None,
    trials: TrialsOption = None,
    space: SpaceOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Search for better settings: compare many short runs on dev under one budget, and score the best on test.

    The budget is for all trials together. The same command resumes after a stop. The folder is that of the run
    with `-search` appended, unless --output names another.
    """
    _check_strategy(grid, values, trials, space)
    from endtask.experiments.search import search
    from endtask.experiments.search_report import PAGE, print_search
    from endtask.experiments.search_space import (
        GridSearch,
        OptunaSearch,
        Strategy,
        grid_axes,
        import_optuna,
        search_space,
    )

    set_quiet(quiet)
    resolved = settings_from(
        settings, task=task, corpus=corpus, budget=budget, output=output, preset=preset, overrides=overrides
    )
    if output is None and resolved.output_dir:
        resolved = resolved.model_copy(update={"output_dir": f"{resolved.output_dir.rstrip('/')}-search"})
    strategy: Strategy
    if trials is None:
        strategy = GridSearch(grid_axes(values or [], resolved))
    else:
        import_optuna()
        strategy = OptunaSearch(search_space(space or [], resolved), trials, resolved.seed)
    result = search(resolved, strategy)
    assert result.winner is not None
    if as_json:
        print_json(result.to_dict())
        return
    print_search(result)
    print_lines(f"report: {result.folder / PAGE}")
    print_lines(trial_line(result.folder / result.winner["folder"]))


def _check_strategy(grid: bool, values: list[str] | None, trials: int | None, space: list[str] | None) -> None:
    if grid == (trials is not None):
        raise InputError("give one of --grid and --trials N")
    if values and not grid:
        raise InputError("--values go with --grid", hint="--trials takes --space KEY=choice:A,B")
    if space and grid:
        raise InputError("--space goes with --trials", hint="--grid takes --values KEY=A,B")
    if trials is not None and trials < 1:
        raise InputError(f"--trials {trials}: a search needs at least one trial")
