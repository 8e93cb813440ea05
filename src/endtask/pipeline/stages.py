"""The stages of a run: the settings each reads, and the call that does its work."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from endtask.config import EvaluateSettings, Settings
from endtask.corpus import Corpus
from endtask.corpus.sampled import DrawnDocuments
from endtask.io.atomic import write_json, write_text
from endtask.io.machine import usable_cores
from endtask.io.run_layout import AUDIT, BEST_WEIGHTS, DOMAIN, SCRATCH, SELECTION, TASKS
from endtask.io.stage_folder import StageFolder, read_manifest
from endtask.pipeline.external_inputs import needs_corpus
from endtask.progress import warn
from endtask.records import Example
from endtask.task import Task, audit
from endtask.task.auxiliary import leaks_between

Counts = dict[str, Any]

READ_BY: dict[str, tuple[str, ...]] = {
    "read": ("task", "seed"),
    "retrieve": ("corpus", "retrieve"),
    "select": ("select", "seed"),
    "pack": (
        "tokenizer",
        "model.path",
        "seed",
        "pretrain.max_length",
        "pretrain.task_max_length",
        "pretrain.truncate_passages",
        "finetune.max_length",
        "finetune.window_stride",
    ),
    "pretrain": (
        "skip_pretraining",
        "model",
        "pretrain",
        "seed",
        "budget",
        "finetune.budget_share",
        "device",
        "threads",
        "precision",
        "compile",
        "max_skipped_steps",
    ),
    "finetune": ("finetune", "evaluate.metric", "skip_finetuning"),
    "evaluate": ("evaluate.metric",),
    "model": (),
}
"""The settings each stage reads; those of the stages before it count through their fingerprints."""

READ_BY_INFLUENCE = (
    "tokenizer",
    "model",
    "pretrain.max_length",
    "device",
    "threads",
    "precision",
    "compile",
    "max_skipped_steps",
)
"""What the stage `select` reads beside its own section where it trains a scoring model."""

READ_BY_ITS_LIMIT = ("budget", "pretrain.batch_size", "pretrain.gradient_accumulation_steps")
"""The same where `share_of_budget` limits what scoring costs."""

_LESS_MEMORY_FOR_INFLUENCE = (
    "lower select.influence.size, compare fewer select.influence.layers, or raise select.influence.target_batch; the "
    "run then goes on with --from select"
)

READ_BY_DOMAIN = ("domain", "retrieve.contamination_filter")
"""What the stage `select` reads beside its own section where pre-training reads the domain's text."""

READ_FROM_OUTSIDE: dict[str, tuple[str, ...]] = {
    "read": ("task",),
    "retrieve": ("corpus", "unlabelled"),
    "select": ("selection",),
    "pack": ("tokenizer",),
    "pretrain": ("checkpoint",),
}
"""Data from outside the run that a stage reads."""


READ_BY_ALIGNED: dict[str, tuple[str, ...]] = {
    "pack": (
        "aligned.sources",
        "aligned.passages",
        "aligned.subword_sampling",
        "aligned.spans_from",
        "corpus.passage_characters",
        "retrieve.contamination_filter",
    ),
    "pretrain": (
        "aligned.recipe",
        "aligned.span_labels",
        "aligned.labelled_tokens",
        "aligned.pairs_from",
        "aligned.guide_acronyms",
        "aligned.entity_markers",
    ),
    "finetune": ("aligned.keep_head",),
}
"""What stages read beside their own sections where pre-training has aligned objectives."""

_LATER_OF_OBJECTIVES: dict[str, Any] = {"task": None}
LATER_KEYS: dict[str, dict[str, Any]] = {
    "task": {"label_delimiter": None},
    "tokenizer": {"spell_capitals": False},
    "pretrain": {
        "objectives": {},
        "weighting": "interleave",
        "head_weight_decay": None,
        "clip_heads_apart": False,
    },
    "finetune": {"keep_better": False, "members": 1, "tasks": "main"},
}
"""Keys that older runs do not know, and the values by which everything is as it was: such runs still count as done."""


def settings_read(name: str, settings: Settings) -> dict[str, Any]:
    """The values of the settings that a stage reads, by dotted key.

    >>> "influence" in settings_read("select", Settings())["select"]
    False
    """
    everything = settings.model_dump(mode="json")
    if not settings.select.uses_influence:
        # Selections by others are not made anew for a setting that plays no part in them.
        del everything["select"]["influence"]
    if settings.may_pool_markers:
        everything["model"]["pooling"] = "entity_markers"  # which `auto` once was not
    if settings.pretrain.weighting != "meta":
        del everything["pretrain"]["meta"]
    if settings.pretrain.reselect.every is None:
        del everything["pretrain"]["reselect"]
    if settings.tasks and settings.used_objectives != settings.pretrain.used_objectives:
        # What pre-training learns counts, whether the user named it or the auxiliary tasks brought it along.
        everything["pretrain"]["objectives"] = {
            name: one.model_dump(mode="json") for name, one in settings.used_objectives.items()
        }
    for objective in everything["pretrain"]["objectives"].values():
        for key in [key for key, usual in _LATER_OF_OBJECTIVES.items() if objective[key] == usual]:
            del objective[key]
    for section, keys in LATER_KEYS.items():
        for key in [key for key, usual in keys.items() if everything[section][key] == usual]:
            del everything[section][key]
    return _pick(everything, keys_read(name, settings))


