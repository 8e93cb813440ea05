"""The baselines of every comparison: what a user would try instead, and what shows where a gain comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from endtask.compare.cell import Cell, refuse_keys, seeds_that_matter
from endtask.compare.comparison import TRAINED, UNTRAINED, Comparison
from endtask.config import Settings, read_tree, resolve
from endtask.config.loading import merge
from endtask.config.overrides import with_values
from endtask.config.preset_files import preset_layers
from endtask.encoders.bundled_checkpoint import SMALL_PRETRAINED, SMALL_PRETRAINED_NOTE, small_pretrained
from endtask.errors import InputError
from endtask.io.run_layout import SETTINGS_FILE

CHECKPOINT_PRESET = "finetune-small-pretrained"
_CORPUS_TEXTS = ("selection", "domain")
_NOTES = {
    "no_corpus": "the same without the corpus: pre-training reads the task's texts alone; same tokenizer, same budget",
    "random": "as much text, drawn at random from the corpus",
}


def untrained_baselines(comparison: Comparison) -> tuple[str, ...]:
    """The baselines that need no run; by default both."""
    asked = comparison.baselines
    return tuple(name for name in UNTRAINED if asked is None or name in asked)


def baseline_cells(
    comparison: Comparison, against: Cell, seeds: tuple[int, ...], cells: Path, where: str
) -> list[Cell]:
    """The baselines that are trained, made from the cell that all are tested against; by default all that apply.

    `cells` is the folder of all cells' runs.
    """
    found = []
    for name in TRAINED:
        if comparison.baselines is not None and name not in comparison.baselines:
            continue
        why_not, make = _MAKERS[name]
        reason = why_not(against.settings, comparison)
        if reason is not None:
            if comparison.baselines is None:
                continue
            raise InputError(f"{name}: {reason}", path=where, key="baselines")
        settings, overrides = make(against.settings, comparison), (comparison.baselines or {}).get(name, {})
        place = f"{where}, baseline {name!r}"
        refuse_keys(overrides, place)
        given = settings.tokenizer.path or settings.model.path or overrides.get("tokenizer.path")
        borrowed = name == "no_corpus" and given is None
        if borrowed:
            overrides = {"tokenizer.path": _tokenizer(against, cells), **overrides}
        settings = with_values(settings, overrides, place)
        found.append(
            Cell(
                name,
                settings,
                seeds_that_matter(settings, seeds),
                is_baseline=True,
                note=_note(name, comparison),
                tokenizer_of=against.name if borrowed else None,
            )
        )
    return found


def _tokenizer(against: Cell, cells: Path) -> str:
    """The tokenizer of the cell that the baseline without a corpus is compared with.

    One learned from a few hundred texts would cost the baseline several points; the question is what pre-training
    adds. Where runs of it stand already, the path is the one they were made with: the folder may have another name now.
    """
    for run in sorted((cells / "no_corpus").glob(f"seed-*/{SETTINGS_FILE}")):
        path = read_tree(run)["tokenizer"]["path"]
        if path is not None:
            return str(path)
    return str(against.runs(cells.parent)[0].tokenizer)


def _note(name: str, comparison: Comparison) -> str:
    if name != "checkpoint":
        return _NOTES[name]
    path = comparison.checkpoint or SMALL_PRETRAINED
    known = SMALL_PRETRAINED_NOTE if path == SMALL_PRETRAINED else "fine-tuned as it is"
    return f"{path}, {comparison.checkpoint_note or known}"


def _no_text(settings: Settings) -> str | None:
    return None if settings.reads_domain else _no_selection(settings)


def _no_selection(settings: Settings) -> str | None:
    if settings.skip_pretraining:
        return "without pre-training no corpus is read"
    if not settings.select.part_class.selects and settings.corpus.sources:
        return "nothing is selected of the corpus (select.name is none)"
    if not settings.has_selection:
        return "the settings have no corpus"
    if not settings.pretrain.reads("selection"):
        return "no objective reads the selection"
    return None


def _nothing_else(settings: Settings) -> str | None:
    """Of TLM's two objectives the task is always left."""
    others = [one for one in settings.pretrain.objectives.values() if one.weight and one.reads == "task"]
    return "the objectives read nothing but corpus text" if not others else None


def _no_draw(settings: Settings) -> str | None:
    if not settings.corpus.sources:
        return "there is no corpus to draw from"
    return "the selection is random already" if settings.select.name == "random" else _no_selection(settings)


def _no_checkpoint(settings: Settings, comparison: Comparison) -> str | None:
    if comparison.checkpoint is None and small_pretrained() is None:
        return f"no checkpoint is given, and {SMALL_PRETRAINED.partition(':')[2]} is not installed"
    path = comparison.checkpoint or SMALL_PRETRAINED
    if settings.skip_pretraining and settings.model.path == path:
        return "the settings fine-tune this checkpoint already"
    return None


def _without_corpus(settings: Settings, comparison: Comparison) -> Settings:
    """The same model on the task's texts alone."""
    values: dict[str, Any] = {"select.name": "none", "pretrain.reselect.every": None}
    for name, one in settings.pretrain.objectives.items():
        if one.reads in _CORPUS_TEXTS:
            values[f"pretrain.objectives.{name}.weight"] = 0
    left = [section for section in settings.used_objectives.values() if section.reads not in _CORPUS_TEXTS]
    if len(left) <= 1:
        values["pretrain.weighting"] = "equal"  # a single objective is left
    return with_values(settings, values, "no_corpus")


def _at_random(settings: Settings, comparison: Comparison) -> Settings:
    values = {"select.name": "random"}
    return with_values(settings, values, "random")


def _checkpoint(settings: Settings, comparison: Comparison) -> Settings:
    """A checkpoint fine-tuned the plain way: nothing of our own recipe but the seeds."""
    tree = settings.model_dump(mode="json")
    seeds = tree["finetune"]["seeds"]
    for section in ("tasks", "select", "tokenizer", "model", "pretrain", "finetune"):
        del tree[section]
    for layer in preset_layers(CHECKPOINT_PRESET):
        merge(tree, layer)
    merge(tree, {"skip_finetuning": False, "finetune": {"seeds": seeds}})
    if comparison.checkpoint is not None:
        merge(tree, {"model": {"path": comparison.checkpoint}})
    return resolve(tree, "checkpoint")


_Reason = Callable[[Settings, Comparison], str | None]
_Maker = Callable[[Settings, Comparison], Settings]
_MAKERS: dict[str, tuple[_Reason, _Maker]] = {
    "no_corpus": (lambda settings, comparison: _no_text(settings) or _nothing_else(settings), _without_corpus),
    "random": (lambda settings, comparison: _no_draw(settings), _at_random),
    "checkpoint": (_no_checkpoint, _checkpoint),
}
