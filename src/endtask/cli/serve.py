"""`endtask serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import examples
from endtask.errors import InputError
from endtask.io.input_files import open_file

_LONGEST_TOKEN = 4096
NAME = "serve"
EXAMPLES = examples(
    "endtask serve                 # the runs in the folder runs, at http://localhost:8765",
    "endtask serve experiments --port 9000",
    "endtask serve runs --host 0.0.0.0 --token-file token.txt  # for other machines; put TLS in front",
)


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of runs, or one run [runs].")] = Path(
        "runs"
    ),
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="NUMBER", help="Port to listen on.")] = 8765,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="A file with the token that every request must have."),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Another host name of this server (a proxy's); may be repeated."),
    ] = None,
) -> None:
    """Serve a local page over a folder of runs: results, selection, errors, predictions, and new runs.

    Only programs on this machine can reach it, unless a token is set. Nothing is sent to other machines.
    """
    from endtask.io.extras import require

    require("fastapi", "uvicorn", extra="serve", purpose="endtask serve")
    from endtask.web.app import serve
    from endtask.web.security import Access

    access = Access(_token(token_file), frozenset(name.lower() for name in names or ()))
    serve(folder, host=host, port=port, access=access)


def _token(file: Path | None) -> str | None:
    """Return the first line of the token file. A token on the command line would be in the list of processes."""
    if file is None:
        return None
    try:
        with open_file(file) as stream:
            return stream.read(_LONGEST_TOKEN).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InputError("the token is not valid UTF-8", path=file) from None
