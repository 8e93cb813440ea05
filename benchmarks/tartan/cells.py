"""What is compared: plain fine-tuning, masked LM before it, and the task inside pre-training, MT and META.

The tables are those of the paper: 1 with the task's own text as auxiliary (TAPT), 2 with the domain's too (DAPT and
TAPT), 4 with the domain's alone (DAPT); `amounts` is its Figure 2 and Table 3: how much of the domain is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from endtask.config import Budget, Settings, load_settings
from endtask.encoders.checkpoint_files import SMALL_PRETRAINED
from endtask.errors import InputError

Tree = dict[str, Any]
Body = Literal["scratch", "checkpoint"]

DOMAINS: dict[str, tuple[str, ...]] = {
    "citation_intent": ("acl_anthology_abstracts", "peerread_arxiv_cs_papers", "scitldr_abstracts"),
    "sciie": ("acl_anthology_abstracts", "peerread_arxiv_cs_papers", "scitldr_abstracts"),
    "chemprot": ("pubmed_abstracts", "craft_pmc_fulltext"),
}
"""The sources of each task's domain."""

METRICS = {"citation_intent": "macro_f1", "sciie": "macro_f1", "chemprot": "micro_f1"}
NAMES = {"citation_intent": "ACL-ARC", "sciie": "SciERC", "chemprot": "ChemProt"}
BODIES: dict[Body, str] = {"scratch": "from random weights", "checkpoint": "from a small pretrained encoder"}
SEEDS = tuple(range(10))
AMOUNT = "10x"
PLAIN = "plain"

_FINETUNED: Tree = {
    "pretrain.eval_steps": None,
    "pretrain.early_stopping_patience": None,
    "finetune.start_from": "last",
    "finetune.head": "new",
    "finetune.keep_better": False,
    "finetune.lr_scheduler_type": "linear",
    "finetune.warmup_steps": 0.06,
    "finetune.batch_size": 32,
}
"""The head is new where the task had no part in pre-training, and fine-tuning is more than a last touch."""
_WITHOUT_TASK: Tree = {"pretrain.objectives.task.weight": 0, **_FINETUNED}
_ONCE_THROUGH = 750
"""Steps by which all of ChemProt's domain is read once; that of the others takes twice as many."""
_RATES: dict[Body, float] = {"scratch": 3.0e-4, "checkpoint": 1.0e-4}


@dataclass(frozen=True)
class Arm:
    """A cell: its name, the title it is shown under, and in what it differs from MT on the task's own text."""

    name: str
    title: str
    values: Tree | None
    """None where its setting is gone: it is shown, and can no longer be trained."""
    objectives_in_turn: int = 1
    """How many share the steps of pre-training; it is so much longer, that each has as many as where they run together."""


def _auxiliary(tapt: int, dapt: int) -> Tree:
    return {"pretrain.objectives.tapt.weight": tapt, "pretrain.objectives.dapt.weight": dapt}


def _trio(
    name: str, title: str, auxiliary: Tree, more: Tree | None = None, *, first: Arm | None = None
) -> tuple[Arm, ...]:
    """Masked LM first, then the task (end-task agnostic); both at once with equal weights; with learned weights."""
    more = more or {}
    return (
        first or Arm(name, title, {**_WITHOUT_TASK, **auxiliary, **more}),
        Arm(f"mt-{name}", f"MT, {title}", {**auxiliary, **more}),
        Arm(f"meta-{name}", f"META, {title}", {"pretrain.weighting": "meta", **auxiliary, **more}),
    )


def _fully_finetuned(name: str, title: str, auxiliary: Tree) -> tuple[Arm, ...]:
    """MT and META with the full fine-tuning that masked LM before the task has."""
    return tuple(
        Arm(f"{way.lower()}-{name}-anew", f"{way}, {title}, then fine-tuned like {title}", {**values, **_FINETUNED})
        for way, values in (("MT", auxiliary), ("META", {"pretrain.weighting": "meta", **auxiliary}))
    )


_AS_IN_THE_PAPER: Tree = {
    "pretrain.weighting": {
        "name": "meta",
        "learning_rate": 1.0e-1,  # the highest of its range: these runs are so much shorter than its own
        "every": 1,
        "floor": 0.0,
        "parameters": "all",
        "split": "dev",
        "gradient_batch": 64,
        "head": "adamw",
    },
}
_DOMAIN_THEN_TASK: Tree = {**_WITHOUT_TASK, **_auxiliary(1, 1), "pretrain.weighting": "sequence"}


