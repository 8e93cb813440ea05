"""What a worker does on a GPU: pre-train a body, learn from few labels on top of it, and score its first objectives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.alignment.cases import case_plans, case_rows
from benchmarks.alignment.cells import TASKS, USUAL, Body, Effort, Job, plan_of
from endtask.config import Settings, load_settings
from endtask.config.overrides import with_values
from endtask.encoders.batch import IGNORED, TextBatch
from endtask.encoders.network import TASK, Network
from endtask.encoders.weights import load_tensors, load_weights, save_tensors
from endtask.experiments.few_shot.auxiliary_tasks import auxiliary_rows, labels_for_all
from endtask.experiments.few_shot.few_shot_scores import FewShotResult
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, Tasks
from endtask.experiments.few_shot.few_shot_variants import FewShotVariant, PretrainedRun, VariantTrainer
from endtask.experiments.few_shot.label_draws import TaskRows, fitting_labels, make_draws
from endtask.experiments.stage_reuse import reuse_data, reuse_stages
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_folder import read_manifest
from endtask.objectives.alignment.parts import aligned_head
from endtask.pipeline.run import Run
from endtask.task import Task
from endtask.task.targets import as_lists, numbered
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import network_for
from endtask.training.pretrain import WEIGHTS
from endtask.training.pretrain_phase import pretrain_objectives

Tree = dict[str, Any]
RUN, HELD_OUT = "body", "held_out"
"""Runs of the bundle: what bodies start from, and whose text is only scored."""
BATCHES = 40
_TASK_HEAD = f"heads.{TASK}."


@dataclass(frozen=True)
class Place:
    """An unpacked bundle; `values` change the settings of all bodies, `effort` is less for tries."""

    folder: Path
    values: Tree
    effort: Effort = USUAL

    @property
    def made(self) -> Tree:
        """How rows are made here, as they say it."""
        return {"effort": {"seeds": list(self.effort.seeds), "epochs": self.effort.epochs}, "values": self.values}

    def run(self, name: str) -> Run:
        """A run of the bundle."""
        folder = self.folder / name
        return Run(load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)}))

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """CT and AD, and the same with cases as test rows."""
        return {name: self.run(name).task for task in TASKS for name in (task, f"{task}-cases")}

    def truth(self, task: str) -> Tree:
        """The right answers to all rows of a task, which belong together, and which rows each draw is scored on."""
        found = self.tasks[task]
        rows = TaskRows.of(found)
        answers = numbered([example.label for example in rows.examples], found.type, found.all_labels)
        draws = make_draws(rows, plan_of(task, "head", "new", 1.0, (1,), self.effort))
        return {
            "kind": "task",
            "task": task,
            "task_kind": found.type,
            "labels": list(found.all_labels),
            "truth": as_lists(answers, found.type),
            "groups": rows.groups.tolist(),
            "scored": [draw.test.tolist() for draw in draws],
        }


class BodyWork:
    """A body in a run folder of its own, beside the runs of the bundle."""

    def __init__(self, context: Place, encoder: Body) -> None:
        self.context, self.encoder = context, encoder
        base = context.run(RUN)
        self.folder = context.folder / "bodies" / encoder.name
        values = {**context.values, **encoder.values, "output_dir": str(self.folder)}
        self._base, self._run = base, Run(with_values(base.settings, values, encoder.name))

    @property
    def _settings(self) -> Settings:
        """Those of few-example learning: the paths lead to what is here, and nothing is compiled."""
        return self._run.bundled.local_settings(self._run.settings).model_copy(update={"compile": "graphs"})

    @property
    def is_trained(self) -> bool:
        """Whether pre-training stands finished on this machine."""
        manifest = read_manifest(self.folder / "pretrain")
        return manifest is not None and manifest["status"] == "finished"

    def pretrain(self) -> Tree:
        """Pre-training, unless it was done; what it cost."""
        reuse_data(self._base, self._run)
        reuse_stages(self._run, [self._base.folder])
        counts = self._run.go(until="pretrain").stages["pretrain"]
        manifest = read_manifest(self.folder / "pretrain")
        assert manifest is not None
        kept = {key: counts[key] for key in ("steps", "tokens", "parameters")}
        gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
        cost = {"seconds": manifest["seconds"], "gpu": gpu}
        return {"kind": "body", "body": self.encoder.name, **kept, **cost, **self.context.made}

    def stage_one(self, task: str, tasks: Tasks = "main") -> PretrainedRun:
        """The encoder as pre-training of a run of this task: a new head in place of that of the task it was trained with.

        With all tasks, those of the bundle beside it are its further ones, each with a head of its own.
        """
        auxiliary = {name: self.context.tasks[name] for name in TASKS if name != task} if tasks == "all" else {}
        found = replace(self.context.tasks[task], auxiliary=auxiliary)
        folder = self.folder / "tasks" / "-with-".join((task, *auxiliary))
        one = PretrainedRun(self.encoder.name, folder, self._settings, found, self.encoder.name)
        if not one.weights.exists():
            self._make(one)
        return one

    def _make(self, one: PretrainedRun) -> None:
        """Several workers may do so at once, or find what a killed one left: the weights come last, and whole."""
        for folder in (one.folder, one.weights.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (one.folder / "pack").symlink_to(self._base.folder.resolve() / "pack")
        trained, _ = load_tensors(self.folder / "pretrain" / WEIGHTS)
        first = network_for(one.task, one.folder / "pack", self._settings).state_dict()
        encoder = {name: value for name, value in trained.items() if not name.startswith(_TASK_HEAD)}
        save_tensors(one.weights, {**first, **encoder}, {})

    def job(self, job: Job) -> Iterator[Tree]:
        """The result of each run of a job."""
        plan = plan_of(job.task, job.train, job.head, job.rate, job.labels, self.context.effort, job.tasks)
        common = {"body": job.encoder, "task": job.task, "train": job.train, "head": job.head, "tasks": job.tasks}
        for result in self._results(job.task, plan):
            yield {"kind": "result", **common, **asdict(result), **self.context.made}

    def cases(self) -> Iterator[Tree]:
        """What the heads say about the cases, before and after learning."""
        for task in TASKS:
            labels = self.context.tasks[f"{task}-cases"].labels
            for stage, plan in case_plans(task, self.context.effort).items():
                found = list(self._results(f"{task}-cases", plan))
                yield from (
                    {"kind": "case", "body": self.encoder.name, "task": task, **row}
                    for row in case_rows(task, stage, found, labels)
                )

    def _results(self, task: str, plan: FewShotSpec) -> Iterator[FewShotResult]:
        one = self.stage_one(task, plan.tasks[0])
        rows = TaskRows.of(one.task)
        arm = FewShotVariant.of(next(plan.combinations(one.name)), [one], plan, "few_shot")
        arm.check()
        draws = make_draws(rows, plan)
        labels = labels_for_all(fitting_labels(draws, plan), plan, auxiliary_rows(one.task, rows, draws, plan))
        with tempfile.TemporaryDirectory() as scratch:
            work = VariantTrainer(one, rows, draws, plan, labels, Path(scratch))
            yield from work.train(arm, arm.trials(labels))

    def held_out(self, batches: int = BATCHES) -> Iterator[Tree]:
        """Accuracy and perplexity of masked LM and next sentences on pages that no body has read."""
        settings, task = self._settings, self._base.task
        context = choose_device_context(settings)
        network = move(network_for(task, self._base.folder / "pack", settings), settings, context)
        load_weights(self.folder / "pretrain" / WEIGHTS, network)
        network.eval()
        scored = self.context.run(HELD_OUT)
        for name, objective in pretrain_objectives(task, scored.folder / "pack", network, scored.settings).items():
            sums = np.zeros(3)
            for step in range(batches):
                batch = objective.batch(step).to(context.device)
                assert isinstance(batch, TextBatch)
                with torch.no_grad(), context.autocast(), network.uncompiled():
                    sums += right_and_surprise(network, batch, name)
            asked, right, surprise = sums
            statistics = {"accuracy": right / asked, "perplexity": float(np.exp(surprise / asked)), "asked": int(asked)}
            yield {"kind": "held_out", "body": self.encoder.name, "objective": name, **statistics}


def right_and_surprise(network: Network, batch: TextBatch, objective: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How much a batch asks, how much of it is answered rightly, and the sum of the cross-entropy."""
    hidden = network(batch)  # (N, hidden)
    if batch.masked_positions is not None:
        logits, right = network.masked_logits(hidden, batch.masked_positions), batch.masked_targets
    else:
        logits, right = network.heads[aligned_head(objective)](network.pooled(hidden, batch)), batch.labels
    assert right is not None
    asked = right != IGNORED
    logits, right = logits[asked].float(), right[asked]  # (asked, classes), (asked,)
    surprise = functional.cross_entropy(logits, right, reduction="sum")
    return np.array([len(right), float((logits.argmax(-1) == right).sum()), float(surprise)])
