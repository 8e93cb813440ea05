"""The map of texts in the report: rows by label, wrong ones with a ring, and selected passages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from endtask.io.run_layout import TEXT_MAP
from endtask.reporting import format as shown
from endtask.reporting.plots_points import MapPoint, map_chart
from endtask.reporting.prediction_rows import PredictionRows
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.svg import STYLES

_CHARACTERS = 110
_OTHERS = "other labels"


@dataclass(frozen=True)
class TextMap:
    """A map as a chart, the number of passages on it, and the share of the variance that it shows."""

    chart: Markup
    passages: int
    explained: float


def text_map(run: RunFolder, rows: PredictionRows) -> TextMap | None:
    """Return the map of an evaluated run; None if it has none."""
    import pyarrow.parquet as parquet

    path = run.file("evaluate", TEXT_MAP)
    if not path.exists():
        return None
    table = parquet.read_table(path)
    texts = table.to_pylist()
    numbers = {rows.columns["id"][row]: row for row in rows.scored.tolist()}
    groups = _groups(rows)
    passages = [text for text in texts if text["kind"] == "passage"]
    points = [
        MapPoint(text["x"], text["y"], STYLES - 1, shown.shorten(text["text"], _CHARACTERS), is_passage=True)
        for text in passages
    ]
    points += [_row_point(text, rows, numbers[text["id"]], groups) for text in texts if text["id"] in numbers]
    chart = map_chart(points, groups, title="Texts by the model's vectors")
    return TextMap(chart, len(passages), float((table.schema.metadata or {}).get(b"explained_variance", 0)))


def _groups(rows: PredictionRows) -> list[str]:
    """Return the names of the colours: the commonest labels, and one for all others; one name for other task types."""
    if rows.form != "classes":
        return [f"rows of {rows.metadata['task']}"]
    counts = Counter(rows.columns["label"][row] for row in rows.scored)
    most = STYLES - 1  # one is left for the passages
    names = [label for label, _ in counts.most_common()]
    return sorted(names) if len(names) <= most else [*names[: most - 1], _OTHERS]


def _row_point(text: dict[str, Any], rows: PredictionRows, row: int, groups: list[str]) -> MapPoint:
    label, is_right = rows.columns["label"][row], rows.columns["right"][row]
    group = 0 if rows.form != "classes" else groups.index(label) if label in groups else len(groups) - 1
    about = f"{label}, predicted {rows.columns['predicted'][row]}" if rows.form == "classes" else text["id"]
    title = f"{about}: {shown.shorten(text['text'], _CHARACTERS)}"
    return MapPoint(text["x"], text["y"], group, title, emphasized=is_right is False)
