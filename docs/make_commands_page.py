"""Write docs/reference/commands.md from the commands themselves, so that the page and `--help` cannot disagree."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from endtask.cli.main import VERBS, app

PAGE = Path(__file__).resolve().parent / "reference" / "commands.md"
INTRODUCTION = """# Commands

<!-- Made by `make docs` from src/endtask/cli; change the help texts there. -->

Every command has `--help` with examples. Exit codes: 0 done, 2 wrong input (one line says what), 130 interrupted.
`--json` prints results on standard output; progress goes to standard error, and `--quiet` leaves only warnings.
`--set key=value` changes any of the [settings](settings.md). `--plugin FILE.py` loads your own parts.
"""


def page() -> str:
    """Return the whole page."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    contents = "\n".join(
        f"- [`endtask {name}`](#endtask-{name}): {_first_sentence(commands[name])}" for name in commands
    )
    sections = [_section(name, commands[name]) for name in commands]
    return "\n".join([INTRODUCTION, contents, "", *sections])


def _first_sentence(command: Any) -> str:
    return re.split(r"(?<=\.)\s|:\s", inspect.cleandoc(command.help), maxsplit=1)[0].rstrip(".") + "."


def _section(name: str, command: Any) -> str:
    examples = next(verb.EXAMPLES for verb in VERBS if name == verb.NAME)
    lines = [line.strip() for line in examples.splitlines() if line.strip().startswith(("endtask", "cat "))]
    parts = [f"## endtask {name}", inspect.cleandoc(command.help), "```sh\n" + "\n".join(lines) + "\n```"]
    rows = list(_rows(command.params))
    return "\n\n".join([*parts, "\n".join(["| | |", "|---|---|", *rows])]) + "\n"


def _rows(parameters: list[Any]) -> Iterator[str]:
    for parameter in parameters:
        options = [name for name in parameter.opts if name.startswith("-")]
        value = parameter.metavar or ""
        name = " ".join([*sorted(options), *([value] if value and options else [])]) if options else value
        default = parameter.default
        ending = f" [{default}]" if isinstance(default, str | int) and not isinstance(default, bool) and default else ""
        yield f"| `{name}` | {_cell((parameter.help or '') + ending)} |"


def _cell(text: str) -> str:
    """Return text for a cell of a table; angle brackets would be taken for HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
