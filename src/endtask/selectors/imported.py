"""A selection made elsewhere, under the same budget and guard as our own."""

from __future__ import annotations

from pathlib import Path

from endtask.config import SelectSettings
from endtask.corpus.contents import file_digest
from endtask.io.selection_table import read_statistics, write_selection
from endtask.selectors.best_rank import best_rank
from endtask.selectors.embedding import embedding_fingerprint
from endtask.selectors.fill_budget import fill_or_raise
from endtask.selectors.imported_rows import ImportedRows
from endtask.selectors.inputs import Inputs, Kept
from endtask.selectors.table import keep_rows

_ALL_ROWS = "imported.parquet"


def select_imported(inputs: Inputs, path: Path) -> Kept:
    """Keep rows of the file in their own order; a budget takes the best-ranked of them."""
    assert inputs.settings.path is not None
    rows = ImportedRows(Path(inputs.settings.path), inputs.is_contaminated)
    candidates = path.with_name(_ALL_ROWS)
    try:
        write_selection(candidates, rows)
        statistics = read_statistics(candidates)
        kept = fill_or_raise(
            best_rank(statistics), statistics.bytes, inputs, otherwise="no row holds a text that may stay"
        )
        written = keep_rows(candidates, kept, path)
    finally:
        candidates.unlink(missing_ok=True)
    counts = {"rows": rows.read, "empty": rows.empty, "dropped_by_contamination_filter": rows.dropped_by_contamination_filter}
    return Kept(written, int(statistics.bytes[kept].sum()), counts)


def imported_fingerprint(settings: SelectSettings) -> str:
    """A hash of what the selector reads beside the corpus (the imported file, or the embedding); `none` without."""
    if settings.outside_path is None:
        return "none"
    if settings.uses_embedding:
        return embedding_fingerprint(settings.outside_path)
    return file_digest(Path(settings.outside_path))
