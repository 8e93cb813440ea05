"""`endtask predict`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from endtask.cli.options import examples
from endtask.errors import InputError
from endtask.progress import say

if TYPE_CHECKING:
    from endtask.serving.predictor import Text

NAME = "predict"
EXAMPLES = examples(
    'endtask predict runs/chemprot "Aspirin inhibits COX-1." "Water is wet."',
    "endtask predict runs/chemprot --file new.jsonl --json > labels.jsonl",
    "cat texts.txt | endtask predict runs/chemprot",
)


def command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The run's folder, or a folder with a Hugging Face classifier.")
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts; for a text pair, a TAB between the two.")
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
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per text, with all probabilities.")] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="NUMBER", min=1, help="Texts per forward pass.")
    ] = 32,
) -> None:
    """Predict for texts given as arguments, in a file, or line by line on standard input; prints one line per text."""
    from endtask.io.compression import bare_suffix
    from endtask.io.tables import ROW_SUFFIXES, read_lines
    from endtask.records import batched
    from endtask.serving.predictor import load

    if texts and file:
        raise InputError("give texts or --file, not both")
    predictor = load(run)
    single = predictor.takes_pairs is False  # a model of single texts ignores TABs and second columns
    read = str if single else _split
    if texts:
        batches = batched(map(read, texts), batch_size)
    elif file is not None:
        if bare_suffix(file) in ROW_SUFFIXES:
            tags, task_columns = predictor.task_type.per_token, _task_columns(run)
            text = _Column("--column", column, task_columns.get("tokens" if tags else "text"), "text")
            pair = None if single else _Column("--pair-column", pair_column, task_columns.get("text_pair"), "text_pair")
            table_texts = _table_texts(file, text, pair, needs_pair=predictor.takes_pairs is True, tags=tags)
            batches = batched(table_texts, batch_size)
        else:
            batches = batched((read(line) for _, line in read_lines(file)), batch_size)
    else:
        arrived = arrived_lines(sys.stdin.buffer)
        batches = (batch for lines in arrived for batch in batched(map(read, lines), batch_size))
        if sys.stdin.isatty():
            say("a text per line; Ctrl-D ends")
    for answer in predictor.stream_batches(batches):
        print(json.dumps(vars(answer), ensure_ascii=False) if as_json else answer, flush=True)


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


def _split(line: str) -> Text:
    first, tab, second = line.partition("\t")
    return (first, second) if tab else line


def _task_columns(run: Path) -> dict[str, str | None]:
    """Return the column names in the settings of a run's task; empty for a model outside a run."""
    from endtask.config.loading import read_tree
    from endtask.io.run_layout import SETTINGS_FILE

    file = (run.parent if run.name == "model" else run) / SETTINGS_FILE
    task = read_tree(file).get("task") if file.is_file() else None
    return task.get("columns") or {} if isinstance(task, dict) else {}


@dataclass(frozen=True)
class _Column:
    """A column to read: that of the option, else that of the task's files if the row has it, else the default."""

    option: str
    option_value: str | None
    task_column: str | None
    default: str

    def name_in(self, row: Collection[str]) -> str:
        return self.option_value or (self.task_column if self.task_column in row else None) or self.default


def _table_texts(path: Path, text: _Column, pair: _Column | None, *, needs_pair: bool, tags: bool) -> Iterator[Text]:
    """Yield the texts of a table file; the texts for a tagger may be lists of words, as in the task's files."""
    from endtask.io.tables import find_column, read_rows

    for number, row in read_rows(path):
        column = replace(text, default="tokens" if tags and "text" not in row else text.default).name_in(row)
        if column not in row:
            find_column(list(row), column, (), path=path, role=f"text, which {text.option} names")
        second = None
        if pair is not None:
            pair_column = pair.name_in(row)
            if needs_pair and pair_column not in row:
                others = [name for name in row if name != column]
                find_column(others, pair_column, (), path=path, role=f"second text, which {pair.option} names")
            second = row.get(pair_column)
        content = row[column]
        if tags and _is_word_list(content):
            yield content
            continue
        if not isinstance(content, str) or not isinstance(second, str | None):
            kind = "neither a string nor a list of words" if tags else "not a string"
            raise InputError(f"the text is {kind}", path=path, row=number, key=column)
        yield content if second is None else (content, second)


def _is_word_list(content: Any) -> bool:
    is_list = isinstance(content, list) and bool(content)
    return is_list and all(isinstance(word, str) and word.strip() for word in content)