def _names_of(arms: Iterable[Arm]) -> dict[str, str]:
    return {arm.name: arm.title for arm in arms}


def _learned(name: str, title: str, meta: Tree | None) -> Arm:
    """META on the task's own text with some of its settings other than by default."""
    values = None if meta is None else {"pretrain.weighting": {"name": "meta", **meta}}
    return Arm(f"meta-{name}", f"META, {title}", values)


_DAPT = _trio("dapt", "DAPT", _auxiliary(0, 1))
_DAPT_1X = _trio("dapt-1x", "DAPT, 1x", _auxiliary(0, 1), {"domain.amount": "1x"})

TABLES: dict[str, tuple[Arm, ...]] = {
    PLAIN: (Arm(PLAIN, "plain fine-tuning", {"skip_pretraining": True, **_WITHOUT_TASK}),),
    "tapt": (
        *_trio("tapt", "TAPT", _auxiliary(1, 0)),
        *_fully_finetuned("tapt", "TAPT", _auxiliary(1, 0)),
        Arm("meta-tapt-paper", "META as in the paper, TAPT", _AS_IN_THE_PAPER),
    ),
    "dapt-tapt": _trio(
        "dapt-tapt",
        "DAPT + TAPT",
        _auxiliary(1, 1),
        first=Arm("dapt-tapt", "DAPT, then TAPT", _DOMAIN_THEN_TASK, objectives_in_turn=2),
    ),
    "dapt": (*_DAPT, *_fully_finetuned("dapt", "DAPT", _auxiliary(0, 1))),
    "amounts": (*_DAPT_1X, *_trio("dapt-all", "DAPT, all", _auxiliary(0, 1), {"domain.amount": "all"})),
    "longer": tuple(
        arm
        for amount in ("1x", "all")
        for arm in _trio(
            f"dapt-{amount}-longer",
            f"DAPT, {amount}, {_ONCE_THROUGH} steps",
            _auxiliary(0, 1),
            {"domain.amount": amount, "budget": f"{_ONCE_THROUGH}steps"},
        )
    ),
    "defaults": (
        _learned("every-step", "a look at every step", {"every": 1}),
        _learned("adamw", "a head by ten steps of AdamW", {"head": "adamw"}),
        _learned("body", "cosines over the whole body", {"parameters": "all"}),
        _learned("no-floor", "no floor", {"floor": 0.0}),
        _learned("dev", "judged by dev", {"split": "dev"}),
        _learned("slow", "a fifth of eta", {"learning_rate": 0.01}),
        _learned("average", "cosines averaged over ten looks or so", None),
        _learned("dot", "products in place of cosines", None),
        _learned("same-head", "the task's own head", {"head": "task"}),
        _learned("examples", "weights of examples too", None),
    ),
}
"""The bundles; `plain` is shown in all tables and trained once."""

SHOWN_BESIDE = {
    "defaults": {"meta-tapt": "META, TAPT"},
    "amounts": _names_of(_DAPT_1X) | {name: f"{title}, {AMOUNT}" for name, title in _names_of(_DAPT).items()},
}
"""What a table of the page shows between plain fine-tuning and its own cells, by title; mostly other tables' cells."""
AGAINST = {
    "tapt": "tapt",
    "dapt-tapt": "dapt-tapt",
    "dapt": "dapt",
    "amounts": "dapt",
    "longer": "dapt-1x-longer",
    "defaults": "meta-tapt",
}
"""What all others of a table of the page are tested against: the same texts, read before the task is; our defaults."""
PAIRS = {name: (f"meta-{name}", f"mt-{name}") for name in ("tapt", "dapt-tapt", "dapt", "dapt-1x", "dapt-all")}
"""The other question: do learned weights beat equal ones? By masked LM on the same texts."""
ENDINGS = {
    way: {table: (f"{way}-{table}-anew", f"{way}-{table}") for table in ("tapt", "dapt")} for way in ("mt", "meta")
}
"""And how should MT and META end: with a full fine-tuning, or as in the paper with a last touch?"""
AMOUNT_PAIRS = {
    f"{AMOUNT} over 1x": {way: (way, f"{way}-1x") for way in _names_of(_DAPT)},
    f"all over {AMOUNT}": {way: (f"{way}-all", way) for way in _names_of(_DAPT)},
    f"all over 1x, {_ONCE_THROUGH} steps": {way: (f"{way}-all-longer", f"{way}-1x-longer") for way in _names_of(_DAPT)},
}
"""And how much of the domain should there be? By amounts, and by the way to train."""

