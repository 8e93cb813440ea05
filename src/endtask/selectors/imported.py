"""Import a selection from a file, under the same budget and contamination filter as other selections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from endtask.config import Settings, SizeBudget
from endtask.corpus.deduplicate import Seen, key_of
from endtask.corpus.reading import TEXT_COLUMNS
from endtask.corpus.sources import derived_name
from endtask.errors import InputError, did_you_mean, nearest
from endtask.io.digests import file_digest
from endtask.io.selection_table import read_statistics, selection_schema, write_selection
from endtask.io.tables import Row, find_column, read_rows
from endtask.progress import say
from endtask.records import Document
from endtask.records import Selected as Passage
from endtask.selectors.base import PartConfig, RunContext, Selected, Selector, selectors
from endtask.selectors.ranking import by_bm25_rank, write_rows
from endtask.task import Task
from endtask.task.columns import as_number

_ALL_ROWS = "imported.parquet"
_BUDGETS = "null selects all rows; 300MB or 50000passages select the best of it"


@selectors.register("imported")
class Imported(Selector):
    """read from a file of your own"""

    class Config(PartConfig):
        """Options of `imported`."""

        path: str | None = Field(None, description="JSONL, CSV, TSV or Parquet with a text column")

    reads_candidates = False
    requires_corpus = False
    filters_contamination = True
    config: Config

    def reads_corpus(self, budget: SizeBudget | None) -> bool:
        """Return whether the budget is a share of the corpus."""
        return budget is not None and budget.unit == "share"

    def external_path(self) -> str | None:
        """Return the file."""
        return self.config.path

    def external_digest(self) -> str:
        """Return a hash of the file."""
        assert self.config.path is not None
        return file_digest(Path(self.config.path))

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
        """Raise `InputError` for a missing or unreadable file, and for budgets that do not apply to one."""
        path, budget = self.config.path, settings.select.budget
        if path is None:
            hint = "--set select.path=my-selection.csv"
            raise InputError("no file to import the selection from", key="select.path", hint=hint)
        if not Path(path).is_file():
            message = "is a folder, not a file" if Path(path).is_dir() else "no such file"
            raise InputError(message, path=path, key="select.path")
        if budget is not None and budget.unit == "retrieved":
            raise InputError("for an imported selection nothing is retrieved", key="select.budget", hint=_BUDGETS)
        if self.reads_corpus(budget) and not has_corpus:
            raise InputError(f"{budget} of the corpus, but there is no corpus", key="select.budget", hint=_BUDGETS)
        check_readable(Path(path))

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write rows of the file in their own order; a budget takes the best-ranked of them."""
        assert self.config.path is not None
        rows = ImportedRows(Path(self.config.path), run.is_contaminated)
        candidates = path.with_name(_ALL_ROWS)
        try:
            write_selection(candidates, rows)
            statistics = read_statistics(candidates)
            order, otherwise = by_bm25_rank(statistics), "no row holds an uncontaminated text"
            selected = run.fill_budget(order, statistics.bytes, otherwise=otherwise)
            written = write_rows(candidates, selected, path)
        finally:
            candidates.unlink(missing_ok=True)
        counts = {
            "rows": rows.read,
            "empty": rows.empty,
            "dropped_by_contamination_filter": rows.dropped_by_contamination_filter,
        }
        return Selected(written, int(statistics.bytes[selected].sum()), counts)


_OWN_COLUMN = "matched_count"  # in endtask's own tables, and hardly in others
_MISSING = (None, "")
_LARGEST_RANK = 1 << 53  # larger whole numbers are inexact in tables that store them as floats


@dataclass
class ImportedRows:
    """Iterates over the passages of a table file; afterwards the counts say how many rows were read and dropped.

    Ranks of endtask's own tables count from 1. Others may count from 0, as the TLM authors' do, so theirs are raised
    by 1; without a column `rank` the row number is the rank. Matched queries are dropped: their ids belong to another
    run. `is_contaminated` returns which texts to drop.
    """

    path: Path
    is_contaminated: Callable[[str], bool] | None = None
    read: int = 0
    empty: int = 0
    dropped_by_contamination_filter: int = 0

    def __iter__(self) -> Iterator[Passage]:
        self.read = self.empty = self.dropped_by_contamination_filter = 0
        table_format: _Format | None = None
        ids = Seen()
        for number, row in read_rows(self.path):
            if table_format is None:
                table_format = _detect_format(row, self.path, number)
                _name_unused(row, table_format)
            passage = _passage(row, number, table_format, index=self.read)
            self.read += 1
            if not passage.document.text.strip():
                self.empty += 1
            elif self.is_contaminated is not None and self.is_contaminated(passage.document.text):
                self.dropped_by_contamination_filter += 1
            else:
                unique = _unique(passage.document.id, number, ids)
                yield replace(passage, document=replace(passage.document, id=unique))
        if not self.read:
            raise _no_rows(self.path)


