"""`endtask bundle`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.errors import InputError
from endtask.progress import set_quiet

if TYPE_CHECKING:
    from endtask.bundle.write import Bundle
    from endtask.config import SizeBudget

NAME = "bundle"
EXAMPLES = examples(
    "endtask bundle runs/chemprot                       # after endtask run ... --until pack",
    "endtask bundle runs/chemprot --text --max-size 200MB --output chemprot.tar.zst",
    "endtask bundle runs/chemprot-compare               # all variants of a comparison, shared stages once",
    "endtask bundle chemprot.tar.zst --unpack --output runs/chemprot",
)

FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder of a run or of several; with --unpack, a bundle.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="PATH", help="The bundle [FOLDER.tar.zst]; with --unpack, the folder [runs/NAME]."
    ),
]
TextOption = Annotated[
    bool, typer.Option("--text/--tokens", help="Send the selected text, or the tokens that pack made of it.")
]
MaxSizeOption = Annotated[
    str | None, typer.Option("--max-size", metavar="SIZE", help="The largest file to write [the setting bundle_size].")
]


def command(
    folder: FolderArgument,
    output: OutputOption = None,
    text: TextOption = False,
    max_size: MaxSizeOption = None,
    unpack: Annotated[bool, typer.Option("--unpack", help="Unpack a bundle instead, and do nothing more.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Pack a prepared run into one file, to be trained on another machine: `endtask run --bundle FILE` goes on there.

    The task, the settings and what was made of the corpus travel; the corpus stays.
    """
    from endtask.bundle import unbundle, write_bundle

    set_quiet(quiet)
    limit = _size(max_size)
    if unpack:
        if text or limit:
            raise InputError("--unpack takes a bundle as it is; --text and --max-size are for making one")
        place = unbundle(folder, output)
        print(json.dumps({"folder": str(place)}, ensure_ascii=False) if as_json else f"unpacked: {place}")
        return
    made = write_bundle(folder, output, kind="text" if text else "tokens", max_size=limit)
    if as_json:
        print(json.dumps({**asdict(made), "file": str(made.file)}, ensure_ascii=False))
        return
    print(_in_words(made))
    print(f"go on there: {_go_on(made, folder)}")


def _in_words(made: Bundle) -> str:
    from endtask.reporting.format import plural, size

    parts = ", ".join(f"{part} {size(amount)}" for part, amount in made.parts.items())
    return f"bundle: {made.file}, {size(made.bytes)}, {plural(len(made.runs), 'run')} ({parts})"


def _go_on(made: Bundle, folder: Path) -> str:
    """What to type on the other machine."""
    from endtask.experiments.record import record_file

    if (folder / record_file("compare")).exists():
        return f"endtask compare --bundle {made.file.name}"
    if len(made.runs) == 1:
        return f"endtask run --bundle {made.file.name}"
    return f"endtask bundle {made.file.name} --unpack"


def _size(text: str | None) -> SizeBudget | None:
    """The limit, read and checked as the setting is."""
    from endtask.config import load_settings

    return None if text is None else load_settings(given={"bundle_size": text}).bundle_size
