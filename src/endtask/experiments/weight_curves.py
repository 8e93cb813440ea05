"""The learned weights of the objectives in a comparison: a chart for each variant, the mean over its pre-trainings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from markupsafe import Markup

from endtask.experiments.comparison import ComparisonResult, ResultTable, TableRow
from endtask.experiments.variants import VARIANTS
from endtask.io.stage_files import DamagedFile
from endtask.reporting import format as shown
from endtask.reporting.curves import curve_points, pretrain_rows
from endtask.reporting.plots import Series, line_chart
from endtask.reporting.run_folder import Row, RunFolder

WEIGHT = "weight/"
"""The beginning of the names of these curves in metrics.jsonl."""
Points = tuple[tuple[float, float], ...]


def weight_charts(result: ComparisonResult, table: ResultTable) -> list[Markup]:
    """Return a chart for each variant of a table whose weights were learned; the others have no such curves."""
    return [chart for row in table.rows if (chart := _chart(result, row)) is not None]


def _chart(result: ComparisonResult, row: TableRow) -> Markup | None:
    folder = result.folder / VARIANTS / row.name
    seeds = [trial.seed for trial in result.trials[row.name] if trial.seed is not None]
    runs = [rows for seed in seeds if (rows := _metrics(folder / f"seed-{seed}"))]
    names = sorted({name for rows in runs for one in rows for name in one if name.startswith(WEIGHT)})
    lines = [
        Series(name.removeprefix(WEIGHT), mean_curve([curve_points(rows, name) for rows in runs])) for name in names
    ]
    if not any(line.points for line in lines):
        return None
    mean = f", mean of {shown.plural(len(runs), 'pre-training')}" if len(runs) > 1 else ""
    return line_chart(lines, title=f"Weights, {row.title}{mean}", x_label="step", y_label="weight")


def _metrics(folder: Path) -> list[Row]:
    """Return the curves of pre-training; none where the run is gone or damaged, for a page that shows the others."""
    if not (folder / "pretrain").is_dir():
        return []
    try:
        return pretrain_rows(RunFolder(folder))
    except DamagedFile:
        return []


def mean_curve(curves: Sequence[Points]) -> Points:
    """Return the mean of some curves at the steps that all of them have.

    >>> mean_curve([((1, 0.5), (2, 0.6)), ((1, 0.7), (2, 0.8), (3, 0.9))])
    ((1, 0.6), (2, 0.7))
    """
    values = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*map(set, values))) if values else []
    return tuple((step, round(fmean(one[step] for one in values), 6)) for step in steps)