def check_readable(path: Path) -> None:
    """Raise `InputError` for a file of an unknown format, without rows or without a text column."""
    number, row = next(read_rows(path), (0, {}))
    if not number:
        raise _no_rows(path)
    _detect_format(row, path, number)


def _no_rows(path: Path) -> InputError:
    return InputError("the file holds no rows", path=path, key="select.path")


class _Format(NamedTuple):
    """The format of the file, detected from its first row."""

    path: Path
    source: str
    text: str
    has_ranks: bool
    first_rank: int


def _detect_format(row: Row, path: Path, number: int) -> _Format:
    columns = list(row)
    text = find_column(columns, None, TEXT_COLUMNS, path=path, role="text")
    if text is None:
        close = next((name for name in columns if nearest(name, TEXT_COLUMNS)), None)
        hint = f"rename {close!r} to 'text'" if close else f"known: {', '.join(TEXT_COLUMNS)}"
        raise InputError(f"no column for the text among {', '.join(columns)}", path=path, row=number, hint=hint)
    first_rank = 1 if _OWN_COLUMN in columns else 0
    return _Format(path, derived_name(path), text, row.get("rank") not in _MISSING, first_rank)


def _name_unused(row: Row, table_format: _Format) -> None:
    unused = [name for name in row if name not in {*selection_schema().names, table_format.text}]
    if unused:
        say(f"{table_format.path}: columns that are not used: {', '.join(unused)}")


def _passage(row: Row, number: int, table_format: _Format, *, index: int) -> Passage:
    text = row.get(table_format.text)
    if not isinstance(text, str):
        if table_format.text not in row:
            raise InputError(
                f"no column {table_format.text!r}",
                path=table_format.path,
                row=number,
                hint=did_you_mean(table_format.text, row),
            )
        raise _wrong(row, table_format.text, number, table_format, "must be a text")
    ranked = table_format.has_ranks or row.get("rank") not in _MISSING
    given = _rank(row, number, table_format) if ranked else table_format.first_rank + index
    source = _name(row, "source", number, table_format) or table_format.source
    document = Document(
        _name(row, "id", number, table_format) or f"{source}/{table_format.path.name}#{number}",
        text,
        source,
        _name(row, "title", number, table_format),
        _name(row, "license", number, table_format),
    )
    reason = (
        f"imported: rank {given} in {table_format.path.name}"
        if ranked
        else f"imported: row {number} of {table_format.path.name}"
    )
    return Passage(
        document, index, given - table_format.first_rank + 1, _score(row, number, table_format), 0, (), reason
    )


def _rank(row: Row, number: int, table_format: _Format) -> int:
    given = row.get("rank")
    if (given not in _MISSING) != table_format.has_ranks:
        what = "has no rank" if table_format.has_ranks else "has a rank"
        raise InputError(f"{what}, unlike the rows before it", path=table_format.path, row=number, key="rank")
    rank = as_number(given)
    if rank is None or not rank.is_integer() or not table_format.first_rank <= rank <= _LARGEST_RANK:
        raise _wrong(row, "rank", number, table_format, f"must be a whole number from {table_format.first_rank} up")
    return int(rank)


def _score(row: Row, number: int, table_format: _Format) -> float:
    given = row.get("score")
    score = 0.0 if given in _MISSING else as_number(given)
    if score is None:
        raise _wrong(row, "score", number, table_format, "must be a finite number")
    return score


def _name(row: Row, column: str, number: int, table_format: _Format) -> str | None:
    """Return a cell of text, or of a number that serves as a name; None where it is empty."""
    value = row.get(column)
    if value in _MISSING:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _wrong(row, column, number, table_format, "must be a text or a number")
    return str(value)


def _wrong(row: Row, column: str, number: int, table_format: _Format, what: str) -> InputError:
    given = row[column]
    shown = "null" if given is None else repr(given)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
    return InputError(f"{what}, got {shown}", path=table_format.path, row=number, key=column)


def _unique(wanted: str, number: int, ids: Seen) -> str:
    """Return the id, or where an earlier row has it, the id with the row number."""
    unique = wanted
    while not ids.add(key_of(unique)):
        unique = f"{wanted}~{number}" if unique == wanted else f"{unique}~"
    return unique
