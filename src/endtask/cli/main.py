"""The `endtask` command: a table of verbs, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from endtask.cli import (
    bundle,
    check,
    compare,
    demo,
    doctor,
    evaluate,
    export,
    few_shot,
    init,
    ls,
    predict,
    report,
    retrieve,
    run,
    schema,
    search,
    select,
    selection,
    why,
)
from endtask.cli.options import examples
from endtask.errors import InputError
from endtask.io.atomic import disk_error
from endtask.io.stage_folder import own_version
from endtask.registry import load_plugin


class Stopped(Exception):
    """Ctrl-C, under a name that Typer lets through; it would end the process without a word."""


class _Verbs(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped from None


app = typer.Typer(
    name="endtask",
    cls=_Verbs,
    epilog=examples("endtask demo", "endtask run --task path/to/task --corpus 'path/to/*.jsonl.zst' --budget 10min"),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
VERBS = (
    *(init, check, run, search, compare, few_shot, bundle, retrieve, select, selection, why),
    *(predict, evaluate, export, report, ls, demo, doctor, schema),
)
for verb in VERBS:
    app.command(verb.NAME, epilog=verb.EXAMPLES)(verb.command)

# The class of all complaints about the command line; Typer shows only its leaves, and has moved it before.
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"endtask {own_version()}")
        raise typer.Exit


@app.callback()
def endtask(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE.py",
            help="Load your own selectors, objectives, weightings, encoders or metrics; before or after the verb.",
        ),
    ] = None,
) -> None:
    """Turn a labelled task and a large pile of text into a small language model made for that task."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its advice is for people who call it themselves
    try:
        code = app(_load_plugins(arguments), prog_name="endtask", standalone_mode=False)
    except InputError as error:
        _stop(str(error), 2)
    except _UsageError as error:
        _explain_usage(error)
    except Stopped:
        again = "the same command without --from" if "--from" in (arguments or sys.argv) else "the same command"
        _stop(f"stopped; {again} resumes from here", 130)
    except Exception as error:
        trouble = disk_error(error)
        if trouble is None:
            raise
        _stop(trouble, 2)
    sys.exit(code)


def _load_plugins(arguments: Sequence[str] | None) -> list[str]:
    """Load the files that `--plugin` names, at any position, and return the other arguments.

    Plug-ins are named here and in the environment alone: no settings file, run folder or bundle may name code.
    """
    left: list[str] = []
    given = iter(sys.argv[1:] if arguments is None else arguments)
    for argument in given:
        name, equals, path = argument.partition("=")
        if name != "--plugin":
            left.append(argument)
            continue
        path = path if equals else next(given, "")
        if not path:
            raise InputError("--plugin: name a Python file", hint="endtask run --plugin my_selector.py ...")
        load_plugin(path)
    return left


def _explain_usage(error: Any) -> NoReturn:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(2)
    verb = error.ctx.command_path if error.ctx else "endtask"
    _stop(f"{error.format_message().rstrip('.')} (see {verb} --help)", 2)


def _stop(line: str, code: int) -> NoReturn:
    print(f"endtask: {' '.join(line.splitlines())}", file=sys.stderr)
    sys.exit(code)
