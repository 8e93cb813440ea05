"""Training in the report: charts of losses, weights and dev scores, and a table of the objectives and their cost."""

from __future__ import annotations

from markupsafe import Markup

from endtask.reporting import format as shown
from endtask.reporting.plots import Series, line_chart
from endtask.reporting.run_folder import Row, RunFolder
from endtask.reporting.scores import metric_of

_LOSSES = {"mlm": "masked-LM loss", "task": "task loss"}
_OBJECTIVES = {"corpus": "selected passages", "task": "task texts"}
_DEV = "dev"
_OTHER_CURVES = {
    "weight": ("Pre-training: weights of the objectives", "weight"),
    "cosine": ("Pre-training: agreement with held-out task data", "cosine"),
    "reselect": ("Pre-training: scores at re-selection, in deviations", "score"),
}
"""Charts of curves other than losses, by the first part of the curve's name."""


def pretrain_charts(run: RunFolder) -> list[Markup]:
    """Return a chart per kind of loss (their scales differ) with a line per objective, then weights and dev scores."""
    rows = pretrain_rows(run)
    names = sorted({name for row in rows for name in row if "/" in name})
    losses = [name for name in names if _first_part(name) not in (*_OTHER_CURVES, _DEV)]
    kinds = sorted({_second_part(name) for name in losses})
    charts = [_loss_chart(rows, [name for name in losses if _second_part(name) == kind], kind) for kind in kinds]
    for curve, (title, label) in _OTHER_CURVES.items():
        curve_names = [name for name in names if _first_part(name) == curve]
        lines = [Series(_display_name(_second_part(name)), curve_points(rows, name)) for name in curve_names]
        if lines:
            charts.append(line_chart(lines, title=title, x_label="step", y_label=label))
    return [*charts, *_dev_chart(run, rows)]


def pretrain_rows(run: RunFolder) -> list[Row]:
    """Return the curves of pre-training; those of a sequence of objectives are concatenated, with running steps."""
    objectives = run.counts("pretrain").get("objectives", {})
    sequence = [curves for name in objectives if (curves := run.curves("pretrain", name))]
    if not sequence:
        return run.curves("pretrain")
    rows: list[Row] = []
    for curves in sequence:
        last_step = rows[-1]["step"] if rows else 0
        rows += [{**row, "step": last_step + row["step"]} for row in curves]
    return rows


def _loss_chart(rows: list[Row], names: list[str], kind: str) -> Markup:
    """Return a chart of a kind of loss; its title has the objective if a single line has no legend."""
    lines = [Series(_display_name(_first_part(name)), curve_points(rows, name)) for name in names]
    title = f"Pre-training: {_LOSSES.get(kind, f'{kind} loss')}"
    if len(lines) == 1:
        title = f"{title}, {lines[0].name}"
    return line_chart(lines, title=title, x_label="step", y_label="loss")


def _dev_chart(run: RunFolder, rows: list[Row]) -> list[Markup]:
    """Return a chart of the dev scores of pre-training's head; empty if it was not evaluated."""
    points = curve_points(rows, f"{_DEV}/{metric_of(run)}")
    if not points:
        return []
    name = shown.metric_name(metric_of(run))
    title = f"Pre-training: {name} on dev"
    return [line_chart([Series(name, points)], title=title, x_label="step", y_label=name, y_format=shown.score)]


def finetune_charts(run: RunFolder) -> list[Markup]:
    """Return charts of the dev score per epoch and the training loss per step, with a line per seed."""
    seeds = [result["seed"] for result in run.counts("finetune").get("seeds", [])]
    if not seeds:
        return []
    metric = metric_of(run)
    epoch = run.manifests["finetune"].get("plan", {}).get("steps_per_epoch", 1)
    curves = {seed: run.curves("finetune", f"seed-{seed}") for seed in seeds}
    dev = [Series(f"seed {seed}", curve_points(rows, f"dev/{metric}", unit=epoch)) for seed, rows in curves.items()]
    loss = [Series(f"seed {seed}", curve_points(rows, "task/task")) for seed, rows in curves.items()]
    name = shown.metric_name(metric)
    return [
        line_chart(dev, title=f"Fine-tuning: {name} on dev", x_label="epoch", y_label=name, y_format=shown.score),
        line_chart(loss, title="Fine-tuning: task loss", x_label="step", y_label="loss"),
    ]


def curve_points(rows: list[Row], name: str, unit: float = 1) -> tuple[tuple[float, float], ...]:
    """Return the (step, value) pairs of a curve; `unit` is the number of steps in one."""
    return tuple((row["step"] / unit, row[name]) for row in rows if name in row)


def _first_part(name: str) -> str:
    return name.split("/", 1)[0]


def _second_part(name: str) -> str:
    return name.split("/", 1)[1]


def _display_name(objective: str) -> str:
    return _OBJECTIVES.get(objective, objective)


def objective_rows(run: RunFolder) -> list[Row]:
    """Return all parts of training in order, with the data of each, and the counts and last weight of objectives."""
    counts = run.counts("pretrain")
    weights = _last_weights(run)
    rows = []
    for use in counts.get("uses", []):
        objective = counts.get("objectives", {}).get(use["part"], {})
        rows.append(
            {
                **{key: use[key] for key in ("part", "learns", "reads", "split", "labels")},
                **{key: objective.get(key) for key in ("steps", "tokens", "matmul_flops")},
                "weight": weights.get(use["part"]),
            }
        )
    return rows


def _last_weights(run: RunFolder) -> dict[str, float]:
    weights: dict[str, float] = {}
    for row in pretrain_rows(run):
        weights |= {name.split("/", 1)[1]: value for name, value in row.items() if name.startswith("weight/")}
    return weights
