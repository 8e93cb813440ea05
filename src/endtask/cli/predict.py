"""`endtask predict`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import examples
from endtask.errors import InputError

NAME = "predict"
EXAMPLES = examples(
    'endtask predict runs/chemprot "Aspirin inhibits COX-1." "Water is wet."',
    "endtask predict runs/chemprot --file new.jsonl --json > labels.jsonl",
    "cat texts.txt | endtask predict runs/chemprot",
)


def command(
    run: Annotated[Path, typer.Argument(help="The run's folder, or a folder with a Hugging Face classifier.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; for a text pair, a TAB between the two.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Text (a line each), CSV, TSV, JSONL, Parquet.")] = None,
    column: Annotated[str, typer.Option("--column", help="Column of the text in a table file.")] = "text",
    pair_column: Annotated[str, typer.Option("--pair-column", help="Column of the second text.")] = "text_pair",
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per text, with all probabilities.")] = False,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 32,
) -> None:
    """Label texts given as arguments, in a file, or line by line on standard input; one line out per text."""
    from endtask.predict import load

    if texts and file:
        raise InputError("give texts or --file, not both")
    predictor = load(run)
    if texts:
        stream: Iterator[str | tuple[str, str]] = (_split(text) for text in texts)
    elif file is not None:
        stream = _file_texts(file, column, pair_column)
    else:
        stream = (_split(line.rstrip("\r\n")) for line in sys.stdin)
    for prediction in predictor.stream(stream, batch_size=batch_size):
        if as_json:
            print(json.dumps(vars(prediction), ensure_ascii=False), flush=True)
        else:
            print(f"{prediction.label}\t{prediction.probability:.4f}", flush=True)


def _split(line: str) -> str | tuple[str, str]:
    first, tab, second = line.partition("\t")
    return (first, second) if tab else line


def _file_texts(path: Path, column: str, pair_column: str) -> Iterator[str | tuple[str, str]]:
    from endtask.files.compression import bare_suffix
    from endtask.files.rows import ROW_SUFFIXES, find_column, read_lines, read_rows

    if bare_suffix(path) not in ROW_SUFFIXES:
        yield from (_split(line) for _, line in read_lines(path))
        return
    for number, row in read_rows(path):
        find_column(list(row), column, (), path=path, role="text")
        text, second = row[column], row.get(pair_column)
        if not isinstance(text, str) or not isinstance(second, str | None):
            raise InputError("the text is not a string", path=path, row=number, key=column)
        yield text if second is None else (text, second)
