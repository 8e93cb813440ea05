"""A finished run behind a model: its settings, its task and the weights of every seed."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from endtask.config import Settings, load_settings
from endtask.evaluation.predictions import read_predictions
from endtask.io.run_layout import AUDIT, BEST_WEIGHTS, PREDICTIONS, RESULTS, SEED_RESULT, SETTINGS_FILE
from endtask.io.stage_files import checked
from endtask.pipeline.inputs import find_bundled_inputs
from endtask.records import Example
from endtask.reporting.format import metric_with_spread
from endtask.reporting.results import stored_task
from endtask.reporting.run_folder import RunFolder
from endtask.task import Task
from endtask.task.targets import Answers

if TYPE_CHECKING:
    from endtask.evaluation.outputs import Answered

Split = str


class StoredRun:
    """The folder of a run, or the part of it that `Model.save` copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def find(cls, folder: Path) -> StoredRun | None:
        """Return the run in a folder if it has read its task."""
        complete = (folder / SETTINGS_FILE).exists() and (folder / "read" / AUDIT).exists()
        return cls(folder) if complete else None

    @cached_property
    def settings(self) -> Settings:
        """The resolved settings, with paths that lead to the copies of a bundle."""
        settings = load_settings(self.folder / SETTINGS_FILE, given={"output_dir": str(self.folder)})
        return find_bundled_inputs(self.folder).local_settings(settings)

    @cached_property
    def task(self) -> Task:
        """The task as the run read and split it."""
        task = stored_task(RunFolder(self.folder))
        assert task is not None
        return task

    @property
    def weights(self) -> dict[int, Path]:
        """The weights of each seed that are there."""
        files = {seed: self.folder / "finetune" / f"seed-{seed}" / BEST_WEIGHTS for seed in self.settings.model_seeds}
        return {seed: file for seed, file in files.items() if file.exists()}

    @property
    def has_corpus(self) -> bool:
        """Whether the run retrieved passages."""
        return bool(RunFolder(self.folder).counts("retrieve").get("passages"))

    @property
    def summary(self) -> str | None:
        """The deciding score of the run in a few words; None before the evaluation."""
        results = RunFolder(self.folder).results
        if results is None:
            return None
        summary, seeds = results["summary"], len(results["seeds"])
        return f"{metric_with_spread(summary['metric'], summary['mean'], summary['std'], seeds)} on {results['split']}"

    def evaluated(self) -> tuple[Split, dict[int, Answers]] | None:
        """Return the split of the final score and every seed's answers; None before the evaluation."""
        evaluate = self.folder / "evaluate"
        if not (evaluate / PREDICTIONS).exists() or not (evaluate / RESULTS).exists():
            return None
        found = read_predictions(evaluate, self.task.all_labels, self.task.type)
        split = str((RunFolder(self.folder).results or {})["split"])
        return split, dict(zip(found.seeds, found.predicted, strict=True))

    def answers(self, task: Task, split: Split) -> dict[int, Answered]:
        """Return every seed's answers and probabilities for a split of a task with the labels of this one."""
        from endtask.encoders.weights import load_weights
        from endtask.evaluation.evaluate import answer, threshold_of
        from endtask.training.device import choose_device_context, explain_out_of_memory, move
        from endtask.training.initial_network import network_for

        settings, answers = self.settings, {}
        context = choose_device_context(settings)
        with TemporaryDirectory() as scratch, explain_out_of_memory():
            texts = self._packed(task.splits[split], Path(scratch) / split)
            network = move(network_for(self.task, self.folder / "pack", settings), settings, context)
            answered = partial(answer, network, task, texts, settings.evaluate, context)
            for seed, file in self.weights.items():
                load_weights(checked(file, digests_up_to=math.inf), network)
                threshold = threshold_of(checked(file.with_name(SEED_RESULT)), settings.evaluate)
                answers[seed] = answered(threshold=threshold)
        return answers

    def _packed(self, examples: tuple[Example, ...], folder: Path) -> Path:
        from endtask.tokenization.packing import pack_split
        from endtask.tokenization.tokenizer import load_tokenizer

        pack_split(examples, load_tokenizer(checked(self.folder / "pack" / "tokenizer")), self.settings, folder)
        return folder

    def with_rows(self, examples: tuple[Example, ...], split: Split) -> Task:
        """Return the task with other rows in a split."""
        return replace(self.task, splits={"train": self.task.train, "dev": self.task.dev, split: examples})
