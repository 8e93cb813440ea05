"""The rows of a run's predictions for the report: answers and probabilities in memory, texts read where shown."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.evaluation.label_issues import label_issues
from endtask.evaluation.prediction_table import METADATA
from endtask.io.run_layout import PREDICTION_TABLE
from endtask.registry import task_types
from endtask.reporting.run_folder import RunFolder

Row = dict[str, Any]
_LIGHT = ("split", "id", "test_set", "words", "leaked", "label", "predicted", "right", "confidence", "votes")
_SHOWN = (
    "split",
    "id",
    "text",
    "text_pair",
    "tokens",
    "leaked",
    "label",
    "predicted",
    "confidence",
    "votes",
    "neighbors",
)


@dataclass(frozen=True)
class Candidate:
    """An answer whose label may be wrong: its row, the given and the suggested label, and their probabilities.

    `word` is the index of the word of a tagged text. For multilabel rows, `given` and `suggested` say whether
    a label holds.
    """

    row: int
    given: str
    suggested: str
    given_probability: float
    suggested_probability: float
    word: int | None = None


class PredictionRows:
    """The table of predictions of a run; rows are numbered over dev and the scored split."""

    def __init__(self, path: Path) -> None:
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        self.path = path
        try:
            table = parquet.read_table(path, columns=[*_LIGHT, "probabilities"])
            self.metadata: Row = json.loads((table.schema.metadata or {})[METADATA])
        except (arrow.ArrowException, OSError, KeyError, ValueError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"not a readable table of predictions: {reason}", path=path) from None
        self.columns: dict[str, list[Any]] = {name: table.column(name).to_pylist() for name in _LIGHT}
        self._probabilities = table.column("probabilities")

    @classmethod
    def find(cls, run: RunFolder) -> PredictionRows | None:
        """Return the rows of an evaluated run; None for a run of an older version."""
        path = run.file("evaluate", PREDICTION_TABLE)
        return cls(path) if path.exists() else None

    def __len__(self) -> int:
        return len(self.columns["id"])

    @property
    def form(self) -> str:
        """The form of the answers: classes, numbers, label_sets or tags."""
        return str(task_types.get(self.metadata["type"]).form)

    @property
    def labels(self) -> list[str]:
        """The labels in the order of the probabilities."""
        return list(self.metadata["labels"])

    @cached_property
    def scored(self) -> NDArray[np.int64]:
        """The numbers of the rows of the scored split: test, or dev without a test split."""
        splits = np.asarray(self.columns["split"])
        return np.flatnonzero(splits == ("test" if "test" in self.columns["split"] else "dev"))

    def shown(self, rows: Collection[int]) -> dict[int, Row]:
        """Return some rows with their texts and neighbours, by number."""
        import pyarrow.parquet as parquet

        found: dict[int, Row] = {}
        wanted, start = np.asarray(sorted(rows), dtype=np.int64), 0
        with parquet.ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                inside = wanted[(wanted >= start) & (wanted < end)]
                if len(inside):
                    taken = file.read_row_group(group, columns=list(_SHOWN)).take(inside - start)
                    found.update(zip(inside.tolist(), taken.to_pylist(), strict=True))
                start = end
        return found

    def candidates(self) -> list[Candidate]:
        """Return the answers of dev and of the scored split whose labels may be wrong, the surest first."""
        if self.form == "numbers":
            return []
        found = {"classes": self._classes, "label_sets": self._label_sets, "tags": self._tags}[self.form]()
        return sorted(found, key=lambda one: one.given_probability - one.suggested_probability)

    def _classes(self) -> Iterator[Candidate]:
        return self._of(self._matrix(), self.columns["label"], [(row, None) for row in range(len(self))])

    def _tags(self) -> Iterator[Candidate]:
        units = [(row, word) for row, tags in enumerate(self.columns["label"]) for word in range(len(tags))]
        given = [tag for tags in self.columns["label"] for tag in tags]
        matrix = np.asarray(self._probabilities.combine_chunks().flatten().flatten(), dtype=np.float64)
        return self._of(matrix.reshape(len(units), len(self.labels)), given, units)

    def _of(
        self, matrix: NDArray[np.float64], given: list[str], units: Sequence[tuple[int, int | None]]
    ) -> Iterator[Candidate]:
        """Yield the candidates among answers with one of the labels; labels that train lacks are left out."""
        number = {label: index for index, label in enumerate(self.labels)}
        usable = [index for index, label in enumerate(given) if label in number and matrix[index].any()]
        truth = np.asarray([number[given[index]] for index in usable], dtype=np.int64)
        probabilities = matrix[usable]
        for issue in label_issues(probabilities, truth) if usable else []:
            row, word = units[usable[issue.index]]
            own, other = probabilities[issue.index, [truth[issue.index], issue.suggested]]
            yield Candidate(
                row, given[usable[issue.index]], self.labels[issue.suggested], float(own), float(other), word
            )

    def _label_sets(self) -> Iterator[Candidate]:
        matrix = self._matrix()
        for number, label in enumerate(self.labels):
            holds = np.asarray([label in given for given in self.columns["label"]], dtype=np.int64)
            both = np.stack([1.0 - matrix[:, number], matrix[:, number]], axis=1)
            for issue in label_issues(both, holds):
                own = float(both[issue.index, holds[issue.index]])
                names = (f"{label}: no", f"{label}: yes")
                yield Candidate(issue.index, names[int(holds[issue.index])], names[issue.suggested], own, 1.0 - own)

    def _matrix(self) -> NDArray[np.float64]:
        flat = np.asarray(self._probabilities.combine_chunks().flatten(), dtype=np.float64)
        return flat.reshape(len(self), len(self.labels))
