"""Import a selection from a file, under the same budget and contamination filter as other selections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from endtask.config import Settings, SizeBudget
from endtask.corpus.corpus import Seen, unique_id
from endtask.corpus.rows import text_cell, text_column
from endtask.corpus.sources import derived_name
from endtask.errors import InputError
from endtask.io.digests import file_digest
from endtask.io.home import LocalPath
from endtask.io.selection_table import read_statistics, selection_schema, write_selection
from endtask.io.tables import Row, read_rows
from endtask.progress import say
from endtask.records import Document
from endtask.records import Selected as Passage
from endtask.selectors.base import PartConfig, RunContext, Selected, Selector, by_bm25_rank, selectors, write_rows
from endtask.task import Task
from endtask.task.columns import as_number

_ALL_ROWS = "imported.parquet"
_BUDGETS = "null selects all rows; 300MB or 50000passages select the best of it"
_ENDTASK_COLUMN = "matched_count"  # only endtask's own tables have it
_MISSING = (None, "")
_LARGEST_RANK = 1 << 53  # larger whole numbers are inexact in tables that store them as floats


@selectors.register("imported")
class Imported(Selector):
    """read from a file of your own"""

    class Config(PartConfig):
        """Options of `imported`."""

        path: LocalPath | None = Field(None, description="JSONL, CSV, TSV or Parquet with a text column")

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

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` for a missing or unreadable file, and for a budget that does not apply to a file."""
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
            raise InputError(
                f"{budget} is a share of the corpus, but there is no corpus", key="select.budget", hint=_BUDGETS
            )
        check_readable(Path(path))

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write the rows of the file, in its order; a budget takes the best-ranked rows."""
        assert self.config.path is not None
        rows = ImportedRows(Path(self.config.path), run.is_contaminated)
        candidates = path.with_name(_ALL_ROWS)
        try:
            write_selection(candidates, rows)
            statistics = read_statistics(candidates)
            cause = "no row holds an uncontaminated text"
            selected = run.fill_budget(by_bm25_rank(statistics), statistics.bytes, cause=cause)
            written = write_rows(candidates, selected, path)
        finally:
            candidates.unlink(missing_ok=True)
        counts = {
            "rows": rows.read,
            "empty": rows.empty,
            "dropped_by_contamination_filter": rows.dropped_by_contamination_filter,
        }
        return Selected(written, int(statistics.bytes[selected].sum()), counts)


@dataclass
class ImportedRows:
    """Iterates over the passages of a table file and counts the rows that were read and dropped.

    Ranks of endtask's own tables count from 1. Other tables may count from 0, like the TLM authors', so their ranks are
    raised by 1; without a column `rank` the row number is the rank. Matched queries are dropped: their ids belong to
    another run. `is_contaminated` returns which texts to drop.
    """

    path: Path
    is_contaminated: Callable[[str], bool] | None = None
    read: int = 0
    empty: int = 0
    dropped_by_contamination_filter: int = 0

    def __iter__(self) -> Iterator[Passage]:
        self.read = self.empty = self.dropped_by_contamination_filter = 0
        table: _Table | None = None
        ids = Seen()
        for number, row in read_rows(self.path):
            if table is None:
                table = _Table.of(row, self.path)
                if unused := [name for name in row if name not in {*selection_schema().names, table.text}]:
                    say(f"{self.path}: columns that are not used: {', '.join(unused)}")
            passage = table.passage(row, number, index=self.read)
            self.read += 1
            if not passage.document.text.strip():
                self.empty += 1
            elif self.is_contaminated is not None and self.is_contaminated(passage.document.text):
                self.dropped_by_contamination_filter += 1
            else:
                unique = unique_id(passage.document.id, str(number), ids)
                yield replace(passage, document=replace(passage.document, id=unique))
        if not self.read:
            raise _no_rows(self.path)


def check_readable(path: Path) -> None:
    """Raise `InputError` for a file of an unknown format, without rows or without a text column."""
    for _, row in read_rows(path):
        _Table.of(row, path)
        return
    raise _no_rows(path)


def _no_rows(path: Path) -> InputError:
    return InputError("the file holds no rows", path=path, key="select.path")


@dataclass(frozen=True)
class _Table:
    """The columns of a file, detected from its first row."""

    path: Path
    text: str
    has_ranks: bool
    first_rank: int

    @classmethod
    def of(cls, row: Row, path: Path) -> _Table:
        text = text_column(row, None, path=path, key="select.path")
        return cls(path, text, row.get("rank") not in _MISSING, 1 if _ENDTASK_COLUMN in row else 0)

    def passage(self, row: Row, number: int, *, index: int) -> Passage:
        text = text_cell(row, self.text, path=self.path, row_number=number)
        rank = self._rank(row, number)
        source = self._optional_text(row, "source", number) or derived_name(self.path)
        document = Document(
            self._optional_text(row, "id", number) or f"{source}/{self.path.name}#{number}",
            text,
            source,
            self._optional_text(row, "title", number),
            self._optional_text(row, "license", number),
        )
        origin = f"row {number} of" if rank is None else f"rank {rank} in"
        reason = f"imported: {origin} {self.path.name}"
        rank_from_one = index + 1 if rank is None else rank - self.first_rank + 1
        return Passage(document, index, rank_from_one, self._score(row, number), 0, (), reason)

    def _rank(self, row: Row, number: int) -> int | None:
        cell = row.get("rank")
        if (cell not in _MISSING) != self.has_ranks:
            problem = "has no rank" if self.has_ranks else "has a rank"
            raise InputError(f"{problem}, unlike the rows before it", path=self.path, row=number, key="rank")
        if not self.has_ranks:
            return None
        rank = as_number(cell)
        if rank is None or not rank.is_integer() or not self.first_rank <= rank <= _LARGEST_RANK:
            raise self._wrong(row, "rank", number, f"must be a whole number from {self.first_rank} up")
        return int(rank)

    def _score(self, row: Row, number: int) -> float:
        cell = row.get("score")
        score = 0.0 if cell in _MISSING else as_number(cell)
        if score is None:
            raise self._wrong(row, "score", number, "must be a finite number")
        return score

    def _optional_text(self, row: Row, column: str, number: int) -> str | None:
        """Return a cell as text, None if it is empty."""
        value = row.get(column)
        if value in _MISSING:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._wrong(row, column, number, "must be a text or a number")
        return str(value)

    def _wrong(self, row: Row, column: str, number: int, rule: str) -> InputError:
        value = repr(row[column])
        value = value if len(value) <= 40 else f"{value[:40]}..."
        return InputError(f"{rule}, got {value}", path=self.path, row=number, key=column)
