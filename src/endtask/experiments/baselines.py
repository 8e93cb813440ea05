"""The baselines of a comparison: alternatives that a user might try, and variants that explain a gain."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from endtask.config import Settings, read_tree, resolve
from endtask.config.loading import merge
from endtask.config.overrides import with_values
from endtask.config.preset_files import preset_layers
from endtask.encoders.checkpoint_files import SMALL_PRETRAINED, SMALL_PRETRAINED_NOTE, small_pretrained
from endtask.errors import InputError
from endtask.evaluation.baselines import VERSION, Baseline, Split, majority_baseline, tfidf_baseline
from endtask.evaluation.task_metrics import Measure
from endtask.experiments.spec import TRAINED_BASELINES, UNTRAINED_BASELINES, Study
from endtask.experiments.variants import Variant, check_keys, effective_seeds
from endtask.io.atomic import write_text
from endtask.io.digests import fingerprint
from endtask.io.parsing import read_json
from endtask.io.run_layout import SETTINGS_FILE
from endtask.progress import say
from endtask.task import Task
from endtask.task.targets import as_lists, from_lists

CHECKPOINT_PRESET = "finetune-small-pretrained"
FOLDER = "baselines"
_CORPUS_TEXTS = ("selection", "domain")
_PREDICTIONS = ("predicted", "dev_predicted")
_UNTRAINED: dict[str, Callable[..., Baseline]] = {"majority": majority_baseline, "tfidf": tfidf_baseline}
_NOTES = {
    "no_corpus": "the same without the corpus: pre-training reads only the task's texts; same tokenizer, same budget",
    "random": "as much text, drawn at random from the corpus",
}


def untrained_baselines(study: Study) -> tuple[str, ...]:
    """Return the requested baselines that need no training run; by default all."""
    return tuple(name for name in UNTRAINED_BASELINES if study.baselines is None or name in study.baselines)


def baseline_variants(
    study: Study, against: Variant, seeds: tuple[int, ...], folder: Path, where: str
) -> list[Variant]:
    """Return the requested trained baselines, made from the reference variant; by default all that apply.

    `folder` has the runs of all variants.
    """
    variants = []
    for name in TRAINED_BASELINES:
        if study.baselines is not None and name not in study.baselines:
            continue
        why_not, make = _MAKERS[name]
        reason = why_not(against.settings, study)
        if reason is None:
            variants.append(_baseline(name, make(against.settings, study), study, against, seeds, folder, where))
        elif study.baselines is not None:
            raise InputError(f"{name}: {reason}", path=where, key="baselines")
    return variants


def _baseline(
    name: str, settings: Settings, study: Study, against: Variant, seeds: tuple[int, ...], folder: Path, where: str
) -> Variant:
    overrides, origin = (study.baselines or {}).get(name, {}), f"{where}, baseline {name!r}"
    check_keys(overrides, origin)
    tokenizer = settings.tokenizer.path or settings.model.path or overrides.get("tokenizer.path")
    shares_tokenizer = name == "no_corpus" and tokenizer is None
    if shares_tokenizer:
        overrides = {"tokenizer.path": _tokenizer(against, folder), **overrides}
    settings = with_values(settings, overrides, origin)
    return Variant(
        name,
        settings,
        effective_seeds(settings, seeds),
        is_baseline=True,
        note=_note(name, study),
        tokenizer_from=against.name if shares_tokenizer else None,
    )


def _tokenizer(against: Variant, folder: Path) -> str:
    """Return the reference variant's tokenizer, which the baseline without a corpus uses.

    A tokenizer learned from a few hundred texts would cost the baseline several points, and the comparison measures
    pre-training. Existing runs keep their path, because the folder may have been renamed.
    """
    for run in sorted((folder / "no_corpus").glob(f"seed-*/{SETTINGS_FILE}")):
        path = read_tree(run)["tokenizer"]["path"]
        if path is not None:
            return str(path)
    return str(against.trials(folder.parent)[0].tokenizer)


def _note(name: str, study: Study) -> str:
    if name != "checkpoint":
        return _NOTES[name]
    path = study.checkpoint or SMALL_PRETRAINED
    known = SMALL_PRETRAINED_NOTE if path == SMALL_PRETRAINED else "fine-tuned as it is"
    return f"{path}, {study.checkpoint_note or known}"


def _no_selection(settings: Settings) -> str | None:
    """Return why pre-training reads no selection; None if it does."""
    if settings.skip_pretraining:
        return "without pre-training no corpus is read"
    if not settings.select.part_class.selects and settings.corpus.sources:
        return "nothing is selected from the corpus (select.name is none)"
    if not settings.has_selection:
        return "the settings have no corpus"
    if not settings.pretrain.reads("selection"):
        return "no objective reads the selection"
    return None


def _why_no_corpus_baseline(settings: Settings, study: Study) -> str | None:
    """Return why pre-training reads no corpus, or why it would have no objective without the corpus."""
    if not settings.reads_domain and (reason := _no_selection(settings)) is not None:
        return reason
    objectives = settings.pretrain.objectives.values()
    reads_task = any(objective.weight and objective.reads == "task" for objective in objectives)
    return None if reads_task else "the objectives read only corpus text"


def _why_no_random_baseline(settings: Settings, study: Study) -> str | None:
    if not settings.corpus.sources:
        return "there is no corpus to draw from"
    return "the selection is random already" if settings.select.name == "random" else _no_selection(settings)


def _why_no_checkpoint_baseline(settings: Settings, study: Study) -> str | None:
    if study.checkpoint is None and small_pretrained() is None:
        return f"no checkpoint is given, and {SMALL_PRETRAINED.partition(':')[2]} is not installed"
    path = study.checkpoint or SMALL_PRETRAINED
    if settings.skip_pretraining and settings.model.path == path:
        return "the settings fine-tune this checkpoint already"
    return None


def _without_corpus(settings: Settings, study: Study) -> Settings:
    """Return settings for the same model on the task's texts only."""
    values: dict[str, Any] = {"select.name": "none", "pretrain.reselect.every": None}
    for name, objective in settings.pretrain.objectives.items():
        if objective.reads in _CORPUS_TEXTS:
            values[f"pretrain.objectives.{name}.weight"] = 0
    others = [section for section in settings.used_objectives.values() if section.reads not in _CORPUS_TEXTS]
    if len(others) <= 1:
        values["pretrain.weighting"] = "equal"  # a single objective needs no weighting
    return with_values(settings, values, "no_corpus")


