"""A run: the stages in order, what each reads, what is already done, and what changed since."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from endtask.corpus import Corpus
from endtask.errors import InputError, did_you_mean
from endtask.files.atomic import write_json, write_text
from endtask.files.lock import run_lock
from endtask.files.stage_folder import StageFolder, fingerprint, read_manifest
from endtask.progress import say
from endtask.records import Example
from endtask.settings import Settings, dump_yaml, load_settings, read_tree, resolve
from endtask.task import Task, audit

STAGES = ("read", "retrieve", "select", "pack", "pretrain", "finetune", "evaluate", "model")
SETTINGS_FILE = "settings.yaml"
PREVIOUS = "previous"
Counts = dict[str, Any]


@dataclass(frozen=True)
class RunResult:
    """Where a run stands and what its finished stages counted."""

    folder: Path
    stages: dict[str, Counts]

    @property
    def score(self) -> float | None:
        """Mean test score over the fine-tuning seeds, once evaluated."""
        return self.stages["evaluate"]["mean"] if "evaluate" in self.stages else None


def run(
    settings: Settings | Mapping[str, Any] | str | Path,
    *,
    until: str | None = None,
    start: str | None = None,
) -> RunResult:
    """Do what is left of a run and write its report.

    `settings` are typed settings, a plain mapping (such as resolved settings read from JSON) or a settings file.
    `until` stops after a stage; `start` redoes a stage and all after it, which is also how changed settings are
    taken into an old run folder. What is redone is kept in the folder `previous`.
    """
    if isinstance(settings, str | Path):
        settings = load_settings(settings)
    elif isinstance(settings, Mapping):
        settings = resolve(settings)
    for name in (until, start):
        if name is not None and name not in STAGES:
            raise InputError(f"unknown stage {name!r}", hint=did_you_mean(name, STAGES))
    return Run(settings).go(until=until or STAGES[-1], start=start)


class Run:
    """One run folder and the settings it is asked to follow."""

    def __init__(self, settings: Settings) -> None:
        if not settings.output_dir:
            raise InputError("no folder for the run", key="output_dir", hint="--output runs/my-task")
        if not settings.task.path:
            raise InputError("no task", key="task.path", hint="--task path/to/task")
        self.settings = settings
        self.folder = Path(settings.output_dir)

    @cached_property
    def task(self) -> Task:
        """The labelled data, read once."""
        task = Task.read(self.settings.task, seed=self.settings.seed)
        if task.kind not in ("text", "pair"):
            raise InputError(
                f"the task is of kind {task.kind!r}; training covers one text or a text pair with a class label",
                path=self.settings.task.path,
            )
        return task

    @cached_property
    def corpus(self) -> Corpus | None:
        """The unlabelled text, if any is to be used."""
        if not self.settings.corpus.sources or self.settings.select.selector == "none":
            return None
        return Corpus.read(self.settings.corpus)

    def go(self, *, until: str, start: str | None) -> RunResult:
        """Run the stages up to `until`, skipping those that stand finished."""
        stages = self.stage_folders()
        os.makedirs(self.folder, exist_ok=True)
        with run_lock(self.folder):
            self._refuse_surprises(stages, start)
            if start is not None:
                self._set_aside(stages, start)
            write_text(self.folder / SETTINGS_FILE, dump_yaml(self.settings))
            for name in STAGES[: STAGES.index(until) + 1]:
                stage = stages[name]
                if stage.is_finished():
                    say(f"{name}: finished before, skipped")
                else:
                    self._do(stage, stages)
            self._report()
        return self.result()

    def result(self) -> RunResult:
        """The counts of the stages that stand in the folder."""
        manifests = {name: read_manifest(self.folder / name) for name in STAGES}
        return RunResult(self.folder, {name: found["counts"] for name, found in manifests.items() if found})

    def stage_folders(self) -> dict[str, StageFolder]:
        """Every stage with its fingerprint: its own settings and all that its inputs depend on."""
        everything = self.settings.model_dump(mode="json")
        outside = {
            "task": self.task.fingerprint,
            "corpus": self.corpus.fingerprint() if self.corpus else "none",
        }
        folders: dict[str, StageFolder] = {}
        before: dict[str, str] = {}
        for name in STAGES:
            asked = _pick(everything, READ_BY[name])
            inputs = {**{key: outside[key] for key in _OUTSIDE.get(name, ())}, **before}
            mark = fingerprint(name, asked, inputs)
            folders[name] = StageFolder(self.folder, name, mark, asked, inputs)
            before = {name: mark}
        return folders

    def plan(self) -> list[tuple[str, str]]:
        """What `go` would do, stage by stage, without doing it."""
        todo = []
        for name, stage in self.stage_folders().items():
            if stage.is_finished():
                todo.append((name, "finished"))
            elif stage.can_resume():
                todo.append((name, "goes on where it stopped"))
            else:
                todo.append((name, "settings or data changed" if stage.exists() else "to do"))
        return todo

    def _do(self, stage: StageFolder, stages: dict[str, StageFolder]) -> None:
        say(f"{stage.name}: started" if not stage.can_resume() else f"{stage.name}: goes on where it stopped")
        counts = _STAGE_WORK[stage.name](self, stage, {name: folder.final for name, folder in stages.items()})
        stage.finish(counts)

    def _refuse_surprises(self, stages: dict[str, StageFolder], start: str | None) -> None:
        """Stop before touching a stage that was made with other settings or data, unless told to redo it."""
        changed = [name for name, stage in stages.items() if stage.exists() and not stage.matches()]
        if not changed or (start is not None and STAGES.index(start) <= STAGES.index(changed[0])):
            return
        raise InputError(
            f"{self._what_changed()} since this run was made",
            path=self.folder,
            hint=f"redo with --from {changed[0]}, or choose another --output; nothing was touched",
        )

    def _what_changed(self) -> str:
        old_file = self.folder / SETTINGS_FILE
        old = _flatten(read_tree(old_file)) if old_file.exists() else {}
        new = _flatten(self.settings.model_dump(mode="json"))
        changes = [f"{key} ({old.get(key)} -> {value})" for key, value in new.items() if old.get(key) != value]
        return f"settings changed: {', '.join(changes[:4])}" if changes else "the task's or the corpus's files changed"

    def _set_aside(self, stages: dict[str, StageFolder], start: str) -> None:
        """Move the stages to be redone into `previous`, over what an earlier redo left there."""
        for name in STAGES[STAGES.index(start) :]:
            stages[name].set_aside(self.folder / PREVIOUS)

    def _report(self) -> None:
        from endtask.report.page import write_report

        write_report(self.folder)


READ_BY: dict[str, tuple[str, ...]] = {
    "read": ("task", "seed"),
    "retrieve": ("corpus", "retrieve"),
    "select": ("select", "seed"),
    "pack": ("tokenizer", "train.max_length", "finetune.max_length"),
    "pretrain": ("model", "train", "seed", "budget", "finetune.budget_share", "device", "threads"),
    "finetune": ("finetune", "evaluate"),
    "evaluate": ("evaluate",),
    "model": (),
}
"""The settings each stage reads; those of the stages before it count through their fingerprints."""

_OUTSIDE = {"read": ("task",), "retrieve": ("corpus",)}
"""Data from outside the run that a stage reads."""


def _read(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    folder = stage.start()
    findings = audit(run.task)
    write_json(folder / "audit.json", findings.to_dict())
    for split, examples in run.task.splits.items():
        write_text(folder / f"{split}.jsonl", "".join(f"{_as_json(example)}\n" for example in examples))
    for problem in findings.problems:
        if problem.level != "note":
            say(f"{problem.level}: {problem.message}")
    return {split: len(examples) for split, examples in run.task.splits.items()}


def _retrieve(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.retrieve.retrieve import retrieve

    return retrieve(run.task, run.corpus, run.settings.retrieve, stage.start())


def _select(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.retrieve.retrieve import RETRIEVED
    from endtask.select.choose import select

    manifest = read_manifest(made["retrieve"])
    assert manifest is not None
    size = manifest["counts"]["corpus"]["bytes"]
    return select(made["retrieve"] / RETRIEVED, run.settings.select, stage.start(), corpus_bytes=size)


def _pack(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.select.choose import SELECTION
    from endtask.text.pack import pack

    return pack(run.task, made["select"] / SELECTION, run.settings, stage.start())


def _pretrain(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.train.pretrain import pretrain

    return pretrain(run.task, made["pack"], run.settings, stage)


def _finetune(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.train.finetune import finetune

    return finetune(run.task, made["pack"], made["pretrain"], run.settings, stage)


def _evaluate(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.evaluate.evaluate import evaluate
    from endtask.train.device import choose_device
    from endtask.train.finetune import BEST
    from endtask.train.pretrain import network_for

    weights = {seed: made["finetune"] / f"seed-{seed}" / BEST for seed in run.settings.finetune.seeds}
    network = network_for(run.task, made["pack"], run.settings)
    device = choose_device(run.settings)
    return evaluate(run.task, made["pack"], weights, network, run.settings, stage.start(), device)


def _model(run: Run, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.export.model_folder import save_model
    from endtask.train.pretrain import network_for

    network = network_for(run.task, made["pack"], run.settings)
    return save_model(network, made["pack"], made["finetune"], made["evaluate"], run.settings, stage.start())


_STAGE_WORK: dict[str, Callable[[Run, StageFolder, dict[str, Path]], Counts]] = {
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
    row = {"id": example.id, "text": example.text, "text_pair": example.text_pair, "label": example.label}
    return json.dumps({key: value for key, value in row.items() if value is not None}, ensure_ascii=False)


def _pick(tree: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The values at dotted keys."""
    picked = {}
    for key in keys:
        value: Any = tree
        for part in key.split("."):
            value = value[part]
        picked[key] = value
    return picked


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a nested mapping."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
