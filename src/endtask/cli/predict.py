"""`endtask predict`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from endtask.cli.options import examples
from endtask.errors import InputError
from endtask.progress import say
from endtask.terminal import print_json, print_lines

if TYPE_CHECKING:
    from endtask.serving.predictor import Answer, Predictor

NAME = "predict"
EXAMPLES = examples(
    'endtask predict runs/chemprot "Aspirin inhibits COX-1." "Water is wet."',
    "endtask predict runs/chemprot new.csv --to labels.csv",
    "endtask predict runs/chemprot --file new.jsonl --json > labels.jsonl",
    "endtask predict runs/chemprot --calibrated --json 'Aspirin inhibits COX-1.'",
    "cat texts.txt | endtask predict runs/chemprot",
)


def command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The run's folder, or a folder with a Hugging Face classifier.")
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Texts; for a text pair, a TAB between the two. With --to, the file to read."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Text (a line each), CSV, TSV, JSONL, Parquet.")
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column",
            metavar="NAME",
            help="Column of the text in a table file [that of the task, or text; for taggers, tokens].",
        ),
    ] = None,
    pair_column: Annotated[
        str | None,
        typer.Option(
            "--pair-column", metavar="NAME", help="Column of the second text [that of the task, or text_pair]."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="Write rows and predictions to a new .csv, .tsv, .jsonl or .parquet file."
        ),
    ] = None,
    raw_cells: Annotated[
        bool, typer.Option("--raw-cells", help="In CSV and TSV, leave cells that begin with = + - @ as they are.")
    ] = False,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Scale probabilities by the temperature that the run fitted on dev.")
    ] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="cpu, cuda, mps, or auto, the best there is.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per text, with all probabilities.")] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="NUMBER", min=1, help="Texts per forward pass.")
    ] = 32,
) -> None:
    """Predict for texts given as arguments, in a file, or line by line on standard input.

    Prints a line for each text. --to writes a table instead: the columns of the file, the prediction, and a probability
    for each label.
    """
    from endtask.serving.predictor import load

    if to is not None:
        file, texts = _file_for(texts, file), None
    if texts and file:
        raise InputError("give texts or --file, not both")
    if texts:
        _check_no_files(texts)
    predictor = load(run, device=device, calibrated=calibrated)
    if to is not None and file is not None:
        _write_table(predictor, run, file, to, column, pair_column, batch_size, raw_cells)
        return
    for answer in _answers(predictor, run, texts, file, column, pair_column, batch_size):
        print_json(vars(answer)) if as_json else print_lines(str(answer))


def _file_for(texts: list[str] | None, file: Path | None) -> Path:
    """Return the file that `--to` reads."""
    given = [*([file] if file else []), *map(Path, texts or ())]
    if len(given) != 1:
        raise InputError("--to writes the predictions for one file", hint="endtask predict RUN new.csv --to labels.csv")
    return given[0]


def _check_no_files(texts: Sequence[str]) -> None:
    """Raise where a text is the name of a file, or looks like one: it was meant to be read."""
    for text in texts:
        try:
            is_file = len(text.split()) == 1 and Path(text).is_file()
        except (OSError, ValueError):  # longer than a name may be, or with a character that none may have
            continue
        if is_file:
            raise InputError("is a file, not a text", path=text, hint=f"--file {text}, or with --to")
        if len(texts) == 1 and _resembles_file(text):
            raise InputError("no such file", path=text, hint="a text like this goes to standard input")


def _resembles_file(text: str) -> bool:
    """Return whether a text is one word that ends like a file of rows or lines."""
    from endtask.io.compression import bare_suffix
    from endtask.io.tables import row_suffixes
    from endtask.serving.text_files import LINE_SUFFIXES

    suffixes = {*row_suffixes(), *LINE_SUFFIXES} - {""}
    return len(text.split()) == 1 and Path(text).stem != "" and bare_suffix(Path(text)) in suffixes


def _write_table(
    predictor: Predictor,
    run: Path,
    file: Path,
    target: Path,
    column: str | None,
    pair_column: str | None,
    batch_size: int,
    raw_cells: bool,
) -> None:
    from endtask.serving.file_predictions import predict_file

    rows = predict_file(
        predictor,
        file,
        target,
        run=run,
        column=column,
        pair_column=pair_column,
        batch_size=batch_size,
        raw_cells=raw_cells,
    )
    print_lines(f"wrote {target}: {rows:,} rows")


def _answers(
    predictor: Predictor,
    run: Path,
    texts: list[str] | None,
    file: Path | None,
    column: str | None,
    pair_column: str | None,
    batch_size: int,
) -> Iterator[Answer]:
    """Yield the predictions for the arguments, a file or standard input."""
    from endtask.records import batched
    from endtask.serving.file_predictions import stream_by_length
    from endtask.serving.text_files import file_texts, split_pair

    if file is not None:
        found = file_texts(file, predictor, run, column=column, pair_column=pair_column)
        yield from (answer for _, answer in stream_by_length(predictor, found, batch_size))
        return
    read = str if predictor.takes_pairs is False else split_pair  # a model of single texts ignores TABs
    if texts:
        yield from predictor.stream(map(read, texts), batch_size=batch_size)
        return
    if sys.stdin.isatty():
        say("a text per line; Ctrl-D ends")
    arrived = arrived_lines(sys.stdin.buffer)
    batches = (batch for lines in arrived for batch in batched(map(read, lines), batch_size))
    yield from predictor.stream_batches(batches)


def trial_line(run: Path) -> str:
    """Return a command that tries a finished run; a TAB separates the texts of a pair."""
    from endtask.serving.predictor import takes_pairs

    text = "$'some text\\tanother text'" if takes_pairs(run) else '"some text"'
    return f"try it: endtask predict {shlex.quote(str(run))} {text}"


def arrived_lines(stream: BinaryIO) -> Iterator[list[str]]:
    """Yield complete lines as soon as they arrive, so that a slow writer sees results at once."""
    count, incomplete = 0, b""
    read = getattr(stream, "read1", stream.read)
    while chunk := read(1 << 16):
        *lines, incomplete = (incomplete + chunk).split(b"\n")
        if lines:
            yield [_decoded(line, row) for row, line in enumerate(lines, start=count + 1)]
            count += len(lines)
    if incomplete:
        yield [_decoded(incomplete, count + 1)]


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r")
    except UnicodeDecodeError:
        raise InputError("not valid UTF-8", path="standard input", row=number) from None