def _random_selection(settings: Settings, study: Study) -> Settings:
    return with_values(settings, {"select.name": "random"}, "random")


def _checkpoint(settings: Settings, study: Study) -> Settings:
    """Return settings that fine-tune a checkpoint with the preset's values and these settings' seeds."""
    tree = settings.model_dump(mode="json")
    seeds = tree["finetune"]["seeds"]
    for section in ("tasks", "select", "tokenizer", "model", "pretrain", "finetune"):
        del tree[section]
    for layer in preset_layers(CHECKPOINT_PRESET):
        merge(tree, layer)
    merge(tree, {"skip_finetuning": False, "finetune": {"seeds": seeds}})
    if study.checkpoint is not None:
        merge(tree, {"model": {"path": study.checkpoint}})
    return resolve(tree, "checkpoint")


_Reason = Callable[[Settings, Study], str | None]
_Maker = Callable[[Settings, Study], Settings]
_MAKERS: dict[str, tuple[_Reason, _Maker]] = {
    "no_corpus": (_why_no_corpus_baseline, _without_corpus),
    "random": (_why_no_random_baseline, _random_selection),
    "checkpoint": (_why_no_checkpoint_baseline, _checkpoint),
}


def compute_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline:
    """Return the baseline stored in `folder/baselines`, or compute and store it."""
    stored = stored_baseline(name, task, metric, folder, by)
    if stored is not None:
        return stored
    say(f"baseline {name}")
    baseline = _UNTRAINED[name](task, metric, by=by)
    lists = {key: as_lists(getattr(baseline, key), task.type) for key in _PREDICTIONS}
    path = _path(name, folder, by)
    path.parent.mkdir(exist_ok=True)
    tree = {"digest": _digest(task, metric, by), **asdict(baseline), **lists}
    write_text(path, json.dumps(tree, ensure_ascii=False))
    return baseline


def stored_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline | None:
    """Return the baseline stored in `folder/baselines`, or None without one for the same data and metric."""
    path = _path(name, folder, by)
    tree = read_json(path) if path.exists() else {}
    if tree.pop("digest", None) != _digest(task, metric, by):
        return None
    return Baseline(**{**tree, **{key: from_lists(tree[key], task.type) for key in _PREDICTIONS}})


def _path(name: str, folder: Path, by: Split) -> Path:
    return folder / FOLDER / f"{name}-{by}.json"


def _digest(task: Task, metric: str | Measure, by: Split) -> str:
    measure = metric if isinstance(metric, str) else (metric.name, metric.positive)
    return fingerprint(VERSION, task.fingerprint, measure, by)
