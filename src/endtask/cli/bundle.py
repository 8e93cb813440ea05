"""`endtask bundle`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from endtask.cli.options import JsonOption, QuietOption, examples
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

if TYPE_CHECKING:
    from endtask.bundle.write import Bundle

NAME = "bundle"
EXAMPLES = examples(
    "endtask bundle runs/chemprot                       # after endtask run ... --until pack",
    "endtask bundle runs/chemprot --text --max-size 200MB --output chemprot.tar.zst",
    "endtask bundle runs/chemprot-compare               # all runs of a comparison; shared files are stored once",
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
    bool, typer.Option("--text/--tokens", help="Include the selected text, or its tokens from the stage pack.")
]
MaxSizeOption = Annotated[
    str | None, typer.Option("--max-size", metavar="SIZE", help="Size limit of the bundle [60MB].")
]


def command(
    folder: FolderArgument,
    output: OutputOption = None,
    text: TextOption = False,
    max_size: MaxSizeOption = None,
    unpack: Annotated[bool, typer.Option("--unpack", help="Unpack a bundle instead of writing one.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Pack a prepared run into one file to train it on another machine with `endtask run --bundle FILE`.

    A bundle contains the task, the settings and the selected text or tokens, not the corpus.
    """
    from endtask.bundle import unbundle, write_bundle
    from endtask.bundle.write import MAX_SIZE

    set_quiet(quiet)
    if unpack:
        if text or max_size is not None:
            raise InputError("--text and --max-size do not apply to --unpack")
        unpacked = unbundle(folder, output)
        print_json({"folder": str(unpacked)}) if as_json else print_lines(f"unpacked: {unpacked}")
        return
    bundle = write_bundle(
        folder, output, kind="text" if text else "tokens", max_size=MAX_SIZE if max_size is None else _bytes(max_size)
    )
    if as_json:
        print_json({**asdict(bundle), "file": str(bundle.file)})
        return
    print_lines(_describe(bundle), f"continue there: {_next_command(bundle, folder)}")


def _describe(bundle: Bundle) -> str:
    from endtask.reporting.format import plural, size

    parts = ", ".join(f"{part} {size(amount)}" for part, amount in bundle.parts.items())
    return f"bundle: {bundle.file}, {size(bundle.bytes)}, {plural(len(bundle.runs), 'run')} ({parts})"


def _next_command(bundle: Bundle, folder: Path) -> str:
    """Return the command to run on the other machine."""
    from endtask.io.run_layout import record_file

    if (folder / record_file("compare")).exists():
        return f"endtask compare --bundle {bundle.file.name}"
    if len(bundle.runs) == 1:
        return f"endtask run --bundle {bundle.file.name}"
    return f"endtask bundle {bundle.file.name} --unpack"


def _bytes(text: str) -> int:
    """Return the bytes of a size such as 60MB."""
    from endtask.config import SizeBudget

    try:
        size = SizeBudget.parse(text)
    except ValueError:
        size = None
    if size is None or size.unit != "bytes":
        raise InputError(f"--max-size: {text!r} is not the size of a file; write it like 60MB")
    return int(size.amount)