HEADS = {
    "tapt": "Table 1: the task's own text",
    "dapt-tapt": "Table 2: the domain's and the task's text",
    "dapt": "Table 4: the domain's text alone",
    "amounts": "Figure 2: how much of the domain",
    "longer": "Figure 2 with steps enough to read all of it once",
    "defaults": "One setting of META other than by default, the task's own text",
}


def cells(table: str, encoder: Body, budget: Budget) -> dict[str, Tree]:
    """The cells of a comparison, with the same budget of pre-training for each objective."""
    return {arm.name: _values(arm, arm.values, encoder, budget) for arm in TABLES[table] if arm.values is not None}


def _values(arm: Arm, values: Tree, encoder: Body, budget: Budget) -> Tree:
    rate = {"finetune.learning_rate": _RATES[encoder]} if _FINETUNED.items() <= values.items() else {}
    longer = {"budget": str(budget.share(arm.objectives_in_turn))} if arm.objectives_in_turn > 1 else {}
    return {**values, **rate, **longer}


def titles(table: str) -> dict[str, str]:
    """The cells of a table of the page in their order, by the title they are shown under."""
    return _names_of(TABLES[PLAIN]) | SHOWN_BESIDE.get(table, {}) | _names_of(TABLES[table])


def trio(table: str) -> dict[str, str]:
    """Masked LM first, MT and META of a table, by title."""
    wanted = (AGAINST[table], *PAIRS[table])
    return {name: title for name, title in titles(table).items() if name in wanted}


def seeds(arms: Iterable[str], encoder: Body, some: Iterable[int] = ()) -> dict[str, list[int]]:
    """Ten of each, or some; a checkpoint that is fine-tuned as it is has no pre-training to repeat, and goes alone."""
    chosen, repeated = list(arms), list(some) or list(SEEDS)
    if unknown := [seed for seed in repeated if seed not in SEEDS]:
        raise InputError(f"{unknown[0]} is none of the seeds {SEEDS[0]} to {SEEDS[-1]}", key="--seeds")
    if encoder == "checkpoint" and PLAIN in chosen:
        if len(chosen) > 1:
            raise InputError(f"{PLAIN} has other seeds than the other arms", hint="prepare it alone")
        return {"seeds": [0], "finetune_seeds": repeated}
    return {"seeds": repeated, "finetune_seeds": [0]}


def base_settings(task: str, encoder: Body, data: Path, *, steps: int, checkpoint: str = SMALL_PRETRAINED) -> Settings:
    """MT-TARTAN on the task's own text; from random weights (23 M), or continued from a small checkpoint."""
    overrides = [f"domain.sources=[{','.join(DOMAINS[task])}]", f"domain.amount={AMOUNT}", "keep_scratch=false"]
    overrides += [f"budget={steps}steps", f"evaluate.metric={METRICS[task]}", "finetune.seeds=[0]"]
    overrides += ["compile=true", "bundle_size=200MB"]  # a process does dozens of runs; all tables may be one bundle
    if encoder == "scratch":
        overrides += ['tokenizer.entity_markers=["<<", ">>", "[[", "]]"]']
    else:
        overrides += [f"model.path={checkpoint}", "pretrain.batch_size=128", "pretrain.gradient_accumulation_steps=1"]
        overrides += ["pretrain.max_length=128", "finetune.max_length=128", "finetune.learning_rate=2e-5"]
    given = {
        "task": {"path": str(data / "tasks" / task)},
        "corpus": {"sources": [{"path": str(data / "corpus" / f"{name}.jsonl.zst")} for name in DOMAINS[task]]},
    }
    preset = "mt-tartan-scratch" if encoder == "scratch" else "mt-tartan"
    return load_settings(preset=preset, given=given, overrides=overrides)
