"""The rows that came back from the GPU, by what they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alignment.cells import Arm, Effort, plan_of
from benchmarks.alignment.rows_file import made_as, not_a_row, read_rows, refuse_mixed
from benchmarks.compared import type_of
from endtask.errors import InputError
from endtask.evaluation.task_metrics import Measure
from endtask.experiments.few_shot.few_shot_scores import FewShotResult, FewShotScoring
from endtask.experiments.few_shot.few_shot_spec import FewShotTrial
from endtask.experiments.few_shot.label_draws import Draw
from endtask.experiments.few_shot.trial_rows import PredictionUnits
from endtask.registry import task_types
from endtask.task.targets import Answers, from_lists

Tree = dict[str, Any]
SCORE = "accuracy"


class ToldUnits(PredictionUnits):
    """The right answers as they came back: what scoring needs, without the texts."""

    def __init__(self, kind: str, truth: Answers) -> None:
        self.type, self.truth, self.per_token = kind, truth, task_types.get(kind).per_token


@dataclass
class Found:
    """All rows of a folder by what they are; of what was done twice the last counts."""

    made: Tree | None = None
    tasks: dict[str, Tree] = field(default_factory=dict)
    bodies: dict[str, Tree] = field(default_factory=dict)
    results: dict[tuple[str, str, str, str, str, FewShotTrial], FewShotResult] = field(default_factory=dict)
    held_out: dict[tuple[str, str], Tree] = field(default_factory=dict)
    cases: dict[tuple[str, str, str], Tree] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Found:
        """From all files of rows in a folder; rows of other tasks or of bodies trained otherwise are refused."""
        found = cls()
        for file in sorted(folder.glob("*.jsonl")):
            for number, row in read_rows(file):
                try:
                    found._take(row)
                except (KeyError, TypeError):
                    raise not_a_row(file, number) from None
                except InputError as error:
                    raise InputError(str(error), path=file, row=number) from None
        if not found.results:
            raise InputError("no results there", path=folder, hint="benchmarks.alignment.train writes alignment.jsonl")
        return found

    def _take(self, row: Tree) -> None:
        kind = row["kind"]
        if kind in ("body", "result"):
            self.made = self.made or made_as(row)
            refuse_mixed(row, self.made)
        if kind == "task":
            if self.tasks.setdefault(row["task"], row) != row:
                raise InputError(f"other rows of the task {row['task']} than before")
        elif kind == "body":
            steps = next(iter(self.bodies.values()), row)["steps"]
            self.bodies[row["body"]] = {**row, "trainings": self._trainings(row)}
            if steps != row["steps"]:
                raise InputError(f"{row['body']} was trained for {row['steps']} steps, others for {steps}")
        elif kind == "result":
            key = FewShotTrial(**row["trial"])
            names = ("epoch", "held_out_perplexity", "predictions", "losses", "counts")
            result = FewShotResult(key, **{name: row[name] for name in names})
            self.results[row["body"], row["task"], row["train"], row["head"], row["tasks"], key] = result
        elif kind == "held_out":
            self.held_out[row["body"], row["objective"]] = row
        elif kind == "case":
            self.cases[row["task"], row["text"], row["stage"]] = row

    def _trainings(self, row: Tree) -> int:
        """How often a body was trained: another machine trains it anew, and hardly in the very same time."""
        before = self.bodies.get(row["body"])
        return 1 if before is None else before["trainings"] + (before["seconds"] != row["seconds"])

    @property
    def effort(self) -> Effort:
        """How often and how long few labels were learned from."""
        assert self.made is not None
        return Effort(tuple(self.made["effort"]["seeds"]), self.made["effort"]["epochs"])

    def judge(self, task: str) -> FewShotScoring:
        """How the runs of a task are put together and scored."""
        row = self.tasks[task]
        truth = from_lists(row["truth"], type_of(row, "task_kind"))
        nothing = np.zeros(0, dtype=np.int64)
        draws = [Draw(nothing, nothing, np.asarray(scored)) for scored in row["scored"]]
        plan = plan_of(task, "head", "new", 1.0, (1,))
        type_name = type_of(row, "task_kind")
        measure = Measure(SCORE, type_name, tuple(row["labels"]))
        return FewShotScoring(plan, draws, ToldUnits(type_name, truth), measure, np.asarray(row["groups"]))

    def of(self, task: str, arm: Arm, labels: int) -> list[FewShotResult] | None:
        """The runs of an arm with a number of labels, by draw and seed; None where not all that are planned are there.

        Tests over folds need all of them: they put the answers to all rows together.
        """
        plan = plan_of(task, arm.train, arm.head, arm.learning_rate, (labels,), self.effort, arm.tasks)
        names = (arm.encoder.name, task, arm.train, arm.head, arm.tasks)
        found = [self.results.get((*names, key)) for key in plan.trials((labels,), arm.train)]
        runs = [one for one in found if one is not None]
        return runs if len(runs) == len(found) else None
