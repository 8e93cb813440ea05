"""The baselines of a comparison: what a user would try instead, and what shows where a gain comes from."""

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
    """Return the baselines that need no training run; by default both."""
    return tuple(name for name in UNTRAINED_BASELINES if study.baselines is None or name in study.baselines)


def baseline_variants(
    study: Study, against: Variant, seeds: tuple[int, ...], folder: Path, where: str
) -> list[Variant]:
    """Return the trained baselines, made from the variant that all are tested against; by default all that apply.

    `folder` holds the runs of all variants.
    """
    found = []
    for name in TRAINED_BASELINES:
        if study.baselines is not None and name not in study.baselines:
            continue
        why_not, make = _MAKERS[name]
        reason = why_not(against.settings, study)
        if reason is None:
            found.append(_baseline(name, make(against.settings, study), study, against, seeds, folder, where))
        elif study.baselines is not None:
            raise InputError(f"{name}: {reason}", path=where, key="baselines")
    return found


def _baseline(
    name: str, settings: Settings, study: Study, against: Variant, seeds: tuple[int, ...], folder: Path, where: str
) -> Variant:
    overrides, origin = (study.baselines or {}).get(name, {}), f"{where}, baseline {name!r}"
    check_keys(overrides, origin)
    given = settings.tokenizer.path or settings.model.path or overrides.get("tokenizer.path")
    takes_tokenizer = name == "no_corpus" and given is None
    if takes_tokenizer:
        overrides = {"tokenizer.path": _tokenizer(against, folder), **overrides}
    settings = with_values(settings, overrides, origin)
    return Variant(
        name,
        settings,
        effective_seeds(settings, seeds),
        is_baseline=True,
        note=_note(name, study),
        tokenizer_from=against.name if takes_tokenizer else None,
    )


def _tokenizer(against: Variant, folder: Path) -> str:
    """Return the tokenizer of the variant that the baseline without a corpus is compared with.

    A tokenizer learned from a few hundred texts would cost the baseline several points, and the question is what
    pre-training adds. Existing runs keep the path they were made with: the folder may have another name now.
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
    if settings.skip_pretraining:
        return "without pre-training no corpus is read"
    if not settings.select.part_class.selects and settings.corpus.sources:
        return "nothing is selected from the corpus (select.name is none)"
    if not settings.has_selection:
        return "the settings have no corpus"
    if not settings.pretrain.reads("selection"):
        return "no objective reads the selection"
    return None


def _no_corpus_to_leave_out(settings: Settings) -> str | None:
    """Return why pre-training reads no corpus, or why no objective would be left without it."""
    if not settings.reads_domain and (reason := _no_selection(settings)) is not None:
        return reason
    others = [each for each in settings.pretrain.objectives.values() if each.weight and each.reads == "task"]
    return "the objectives read only corpus text" if not others else None


def _no_random_draw(settings: Settings) -> str | None:
    if not settings.corpus.sources:
        return "there is no corpus to draw from"
    return "the selection is random already" if settings.select.name == "random" else _no_selection(settings)


def _no_checkpoint(settings: Settings, study: Study) -> str | None:
    if study.checkpoint is None and small_pretrained() is None:
        return f"no checkpoint is given, and {SMALL_PRETRAINED.partition(':')[2]} is not installed"
    path = study.checkpoint or SMALL_PRETRAINED
    if settings.skip_pretraining and settings.model.path == path:
        return "the settings fine-tune this checkpoint already"
    return None


def _without_corpus(settings: Settings, study: Study) -> Settings:
    """Return settings for the same model on the task's texts alone."""
    values: dict[str, Any] = {"select.name": "none", "pretrain.reselect.every": None}
    for name, objective in settings.pretrain.objectives.items():
        if objective.reads in _CORPUS_TEXTS:
            values[f"pretrain.objectives.{name}.weight"] = 0
    left = [section for section in settings.used_objectives.values() if section.reads not in _CORPUS_TEXTS]
    if len(left) <= 1:
        values["pretrain.weighting"] = "equal"  # a single objective is left
    return with_values(settings, values, "no_corpus")


def _random_selection(settings: Settings, study: Study) -> Settings:
    return with_values(settings, {"select.name": "random"}, "random")


def _checkpoint(settings: Settings, study: Study) -> Settings:
    """Return settings that fine-tune a checkpoint with the preset's values and only the seeds of these settings."""
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
    "no_corpus": (lambda settings, study: _no_corpus_to_leave_out(settings), _without_corpus),
    "random": (lambda settings, study: _no_random_draw(settings), _random_selection),
    "checkpoint": (_no_checkpoint, _checkpoint),
}


def compute_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline:
    """Return the baseline stored in `folder/baselines`, or compute and store it."""
    stored = stored_baseline(name, task, metric, folder, by)
    if stored is not None:
        return stored
    say(f"baseline {name}")
    found = _UNTRAINED[name](task, metric, by=by)
    lists = {key: as_lists(getattr(found, key), task.type) for key in _PREDICTIONS}
    path = _path(name, folder, by)
    path.parent.mkdir(exist_ok=True)
    tree = {"digest": _digest(task, metric, by), **asdict(found), **lists}
    write_text(path, json.dumps(tree, ensure_ascii=False))
    return found


def stored_baseline(name: str, task: Task, metric: str | Measure, folder: Path, by: Split) -> Baseline | None:
    """Return the baseline stored in `folder/baselines`; None if it is not there or was made from other data."""
    path = _path(name, folder, by)
    tree = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if tree.pop("digest", None) != _digest(task, metric, by):
        return None
    return Baseline(**{**tree, **{key: from_lists(tree[key], task.type) for key in _PREDICTIONS}})


def _path(name: str, folder: Path, by: Split) -> Path:
    return folder / FOLDER / f"{name}-{by}.json"


def _digest(task: Task, metric: str | Measure, by: Split) -> str:
    measure = metric if isinstance(metric, str) else (metric.name, metric.positive)
    return fingerprint(VERSION, task.fingerprint, measure, by)
