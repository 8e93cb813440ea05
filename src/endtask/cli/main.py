"""The `endtask` command: a table of verbs, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

import typer

from endtask.cli import check, demo, init, predict, report, retrieve, run
from endtask.cli.options import examples
from endtask.errors import InputError

app = typer.Typer(
    name="endtask",
    help="Turn a labelled task and a large pile of text into a small language model made for that task.",
    epilog=examples("endtask demo", "endtask run --task path/to/task --corpus 'path/to/*.jsonl.zst' --budget 10min"),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
VERBS = (init, check, run, retrieve, predict, report, demo)
for verb in VERBS:
    app.command(verb.NAME, epilog=verb.EXAMPLES)(verb.command)

_OUTSIDE_OUR_POWER = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


def main(call: Callable[[], None] = app) -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        call()
    except InputError as error:
        _stop(str(error), 2)
    except KeyboardInterrupt:
        _stop("stopped; the same command goes on from here", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.errno not in _OUTSIDE_OUR_POWER:
            raise
        _stop(f"{error.filename or 'disk'}: {error.strerror}; nothing was lost, the same command goes on", 2)


def _stop(line: str, code: int) -> None:
    print(f"endtask: {line}", file=sys.stderr)
    sys.exit(code)
