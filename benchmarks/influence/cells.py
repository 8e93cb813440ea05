"""What is compared: how the fifth of the candidates is chosen, how much is kept, and whose gradients choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.recipe.cells import SHORT
from endtask.config import Settings, load_settings
from endtask.config.overrides import with_values

Tree = dict[str, Any]

TASKS: dict[str, str] = {"chemprot": "micro_f1", "sciie": "macro_f1"}
"""The tasks and what decides, as in the papers."""

LAYERS = ("last", "three_quarters", "half", "quarter", "embedding")
SIZES = (10, 40, 60)
FIFTH = 20
STEPS = 1000
"""Of half the recipe's batches: once through all candidates, five times through a fifth of them."""
OTHER_STEPS = (250, 500, 2000)


@dataclass(frozen=True)
class Arm:
    """A cell: the first `percent` of the candidates in an order, the title it is shown under, and its steps."""

    order: str
    percent: int
    title: str
    steps: int = STEPS

    @property
    def name(self) -> str:
        """The cell's name."""
        steps = "" if self.steps == STEPS else f"-{self.steps}steps"
        return f"{self.order}-{self.percent}{steps}"


def order_of(layer: str) -> str:
    """The name of the order by influence with respect to a layer of the larger scoring model."""
    return f"layer_{layer}"


@dataclass(frozen=True)
class Scoring:
    """How a GPU makes an order: the scoring model's size, whose weights' gradients are compared, and other settings."""

    size: str = "auto"
    layer: str = "last"
    values: Tree = field(default_factory=dict)


ONE_MASK: Tree = {"masks": 1}
"""As the paper reads a candidate."""
SCORINGS: dict[str, Scoring] = {
    "influence": Scoring(),
    "one_mask": Scoring(values=ONE_MASK),
    **{order_of(layer): Scoring("mini", layer) for layer in LAYERS},
}
"""The orders that a GPU makes. The usual scoring model has only two layers, so layers are compared in a larger one."""
TOGETHER = ("best_rank", "influence")
"""The orders that `select.name: fusion` would make one of."""

TABLES: dict[str, tuple[Arm, ...]] = {
    "main": (
        Arm("influence", FIFTH, "20% by influence"),
        Arm("together", FIFTH, "20% by rank and influence together"),
    ),
    "others": (
        Arm("one_mask", FIFTH, "20% by influence, one mask of 15%"),
        Arm("best_rank", FIFTH, "20% by best BM25 rank"),
        Arm("random", FIFTH, "20% at random"),
        Arm("dsir", FIFTH, "20% by DSIR"),
    ),
    "larger": (Arm(order_of("last"), FIFTH, "20% by influence, larger scoring model"),),
    "all": (Arm("best_rank", 100, "all candidates"),),
    "sizes": tuple(Arm("influence", percent, f"{percent}% by influence") for percent in SIZES),
    "eighty": (Arm("influence", 80, "80% by influence"),),
    "layers": tuple(Arm(order_of(layer), FIFTH, f"20%, {layer.replace('_', ' ')}") for layer in LAYERS[1:-1]),
    "embedding": (Arm(order_of(LAYERS[-1]), FIFTH, "20%, embedding"),),
    "steps": tuple(
        Arm(order, FIFTH, f"{steps:,} steps, {words}", steps)
        for steps in OTHER_STEPS
        for order, words in (("influence", "by influence"), ("best_rank", "by best BM25 rank"))
    ),
}
"""The bundles: what belongs together, as far as it fits into one file of 60 MB."""
MEASURED_BEFORE: dict[str, tuple[Arm, ...]] = {"net": (Arm("net", FIFTH, "20% by influence on all targets"),)}
"""Arms of the results file that can no longer be prepared: their settings were removed. So was `well_read`, an order
by a scoring model that read four batches of candidates for each of the task; nothing was trained on it."""
KNOWN = TABLES | MEASURED_BEFORE
BEST_RANK = TABLES["others"][1]

AGAINST = "influence-20"
"""What all other cells are tested against, but for the layers."""
LAST_LAYER = f"{order_of('last')}-{FIFTH}"
SHOWN: dict[str, tuple[str, ...]] = {
    "main": ("main", "larger", "net", "others", "all"),
    "sizes": ("sizes", "eighty", "all"),
    "steps": ("steps",),
    "layers": ("layers", "embedding"),
}
"""The tables of the page: the arms of these bundles, beside the cell that all are tested against."""


def titles(table: str) -> dict[str, str]:
    """The cells of a table of the page in their order, by the title they are shown under."""
    arms = [arm for bundle in SHOWN[table] for arm in KNOWN[bundle]]
    if table == "sizes":
        arms = sorted([TABLES["main"][0], *arms], key=lambda arm: arm.percent)
    elif table == "steps":
        usual = [replace(arm, title=f"{STEPS:,} steps, {arm.title[4:]}") for arm in (TABLES["main"][0], BEST_RANK)]
        arms = sorted([*usual, *arms], key=lambda arm: arm.steps)
    elif table == "layers":
        arms = [replace(TABLES["larger"][0], title="20%, last"), *arms]
    return {arm.name: arm.title for arm in arms}


def cells(arms: tuple[Arm, ...], orders: Mapping[str, str], size: int) -> dict[str, Tree]:
    """The cells of a comparison; `orders` are the tables by name, `size` the bytes of all candidates."""
    return {
        arm.name: {
            "select.name": "imported",
            "select.path": orders[arm.order],
            "select.budget": f"{size * arm.percent // 100}B",
            **({} if arm.steps == STEPS else {"budget": f"{arm.steps}steps"}),
        }
        for arm in arms
    }


def against(table: str) -> str:
    """What the other cells of a table of the page are tested against."""
    return LAST_LAYER if table == "layers" else AGAINST


def base_settings(task: str, corpus: str, task_path: str, tokenizer: str | None, *, budget: str) -> Settings:
    """What all cells share: the preset `gpu`, 23 M parameters, a quarter of its tokens and no R-Drop.

    A run with its three fine-tunings so takes less than a minute of an H200, and where little is read it matters most
    what.
    """
    given: Tree = {
        "budget": budget,
        "task": {"path": task_path},
        "corpus": {"sources": [{"path": corpus}]},
        "select": {"selector": "best_rank", "budget": "34%"},
        "tokenizer": {"path": tokenizer, "entity_markers": ["<<", ">>", "[[", "]]"]},
        "finetune": {"seeds": [0, 1, 2]},
        "evaluate": {"metric": TASKS[task]},
    }
    return with_values(load_settings(preset="gpu", given=given), SHORT, "short")
