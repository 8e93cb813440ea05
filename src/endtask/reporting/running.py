"""The curves of a run that goes on or was stopped, from the folders of unfinished stages."""

from __future__ import annotations

import json
from pathlib import Path

from markupsafe import Markup

from endtask.reporting import format as shown
from endtask.reporting.curves import curve_points, finetune_charts, pretrain_charts
from endtask.reporting.plots import Series, line_chart
from endtask.reporting.run_folder import Row, RunFolder
from endtask.reporting.scores import metric_of

_METRICS = "metrics.jsonl"


class RunningRun(RunFolder):
    """A run whose curves are those so far."""

    def curves(self, *folders: str) -> list[Row]:
        """Return the rows of a metrics file; of an unfinished stage those that are written, of all its phases."""
        stage, *inner = folders
        if stage in self.manifests:
            return super().curves(*folders)
        folder = (self.path / f"{stage}.partial").joinpath(*inner)
        files = [folder / _METRICS] if (folder / _METRICS).exists() else _by_age(folder)
        rows: list[Row] = []
        for file in files:
            last_step = rows[-1]["step"] if rows else 0
            rows += [{**row, "step": last_step + row["step"]} for row in rows_so_far(file)]
        return rows


def charts_so_far(folder: Path) -> list[Markup]:
    """Return the charts of pre-training and of fine-tuning, as far as they have come; none before the first row."""
    run = RunningRun(folder)
    drawn = pretrain_charts(run) if run.curves("pretrain") else []
    return [*drawn, *(finetune_charts(run) if "finetune" in run.manifests else _finetune_so_far(run))]


def _finetune_so_far(run: RunFolder) -> list[Markup]:
    """Return charts of the dev score and of the loss with a line for each seed that has started."""
    partial = run.path / "finetune.partial"
    seeds = {str(file.parent.relative_to(partial)): rows_so_far(file) for file in sorted(partial.rglob(_METRICS))}
    metric = metric_of(run)
    name = shown.metric_name(metric)
    dev = [Series(_seed_name(seed), curve_points(rows, f"dev/{metric}")) for seed, rows in seeds.items()]
    loss = [Series(_seed_name(seed), curve_points(rows, "task/task")) for seed, rows in seeds.items()]
    charts = []
    if any(series.points for series in dev):
        title = f"Fine-tuning: {name} on dev"
        charts.append(line_chart(dev, title=title, x_label="step", y_label=name, y_format=shown.score))
    if any(series.points for series in loss):
        charts.append(line_chart(loss, title="Fine-tuning: task loss", x_label="step", y_label="loss"))
    return charts


def _seed_name(folder: str) -> str:
    """Return the name of a seed's line.

    >>> _seed_name("seed-0"), _seed_name("rate-1e-05/seed-2")
    ('seed 0', 'rate 1e-05, seed 2')
    """
    return ", ".join(part.replace("-", " ", 1) for part in folder.split("/"))


def rows_so_far(file: Path) -> list[Row]:
    """Return the complete rows of a file to which another process may append at this moment."""
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    rows: list[Row] = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            break
        rows.append(row)
    return rows


def _by_age(folder: Path) -> list[Path]:
    """Return the metrics files of phases in the order in which they were made; the folder may vanish meanwhile."""
    ages: dict[Path, float] = {}
    for file in folder.glob(f"*/{_METRICS}"):
        try:
            ages[file] = file.stat().st_mtime
        except OSError:
            continue
    return sorted(ages, key=lambda file: (ages[file], str(file)))
