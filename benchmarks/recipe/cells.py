"""What is compared: the recipe with what a user would try instead, and the rungs of the ladder that leads to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from endtask.config import Settings, load_settings
from endtask.config.loading import merge
from endtask.io.nested import flatten

Tree = dict[str, Any]

RECIPE, PAPER, LONG = "gpu", "tlm-small", "gpu-long"
"""The presets at the ladder's ends, and the one above it."""
TASKS: dict[str, str] = {"chemprot": "micro_f1", "sciie": "macro_f1", "citation_intent": "macro_f1"}
"""The tasks and what decides, as in the papers."""
NAMES = {"chemprot": "ChemProt", "sciie": "SciERC", "citation_intent": "ACL-ARC"}
MARKS: dict[str, tuple[str, ...]] = {"chemprot": ("[[", "]]", "<<", ">>"), "sciie": ("[[", "]]", "<<", ">>")}
"""What stands around the two names that a text is asked about."""
SEEDS = (0, 1, 2)
CELL = "recipe"
NO_CORPUS: Tree = {"budget": "300steps", "pretrain.objectives.task.batch_size": "16384tok"}
"""Pre-training of the baseline without a corpus: 20 to 60 times through its texts; the recipe's steps would be hundreds."""
SHORT: Tree = {
    "pretrain.batch_size": "32768tok",
    "finetune.rdrop": 0.0,
    "finetune.epochs": 6,
    "compile": True,  # a process does dozens of runs
}
"""The recipe in seconds, for comparisons of many runs in which something else than fine-tuning differs."""
PAPER_IN_A_MINUTE: Tree = {
    "budget": "570steps",
    "select": {"budget": "110MB"},
    "pretrain": {"warmup_steps": 0.067},
    "finetune": {"warmup_steps": 0.1, "max_steps": None, "eval_steps": None, "epochs": 20},
}
"""The paper's values where its 150,000 steps and 30,000 of fine-tuning make no sense in a minute of an H200."""


@dataclass(frozen=True)
class Rung:
    """A step of the ladder: the keys that take the recipe's values from here on, and values until a later rung."""

    name: str
    title: str
    keys: tuple[str, ...]
    meanwhile: Tree = field(default_factory=dict)


REST = "the rest"
LADDER = (
    Rung("engine", "the lean encoder, packed batches of tokens, the mean read", (REST,), {"budget": "690steps"}),
    Rung("size", "23 M parameters, high rate", ("model.size", "pretrain.learning_rate"), {"budget": "2000steps"}),
    Rung(
        "masked-lm",
        "a quarter masked, masked LM alone",
        ("pretrain.mask_probability", "pretrain.weighting.rho1", "pretrain.objectives.task.rho2"),
    ),
    Rung("rate", "fine-tuning rate times ten", (), {"finetune.learning_rate": 2e-4, "finetune.epochs": 6}),
    Rung("text", "half the text", ("select.budget",)),
    Rung("marks", "marks as tokens, read alone", ("tokenizer.entity_markers",)),
    Rung("rates", "twice the rate, the head's higher still", ("finetune.learning_rate", "finetune.head_learning_rate")),
    Rung("rdrop", "R-Drop, twice as long", ("finetune.rdrop", "finetune.epochs", "budget")),
)
"""From the paper's recipe to ours."""


def base_settings(task: str, data: Path, preset: str = RECIPE) -> Settings:
    """A preset for a task of the sample data; the paper's knows nothing of marks."""
    given: Tree = {
        "task": {"path": str(data / "tasks" / task)},
        "corpus": {"sources": [{"path": str(data / "corpus" / "*.jsonl.zst")}]},
        "finetune": {"seeds": list(SEEDS)},
        "evaluate": {"metric": TASKS[task]},
        "keep_scratch": False,
    }
    merge(given, PAPER_IN_A_MINUTE if preset == PAPER else {"tokenizer": {"marks": list(MARKS.get(task, ()))}})
    return load_settings(preset=preset, given=given)


def ladder_cells(paper: Settings, recipe: Settings) -> dict[str, Tree]:
    """The cells of the ladder by name, each as what it has other than the recipe, which is the last of them."""
    old, new = flat(paper), flat(recipe)
    named = {key for rung in LADDER for key in (*rung.keys, *rung.meanwhile)}
    unknown = sorted(named - new.keys() - {REST})
    assert not unknown, f"no setting is named {unknown[0]}"
    now, cells = old, {"paper": different(old, new)}
    for rung in LADDER:
        moved = {key for key in new if key not in named} if REST in rung.keys else set(rung.keys)
        now = now | {key: new[key] for key in moved} | rung.meanwhile
        cells[rung.name] = different(now, new)
    return cells


def different(one: Tree, other: Tree) -> Tree:
    """What `one` has at the keys where `other` has something else."""
    return {key: value for key, value in one.items() if value != other[key]}


def flat(settings: Settings) -> Tree:
    """All values by dotted key."""
    return flatten(settings.model_dump(mode="json"), keep_empty=True)
