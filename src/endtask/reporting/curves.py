"""Training in the report: charts of losses, weights and dev scores, and a table of the objectives and their cost."""

from __future__ import annotations

from markupsafe import Markup

from endtask.reporting import format as shown
from endtask.reporting.plots import Series, line_chart
from endtask.reporting.run_folder import Row, RunFolder
from endtask.reporting.scores import metric_of

_PARTS = {"mlm": "masked-LM loss", "task": "task loss"}
_OBJECTIVES = {"corpus": "selected passages", "task": "task texts"}
_DEV = "dev"
_NO_LOSSES = {
    "weight": ("Pre-training: weights of the objectives", "weight"),
    "cosine": ("Pre-training: agreement with held-out task data", "cosine"),
    "reselect": ("Pre-training: scores at re-selection, in deviations", "score"),
}
"""Charts of curves other than losses, by the first part of the curve's name."""


def pretrain_charts(run: RunFolder) -> list[Markup]:
    """Draw a chart per kind of loss (their scales differ) with a line per objective; then weights and dev scores."""
    rows = pretrain_rows(run)
    names = sorted({name for row in rows for name in row if "/" in name})
    losses = [name for name in names if _family(name) not in (*_NO_LOSSES, _DEV)]
    kinds = sorted({name.split("/", 1)[1] for name in losses})
    charts = [_loss_chart(rows, [name for name in losses if name.split("/", 1)[1] == kind], kind) for kind in kinds]
    for family, (title, label) in _NO_LOSSES.items():
        lines = [Series(_own_name(name), _points(rows, name)) for name in names if _family(name) == family]
        if lines:
            charts.append(line_chart(lines, title=title, x_label="step", y_label=label))
    return [*charts, *_dev_chart(run, rows)]


def pretrain_rows(run: RunFolder) -> list[Row]:
    """Return the curves of pre-training; concatenates those of a sequence of objectives, with running steps."""
    parts = run.counts("pretrain").get("objectives", {})
    sequence = [found for name in parts if (found := run.curves("pretrain", name))]
    if not sequence:
        return run.curves("pretrain")
    rows: list[Row] = []
    for part in sequence:
        before = rows[-1]["step"] if rows else 0
        rows += [{**row, "step": before + row["step"]} for row in part]
    return rows


def _loss_chart(rows: list[Row], names: list[str], kind: str) -> Markup:
    lines = [Series(_objective(name), _points(rows, name)) for name in names]
    return line_chart(lines, title=_pretrain_title(kind, names), x_label="step", y_label="loss")


def _dev_chart(run: RunFolder, rows: list[Row]) -> list[Markup]:
    """Draw the dev score of pre-training's own head, if it was evaluated."""
    points = _points(rows, f"{_DEV}/{metric_of(run)}")
    if not points:
        return []
    name = shown.metric_name(metric_of(run))
    title = f"Pre-training: {name} on dev"
    return [line_chart([Series(name, points)], title=title, x_label="step", y_label=name, y_format=shown.score)]


def finetune_charts(run: RunFolder) -> list[Markup]:
    """Draw the dev score per epoch and the training loss per step, a line per seed."""
    seeds = [result["seed"] for result in run.counts("finetune").get("seeds", [])]
    if not seeds:
        return []
    metric = metric_of(run)
    epoch = run.manifests["finetune"].get("plan", {}).get("steps_per_epoch", 1)
    curves = {seed: run.curves("finetune", f"seed-{seed}") for seed in seeds}
    dev = [Series(f"seed {seed}", _points(rows, f"dev/{metric}", unit=epoch)) for seed, rows in curves.items()]
    loss = [Series(f"seed {seed}", _points(rows, "task/task")) for seed, rows in curves.items()]
    name = shown.metric_name(metric)
    return [
        line_chart(dev, title=f"Fine-tuning: {name} on dev", x_label="epoch", y_label=name, y_format=shown.score),
        line_chart(loss, title="Fine-tuning: task loss", x_label="step", y_label="loss"),
    ]


def _points(rows: list[Row], name: str, unit: float = 1) -> tuple[tuple[float, float], ...]:
    return tuple((row["step"] / unit, row[name]) for row in rows if name in row)


def _family(name: str) -> str:
    return name.split("/", 1)[0]


def _own_name(name: str) -> str:
    own = name.split("/", 1)[1]
    return _OBJECTIVES.get(own, own)


def _objective(name: str) -> str:
    objective = name.split("/", 1)[0]
    return _OBJECTIVES.get(objective, objective)


def _pretrain_title(kind: str, names: list[str]) -> str:
    """Return the kind of loss, and its objective where a single line has no legend."""
    title = f"Pre-training: {_PARTS.get(kind, f'{kind} loss')}"
    return f"{title}, {_objective(names[0])}" if len(names) == 1 else title


def objective_rows(run: RunFolder) -> list[Row]:
    """Return all parts of training in order: the data of each, and the counts and last weight of objectives."""
    counts = run.counts("pretrain")
    weights = _last_weights(run)
    rows = []
    for use in counts.get("uses", []):
        own = counts.get("objectives", {}).get(use["part"], {})
        rows.append(
            {
                **{key: use[key] for key in ("part", "learns", "reads", "split", "labels")},
                **{key: own.get(key) for key in ("steps", "tokens", "matmul_flops")},
                "weight": weights.get(use["part"]),
            }
        )
    return rows


def _last_weights(run: RunFolder) -> dict[str, float]:
    weights: dict[str, float] = {}
    for row in pretrain_rows(run):
        weights |= {name.split("/", 1)[1]: value for name, value in row.items() if name.startswith("weight/")}
    return weights
