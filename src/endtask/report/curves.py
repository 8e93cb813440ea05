"""The training curves as charts: losses of the joint stage, then loss and dev score of every fine-tuning seed."""

from __future__ import annotations

from markupsafe import Markup

from endtask.report import format as shown
from endtask.report.plots import Series, line_chart
from endtask.report.run_folder import Row, RunFolder
from endtask.report.scores import metric_of

_PARTS = {"mlm": "masked-LM loss", "task": "task loss"}
_OBJECTIVES = {"external": "kept passages (external)", "internal": "task texts (internal)"}


def pretrain_charts(run: RunFolder) -> list[Markup]:
    """One chart per kind of loss, since their scales differ; a line per objective that has it."""
    rows = run.curves("pretrain")
    names = sorted({name for row in rows for name in row if "/" in name})
    kinds = sorted({name.split("/", 1)[1] for name in names})
    return [
        line_chart(
            [Series(_objective(name), _points(rows, name)) for name in names if name.split("/", 1)[1] == kind],
            title=_pretrain_title(kind, [name for name in names if name.split("/", 1)[1] == kind]),
            x_label="step",
            y_label="loss",
        )
        for kind in kinds
    ]


def finetune_charts(run: RunFolder) -> list[Markup]:
    """The dev score per epoch and the training loss per step, a line per seed."""
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


def _objective(name: str) -> str:
    objective = name.split("/", 1)[0]
    return _OBJECTIVES.get(objective, objective)


def _pretrain_title(kind: str, names: list[str]) -> str:
    """The kind of loss, and whose it is where a single line needs no legend."""
    title = f"Joint training: {_PARTS.get(kind, f'{kind} loss')}"
    return f"{title}, {_objective(names[0])}" if len(names) == 1 else title
