"""The inside of the encoder in the report: attention heads by kind, and maps of sentence vectors by class."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from endtask.errors import InputError
from endtask.io.run_layout import ANALYSIS
from endtask.reporting import format as shown
from endtask.reporting.plots_heads import Head, heads_chart
from endtask.reporting.plots_points import MapPoint, map_chart
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.svg import STYLES

_CHARACTERS = 110
_OTHERS = "other classes"
Tree = dict[str, Any]


@dataclass(frozen=True)
class ModelAnalysis:
    """A model's counts of heads, the share of near texts with the same class, and its charts."""

    name: str
    layers: int
    heads: int
    positional: int
    vertical: int
    other: int
    same_class: float | None
    heads_chart: Markup
    map_chart: Markup | None


@dataclass(frozen=True)
class Analysis:
    """The analysis of a run; `is_stale` says that the run was trained again since."""

    split: str
    texts: int
    same_class_by_chance: float | None
    models: list[ModelAnalysis]
    is_stale: bool


def analysis_of(run: RunFolder) -> Analysis | None:
    """Return the stored analysis of a run; None if there is none."""
    tree = run.analysis
    if tree is None:
        return None
    try:
        points = _Points.of(run, tree)
        models = [_model(model, points) for model in tree["models"]]
        made_with = tree["stages"]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        path = run.path / ANALYSIS
        raise InputError("damaged", path=path, hint=f"make it again: endtask analyze {run.path}") from None
    now = {stage: run.manifests[stage]["fingerprint"] for stage in made_with if stage in run.manifests}
    return Analysis(tree["split"], len(tree["texts"]), tree["same_class_by_chance"], models, now != made_with)


@dataclass(frozen=True)
class _Points:
    """The group and the title of each text on a map, and the names of the groups."""

    groups: list[int]
    titles: list[str]
    names: list[str]

    @classmethod
    def of(cls, run: RunFolder, tree: Tree) -> _Points:
        examples = {row["id"]: row for row in run.examples(tree["split"])}
        rows = [examples[name] for name in tree["texts"]]
        if tree["same_class_by_chance"] is None:
            names, labels = ["texts"], ["texts"] * len(rows)
        else:
            labels = [str(row["label"]) for row in rows]
            names = _group_names(labels)
        groups = [names.index(label) if label in names else len(names) - 1 for label in labels]
        titles = [
            f"{label}: {shown.shorten(row['text'], _CHARACTERS)}" for label, row in zip(labels, rows, strict=True)
        ]
        return cls(groups, titles, names)


def _group_names(labels: list[str]) -> list[str]:
    """Return the commonest classes in alphabetical order, and one name for all others if there are many.

    >>> _group_names(list("aaaabbbbccccddddeeeefg"))
    ['a', 'b', 'c', 'd', 'e', 'other classes']
    """
    names = [label for label, _ in Counter(labels).most_common()]
    return sorted(names) if len(names) <= STYLES else [*sorted(names[: STYLES - 1]), _OTHERS]


def _model(model: Tree, points: _Points) -> ModelAnalysis:
    return ModelAnalysis(
        **{key: model[key] for key in ("name", "layers", "heads", "positional", "vertical", "other", "same_class")},
        heads_chart=heads_chart(_heads(model), title=f"Attention heads, {model['name']}"),
        map_chart=None if model["map"] is None else _map(model, points),
    )


def _heads(model: Tree) -> list[list[Head]]:
    maxima, tokens = model["maxima"], model["maxima"]["tokens"]
    layers = zip(model["kinds"], maxima["neighbours"], maxima["fixed"], strict=True)
    return [
        [Head(kind, near / tokens, fixed / tokens) for kind, near, fixed in zip(*one, strict=True)] for one in layers
    ]


def _map(model: Tree, points: _Points) -> Markup:
    placed = zip(model["map"], points.groups, points.titles, strict=True)
    drawn = [MapPoint(x, y, group, title) for (x, y), group, title in placed]
    return map_chart(drawn, points.names, title=f"Sentence vectors, {model['name']}")
