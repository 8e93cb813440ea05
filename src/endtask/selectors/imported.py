"""A selection made elsewhere, under the same budget and contamination filter as our own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from endtask.config import Settings, SizeBudget
from endtask.errors import InputError
from endtask.io.digests import file_digest
from endtask.io.selection_table import read_statistics, write_selection
from endtask.selectors.base import PartConfig, RunContext, Selected, Selector, selectors
from endtask.selectors.best_rank import best_rank
from endtask.selectors.fill_budget import fill_or_raise
from endtask.selectors.imported_rows import ImportedRows, check_readable
from endtask.selectors.table import keep_rows
from endtask.task import Task

_ALL_ROWS = "imported.parquet"
_BUDGETS = "null selects the whole file; 300MB or 50000passages select the best of it"


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
        """Whether the budget is a share of the corpus."""
        return budget is not None and budget.unit == "share"

    def external_path(self) -> str | None:
        """Return the file."""
        return self.config.path

    def external_digest(self) -> str:
        """Return a hash of the file."""
        assert self.config.path is not None
        return file_digest(Path(self.config.path))

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
        """Refuse a file that is missing or unreadable, and budgets that mean nothing for it."""
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
            selected = fill_or_raise(
                best_rank(statistics), statistics.bytes, run, otherwise="no row holds an uncontaminated text"
            )
            written = keep_rows(candidates, selected, path)
        finally:
            candidates.unlink(missing_ok=True)
        counts = {
            "rows": rows.read,
            "empty": rows.empty,
            "dropped_by_contamination_filter": rows.dropped_by_contamination_filter,
        }
        return Selected(written, int(statistics.bytes[selected].sum()), counts)
