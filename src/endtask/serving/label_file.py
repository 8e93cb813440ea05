"""Write the candidates for wrong labels of a run as a table, for people who check them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from endtask.errors import InputError
from endtask.records import batched
from endtask.reporting.prediction_rows import Candidate, PredictionRows
from endtask.reporting.run_folder import RunFolder
from endtask.serving.table_output import Row, check_output, table_writer

_BATCH = 500


def write_label_file(run: Path, target: Path, *, raw_cells: bool = False) -> int:
    """Write the candidates of dev and of the scored split to a new file, the surest first. Return their number."""
    check_output(target)
    rows = _rows_of(run)
    candidates = rows.candidates()
    with table_writer(target, raw_cells=raw_cells) as write:
        for batch in batched(enumerate(candidates, start=1), _BATCH):
            shown = rows.shown({candidate.row for _, candidate in batch})
            write([(number, _cells(candidate, shown[candidate.row])) for number, candidate in batch])
    return len(candidates)


def _rows_of(run: Path) -> PredictionRows:
    folder = RunFolder(run)
    rows = PredictionRows.find(folder)
    if rows is None:
        hint = f"endtask run {run} --from evaluate" if "evaluate" in folder.manifests else f"endtask run {run}"
        raise InputError("the run has no table of predictions", path=run, hint=hint)
    if rows.form == "numbers":
        raise InputError("a task of numbers has no labels to check", path=run, hint="see the largest errors: report")
    return rows


def _cells(candidate: Candidate, row: Row) -> Row:
    """Return the columns of a candidate; those of pairs and of tagged words only where the task has them."""
    return {
        "split": row["split"],
        "id": row["id"],
        **dict(_texts(candidate, row)),
        "label": candidate.given,
        "suggested": candidate.suggested,
        "label_probability": round(candidate.given_probability, 6),
        "suggested_probability": round(candidate.suggested_probability, 6),
        "nearest_train_rows": [near["id"] for near in row["neighbors"] or ()],
    }


def _texts(candidate: Candidate, row: Row) -> Iterator[tuple[str, object]]:
    yield "text", row["text"]
    if row["text_pair"] is not None:
        yield "text_pair", row["text_pair"]
    if candidate.word is not None:
        yield "word", row["tokens"][candidate.word]
        yield "word_number", candidate.word + 1
