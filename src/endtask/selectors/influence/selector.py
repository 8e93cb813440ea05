"""The selector `influence`: texts whose gradients agree with the task's (ISS, Wang et al. 2023)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from endtask.config import Settings
from endtask.config.data_usage import DataUse, selection_use
from endtask.errors import InputError
from endtask.selectors.base import Candidates, Ranking, RunContext, SelectionCost, Selector, check_per_class, selectors
from endtask.selectors.influence.config import InfluenceConfig
from endtask.task import Task

_READ = (
    "tokenizer",
    "model",
    "device",
    "threads",
    "precision",
    "compile",
    "max_skipped_steps",
    "pretrain.max_length",
)
"""What the scoring model depends on."""
_READ_BY_LIMIT = ("budget", "pretrain.batch_size", "pretrain.gradient_accumulation_steps")
"""What a limit on the cost of scoring depends on."""


@selectors.register("influence")
class Influence(Selector):
    """gradients that agree with the task's (ISS)"""

    Config = InfluenceConfig
    runs_model = True
    memory_hint = (
        "lower select.size, compare fewer select.layers, or raise select.target_batch; the run then resumes with "
        "--from select"
    )
    config: InfluenceConfig

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return what fits the scoring model, and what its cost is limited by."""
        return (*_READ, *(_READ_BY_LIMIT if self.config.share_of_budget is not None else ()))

    def inputs_read(self) -> tuple[str, ...]:
        """Return the tokenizer and checkpoint that the scoring model starts from."""
        return ("tokenizer", "checkpoint")

    def data_usage(self) -> DataUse:
        """Return the labels that decide what helps."""
        folds = "train, each half validated by a model of the other"
        return selection_use("which texts help", folds if self.config.targets == "folds" else "train, validated by dev")

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
        """Refuse train rows that cannot be halved, and layers that no scoring model has."""
        super().preflight(task, settings, has_corpus=has_corpus, labels=labels)
        if self.config.per_class and self.config.choice != "budget":
            hint = f"set it to false, or select.choice from {self.config.choice} to budget"
            raise InputError("only a choice by scores is divided among the classes", key="select.per_class", hint=hint)
        check_per_class(self.config.per_class, labels)
        if task is not None:
            from endtask.selectors.influence.fit import check_influence

            check_influence(task, settings)

    def cost(
        self, task: Task, sample: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
    ) -> SelectionCost:
        """Return what fitting the scoring models and scoring the candidates cost."""
        from endtask.selectors.influence.limits import influence_cost

        cost = influence_cost(task, sample, settings, folder, candidates=candidates, bytes_each=bytes_each)
        return replace(cost, budget_share=self.config.share_of_budget)

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by how much a step down each candidate's masked-LM loss lowers the task's loss, to first order."""
        from endtask.selectors.influence.rank import rank_by_influence

        return rank_by_influence(candidates, run, self.config)
