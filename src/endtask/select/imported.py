"""A selection made elsewhere, under the same budget and guard as our own."""

from __future__ import annotations

from pathlib import Path

from endtask.corpus.contents import file_digest
from endtask.files.selection_table import read_figures, write_selection
from endtask.select.best_rank import best_rank
from endtask.select.embedding import embedding_fingerprint
from endtask.select.fill import fill_or_refuse
from endtask.select.imported_rows import ImportedRows
from endtask.select.inputs import Inputs, Kept
from endtask.select.table import keep_rows
from endtask.settings import SelectSettings

_ALL_ROWS = "imported.parquet"


def select_imported(inputs: Inputs, path: Path) -> Kept:
    """Keep rows of the file in their own order; a budget takes the best-ranked of them."""
    assert inputs.settings.path is not None
    rows = ImportedRows(Path(inputs.settings.path), inputs.guarded)
    candidates = path.with_name(_ALL_ROWS)
    try:
        write_selection(candidates, rows)
        figures = read_figures(candidates)
        kept = fill_or_refuse(best_rank(figures), figures.bytes, inputs, otherwise="no row holds a text that may stay")
        written = keep_rows(candidates, kept, path)
    finally:
        candidates.unlink(missing_ok=True)
    counts = {"rows": rows.read, "empty": rows.empty, "dropped_by_guard": rows.dropped_by_guard}
    return Kept(written, int(figures.bytes[kept].sum()), counts)


def imported_fingerprint(settings: SelectSettings) -> str:
    """A hash of what the selector reads beside the corpus (the imported file, or the embedding); `none` without."""
    if settings.outside_path is None:
        return "none"
    if settings.uses_embedding:
        return embedding_fingerprint(settings.outside_path)
    return file_digest(Path(settings.outside_path))
