"""The `endtask` command: the table of its verbs, and the conversion of errors to a line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from endtask.cli import (
    analyze,
    bundle,
    check,
    compare,
    demo,
    doctor,
    evaluate,
    export,
    few_shot,
    init,
    labels,
    ls,
    plan,
    predict,
    report,
    retrieve,
    run,
    schema,
    search,
    select,
    selection,
    serve,
    verify,
    why,
)
from endtask.cli.arguments import with_whole_globs
from endtask.cli.options import examples
from endtask.errors import InputError
from endtask.io.atomic import system_error
from endtask.io.home import name_user, with_homes
from endtask.io.signals import exit_code, requested_signal, stop_signals, stopped_message
from endtask.io.stage_folder import package_version
from endtask.processes import current_processes, is_started_by_torchrun, lost_process
from endtask.registry import load_plugin
from endtask.terminal import prepare_streams, print_lines, print_message, unsafe_argument

_SECONDS_BEFORE_OTHERS_SPEAK = 3.0
"""The first of several processes often has the same message, and its end ends the others."""


class _Interrupted(Exception):
    """Replaces `KeyboardInterrupt`, for which Typer would exit without a message."""


class _Verbs(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted from None


app = typer.Typer(
    name="endtask",
    cls=_Verbs,
    epilog=examples("endtask demo", "endtask run --task path/to/task --corpus 'path/to/*.jsonl.zst' --budget 10min"),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
VERBS = (
    *(init, check, plan, run, search, compare, few_shot, bundle, retrieve, select, selection, why),
    *(predict, evaluate, labels, analyze, export, report, serve, verify, ls, demo, doctor, schema),
)
for verb in VERBS:
    app.command(verb.NAME, epilog=verb.EXAMPLES)(verb.command)

# The base class of command line errors. Typer exports only its subclasses, and the module of the class has changed.
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])


def _print_version(requested: bool) -> None:
    if requested:
        print_lines(f"endtask {package_version()}")
        raise typer.Exit


@app.callback()
def endtask(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE.py",
            help="Load your own selectors, objectives, weightings, encoders or metrics; anywhere in the command.",
        ),
    ] = None,
) -> None:
    """Turn a labelled task and a large pile of text into a small language model made for that task."""
    together = {verb.NAME for verb in VERBS if getattr(verb, "IN_SEVERAL_PROCESSES", False)}
    if is_started_by_torchrun() and context.invoked_subcommand not in together:
        command = f"endtask {context.invoked_subcommand}"
        raise InputError(f"{command} runs in one process, not by torchrun", hint=f"torchrun starts {_listed(together)}")


def _listed(verbs: set[str]) -> str:
    return ", ".join(f"endtask {verb}" for verb in sorted(verbs))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; a user's mistake gives a line on standard error and exit code 2."""
    prepare_streams()
    name_user()
    given = list(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve each other on a busy machine
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its advice is for programmers
    with stop_signals(given):
        code = _run(given)
    sys.exit(code)


def _run(given: list[str]) -> int:
    """Return the exit code of a command, with a line for an error of the user or of the system."""
    try:
        _check_docstrings()
        _check_working_folder()
        _check_encoding(given)
        arguments = with_whole_globs(with_homes(_load_plugins(given)))
        code: int = app(arguments, prog_name="endtask", standalone_mode=False) or 0
        if code == signal.SIGINT + 128:  # Typer's, for an interruption before the verb began
            _stop_after_signal(given)
        return code
    except InputError as error:
        _stop(str(error), 2)
    except _UsageError as error:
        _explain_usage(error)
    except (KeyboardInterrupt, _Interrupted):
        _stop_after_signal(given)
    except BrokenPipeError:  # the reader of the output, such as `head`, has what it wanted
        sys.exit(1)
    except Exception as error:
        if requested_signal() is not None:  # a library replaced `Stopped` by an error of its own
            _stop_after_signal(given)
        if lost_process(error):
            _stop("another process has ended; the same command resumes the run", 1)
        message = system_error(error)
        if message is None:
            raise
        _stop(message, 2)


def _stop_after_signal(arguments: list[str]) -> NoReturn:
    number = requested_signal() or signal.SIGINT
    _stop(stopped_message(number, arguments), exit_code(number))


def _check_docstrings() -> None:
    """Raise where Python leaves out docstrings: transformers cannot be imported without its own."""
    if sys.flags.optimize > 1:
        raise InputError("Python runs without docstrings, which transformers needs", hint="no -OO, no PYTHONOPTIMIZE=2")


def _check_working_folder() -> None:
    """Raise where the working folder was removed: PyTorch's libraries cannot be loaded there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the working folder was removed", hint="change to a folder that exists") from None


def _check_encoding(arguments: Sequence[str]) -> None:
    """Raise for an argument that is not UTF-8: neither settings nor messages could hold it."""
    wrong = unsafe_argument(arguments)
    if wrong is not None:
        reads_utf8 = sys.getfilesystemencoding() == "utf-8"
        hint = "rename the file" if reads_utf8 else "this locale is not UTF-8; with PYTHONUTF8=1 Python ignores it"
        raise InputError(f"the argument {wrong} is not valid UTF-8", hint=hint)


def _load_plugins(arguments: Sequence[str]) -> list[str]:
    """Load the files of `--plugin`, at any position, and return the other arguments.

    Code comes from the command line and the environment only: no settings file, run folder or bundle may name it.
    """
    others: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, path = argument.partition("=")
        if name != "--plugin":
            others.append(argument)
            continue
        path = path if equals else next(remaining, "")
        if not path:
            raise InputError("--plugin: name a Python file", hint="endtask run --plugin my_selector.py ...")
        load_plugin(path)
    return others


def _explain_usage(error: Any) -> NoReturn:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(2)
    verb = error.ctx.command_path if error.ctx else "endtask"
    _stop(f"{error.format_message().rstrip('.')} (see {verb} --help)", 2)


def _stop(message: str, code: int) -> NoReturn:
    processes = current_processes()
    if not processes.is_first:
        time.sleep(_SECONDS_BEFORE_OTHERS_SPEAK)
        message = f"process {processes.rank + 1} of {processes.count}: {message}"
    print_message(f"endtask: {message}")
    sys.exit(code)