def keys_read(name: str, settings: Settings) -> tuple[str, ...]:
    """The dotted keys of the settings that a stage reads."""
    auxiliary = (
        *(("tasks",) if name == "read" and settings.tasks else ()),
        *(_of_influence(settings) if name == "select" and settings.select.uses_influence else ()),
        *(READ_BY_DOMAIN if name == "select" and settings.reads_domain else ()),
        *(("evaluate.metric",) if name == "pretrain" and settings.pretrain.eval_steps is not None else ()),
        *(READ_BY_ALIGNED.get(name, ()) if settings.reads_aligned else ()),
        *(_of_some_kinds(settings) if name in ("finetune", "evaluate") else ()),
    )
    return tuple(dict.fromkeys((*READ_BY[name], *auxiliary)))


def _of_influence(settings: Settings) -> tuple[str, ...]:
    limited = settings.select.influence.share_of_budget is not None
    return (*READ_BY_INFLUENCE, *(READ_BY_ITS_LIMIT if limited else ()))


def _of_some_kinds(settings: Settings) -> tuple[str, ...]:
    """Settings of the scores that matter for some kinds of tasks, where they are not as always."""
    evaluate, usual = settings.evaluate, EvaluateSettings()
    keys = ("positive_label", "threshold")
    return tuple(f"evaluate.{key}" for key in keys if getattr(evaluate, key) != getattr(usual, key))


def read_from_outside(name: str, settings: Settings) -> tuple[str, ...]:
    """The kinds of data from outside the run that a stage reads."""
    read = READ_FROM_OUTSIDE.get(name, ())
    if name == "pack" and settings.reads_aligned:
        return (*read, "aligned")
    return (*read, "tokenizer", "checkpoint") if name == "select" and settings.select.uses_influence else read


