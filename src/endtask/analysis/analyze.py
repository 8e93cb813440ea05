"""`endtask analyze`: heads and map of each model over the same texts, kept in the run's folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from endtask.analysis.models import AnalysedModel, models_of_run, named_models
from endtask.analysis.sentence_map import same_class_by_chance, same_class_share, sentence_map
from endtask.api.stored_run import StoredRun
from endtask.errors import InputError
from endtask.evaluation.evidence import spread_over
from endtask.io.atomic import remove_leftovers_of, write_json
from endtask.io.digests import fingerprint
from endtask.io.parsing import ParseError, parse_json
from endtask.io.run_layout import ANALYSIS
from endtask.progress import bar
from endtask.records import Example
from endtask.reporting.run_folder import RunFolder

SPLIT = "dev"
MOST_TEXTS = 400
"""Texts of dev that are read, evenly spread over them."""
_VERSION = 2
Tree = dict[str, Any]


def analyze(folder: Path, also: Iterable[str] = ()) -> Tree:
    """Analyse the models of a run and those of `also`; write and return the content of `analysis.json`.

    The file is written after each model. Models that it already has, with the same weights and texts, are not read
    again, so an interrupted command goes on where it was.
    """
    run = _find(folder)
    remove_leftovers_of(folder / ANALYSIS)
    models = {model.name: model for path in also for model in named_models(path)}
    models = {model.name: model for model in models_of_run(folder)} | models
    if not models:
        raise InputError("no trained weights in this run", path=folder, hint=f"finish it first: endtask run {folder}")
    examples = _texts(run)
    tree = _head(run, examples)
    known: dict[str, Tree] = _known(folder / ANALYSIS, tree, models)
    with bar("analyze", len(models), done=len(known)) as advance:
        for name, model in models.items():
            if name not in known:
                known[name] = _read(model, examples, run)
                write_json(folder / ANALYSIS, tree | {"models": list(known.values())})
                advance(note=name)
    tree["models"] = [known[name] for name in models]
    write_json(folder / ANALYSIS, tree)
    return tree


def _find(folder: Path) -> StoredRun:
    RunFolder(folder).check_settings()
    run = StoredRun.find(folder)
    if run is None:
        raise InputError("this run has not read its task yet", path=folder, hint=f"finish it: endtask run {folder}")
    return run


def _texts(run: StoredRun) -> list[Example]:
    examples = run.task.splits[SPLIT]
    return [examples[row] for row in spread_over(len(examples), MOST_TEXTS)]


def _head(run: StoredRun, examples: Sequence[Example]) -> Tree:
    """Return what all models have in common."""
    rows = [[example.id, example.text, example.text_pair, str(example.label)] for example in examples]
    made_of = {stage: manifest["fingerprint"] for stage, manifest in RunFolder(run.folder).manifests.items()}
    return {
        "version": _VERSION,
        "split": SPLIT,
        "texts": [example.id for example in examples],
        "fingerprint": fingerprint(rows, run.settings.finetune.max_length),
        "stages": {stage: made_of[stage] for stage in ("pretrain", "finetune") if stage in made_of},
        "same_class_by_chance": _rounded(same_class_by_chance(_classes(run, examples))) if _has_classes(run) else None,
    }


def _known(path: Path, head: Tree, models: Mapping[str, AnalysedModel]) -> dict[str, Tree]:
    """Return what is stored about these models over the same texts; nothing of a file that cannot be read."""
    try:
        stored = parse_json(path.read_bytes())
        if any(stored[key] != head[key] for key in ("version", "split", "fingerprint")):
            return {}
        entries = {entry["name"]: entry for entry in stored["models"]}
        return {name: entries[name] for name, model in models.items() if _is_of(entries.get(name), model)}
    except (FileNotFoundError, ParseError, KeyError, TypeError, AttributeError):
        return {}


def _is_of(entry: Tree | None, model: AnalysedModel) -> bool:
    return entry is not None and bool(entry["fingerprint"] == model.fingerprint)


def _read(model: AnalysedModel, examples: Sequence[Example], run: StoredRun) -> Tree:
    maxima, vectors = model.load().read(examples, run.settings.finetune.max_length)
    if not np.isfinite(vectors).all():
        raise InputError(f"the vectors of {model.name!r} are not finite: its training diverged", path=run.folder)
    kinds = maxima.kinds
    counts = Counter(kind for layer in kinds for kind in layer)
    heads = {kind: counts[kind] for kind in ("positional", "vertical", "other")}
    classes = _classes(run, examples) if _has_classes(run) else None
    return {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "width": vectors.shape[1],
        "layers": len(kinds),
        "heads": sum(heads.values()),
        **heads,
        "kinds": kinds,
        "maxima": maxima.to_dict(),
        "same_class": None if classes is None else _rounded(same_class_share(vectors, classes)),
        "map": sentence_map(vectors),
    }


def _has_classes(run: StoredRun) -> bool:
    return bool(run.task.task_type.form == "classes") and len(run.task.splits[SPLIT]) > 1


def _classes(run: StoredRun, examples: Sequence[Example]) -> list[str]:
    return [str(example.label) for example in examples]


def _rounded(value: float) -> float:
    return round(value, 4)