def _pick(tree: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The values at dotted keys."""
    picked = {}
    for key in keys:
        value: Any = tree
        for part in key.split("."):
            value = value[part]
        picked[key] = value
    return picked


class RunData(Protocol):
    """What every stage may read; `asked` are the settings as they were given, for people to read."""

    @property
    def task(self) -> Task: ...

    @property
    def corpus(self) -> Corpus | None: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def asked(self) -> Settings: ...


def _read(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    folder = stage.start()
    auxiliary, leaks = data.task.auxiliary, list(leaks_between(data.task))
    counts: Counts = _write_task(data.task, folder, leaks=leaks)
    if auxiliary:
        counts[TASKS] = {name: _write_task(one, folder / TASKS / name, f"{name}: ") for name, one in auxiliary.items()}
    for leak in leaks:
        warn(leak)
    return counts


def _write_task(task: Task, folder: Path, before_problems: str = "", leaks: Sequence[str] = ()) -> dict[str, int]:
    """The audit and the rows of a task; returns how many rows each split has."""
    folder.mkdir(parents=True, exist_ok=True)
    findings = audit(task)
    between = {"leaks_between_tasks": list(leaks)} if task.auxiliary else {}
    write_json(folder / AUDIT, {**findings.to_dict(), **between})
    for split, examples in task.splits.items():
        write_text(folder / f"{split}.jsonl", "".join(f"{_as_json(example)}\n" for example in examples))
    for problem in findings.problems:
        if problem.level != "note":
            warn(f"{before_problems}{problem.message}", level=problem.level)
    return {split: len(examples) for split, examples in task.splits.items()}


def _retrieve(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.retrieval.retrieve import Place, retrieve

    settings = data.settings
    workers = settings.threads or usable_cores()
    context = Place(stage.start(), stage.final.parent / SCRATCH, workers, settings.keep_scratch)
    # The corpus may be there for the domain's text alone.
    corpus = data.corpus if needs_corpus(settings.select) else None
    return retrieve(data.task, corpus, settings.retrieve, context, settings.task.columns)


def _select(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    if not data.settings.select.uses_influence:
        return _selected(data, stage, made)
    from endtask.training.out_of_memory import explained_memory_trouble

    with explained_memory_trouble(_LESS_MEMORY_FOR_INFLUENCE):
        return _selected(data, stage, made)


def _selected(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.selectors.select import select

    manifest = read_manifest(made["retrieve"])
    assert manifest is not None
    folder = stage.start()
    kept = select(
        made["retrieve"],
        data.settings.select,
        folder,
        corpus=data.corpus,
        corpus_bytes=manifest["counts"]["corpus"]["bytes"],
        labels=data.task.labels,
        seed=data.settings.seed,
        is_contaminated=_contamination_filter(data),
        examples=data.task.train,
        device=data.settings.device,
        task=replace(data.task, auxiliary={}),
        run=data.settings,
        stage=stage,
    )
    return {**kept, **_domain(data, folder)}


def _contamination_filter(data: RunData) -> Callable[[str], bool] | None:
    """Tells which texts of an imported selection hold a dev or test text; what was retrieved has passed the contamination filter."""
    return _confirm(data) if data.settings.select.selector == "imported" else None


def _domain(data: RunData, folder: Path) -> Counts:
    """The domain's text, where pre-training reads it."""
    if not data.settings.reads_domain:
        return {}
    from endtask.selectors.domain import select_domain

    assert data.corpus is not None
    settings = data.settings
    drawn = select_domain(
        settings.domain,
        folder,
        corpus=data.corpus,
        train_rows=len(data.task.train),
        seed=settings.seed,
        is_contaminated=_confirm(data),
    )
    return {"domain": drawn}


def _confirm(data: RunData) -> Callable[[str], bool] | None:
    """Tells which texts hold a dev or test text; None where the contamination filter is off."""
    if not data.settings.retrieve.contamination_filter:
        return None
    from endtask.retrieval.contamination import ContaminationFilter
    from endtask.retrieval.retrieve import evaluation_texts

    return ContaminationFilter.of(evaluation_texts(data.task)).confirm


def _pack(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.tokenization.packing import pack, say_if_fewer

    domain = made["select"] / DOMAIN if data.settings.reads_domain else None
    selection = made["select"] / SELECTION
    counts = pack(data.task, selection, data.settings, stage.start(), domain=domain, aligned=_aligned(data))
    say_if_fewer(counts["vocabulary"], data.settings)
    return counts


def _aligned(data: RunData) -> DrawnDocuments | None:
    """The passages of aligned objectives, where pre-training has some."""
    settings = data.settings
    if not settings.reads_aligned:
        return None
    corpus = Corpus.aligned(settings.aligned, settings.corpus)
    return DrawnDocuments(corpus, limit=settings.aligned.passages, seed=settings.seed, is_contaminated=_confirm(data))


def _pretrain(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.training.out_of_memory import explained_memory_trouble
    from endtask.training.pretrain import pretrain

    with explained_memory_trouble():
        return pretrain(data.task, made["pack"], data.settings, stage)


def _finetune(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.training.finetune import finetune
    from endtask.training.out_of_memory import explained_memory_trouble

    with explained_memory_trouble():
        return finetune(data.task, made["pack"], made["pretrain"], data.settings, stage)


def _evaluate(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.evaluation.auxiliary_tasks import evaluate_auxiliary_tasks
    from endtask.evaluation.evaluate import evaluate
    from endtask.training.device import choose_device_context, move
    from endtask.training.initial_network import network_for
    from endtask.training.out_of_memory import explained_memory_trouble

    weights = {seed: made["finetune"] / f"seed-{seed}" / BEST_WEIGHTS for seed in data.settings.model_seeds}
    context = choose_device_context(data.settings)
    network = move(network_for(data.task, made["pack"], data.settings), data.settings, context)
    folder = stage.start()
    with explained_memory_trouble():
        auxiliary = evaluate_auxiliary_tasks(data.task, made["pack"], weights, network, data.settings, folder, context)
        return evaluate(data.task, made["pack"], weights, network, data.settings, folder, context, auxiliary=auxiliary)


def _model(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.export.model_folder import save_auxiliary_model, save_model
    from endtask.training.initial_network import network_for, network_of_auxiliary_task

    folder, packed, evaluated = stage.start(), made["pack"], made["evaluate"]
    network = network_for(data.task, packed, data.settings)
    counts = save_model(network, data.task, packed, made["finetune"], evaluated, data.asked, folder)
    seed = counts["seed"]
    for name in data.settings.scored_tasks:
        weights = made["finetune"] / f"seed-{seed}" / BEST_WEIGHTS
        own, task = (
            network_of_auxiliary_task(data.task, name, packed, data.settings, weights),
            data.task.auxiliary[name],
        )
        save_auxiliary_model(own, name, task, packed, evaluated, data.asked, folder / TASKS / name, seed=seed)
    return counts


WORK: dict[str, Callable[[RunData, StageFolder, dict[str, Path]], Counts]] = {
    "read": _read,
    "retrieve": _retrieve,
    "select": _select,
    "pack": _pack,
    "pretrain": _pretrain,
    "finetune": _finetune,
    "evaluate": _evaluate,
    "model": _model,
}


def _as_json(example: Example) -> str:
    names = ("id", "text", "text_pair", "label", "tokens", "part")
    row = {name: value for name in names if (value := getattr(example, name)) is not None}
    return json.dumps(row, ensure_ascii=False)
