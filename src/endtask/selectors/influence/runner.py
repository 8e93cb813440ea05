"""Run the steps of influence selection in the stage's folder; a resumed run skips finished steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from endtask.config import Settings
from endtask.encoders.device_context import compiles
from endtask.encoders.flops import training_flops
from endtask.errors import InputError
from endtask.executors.choice import model_executor
from endtask.gradients.scoring import Calibration
from endtask.io.atomic import atomic_file
from endtask.io.run_layout import INFLUENCE_FOLDER, RETRIEVED
from endtask.io.selection_table import SelectionStatistics
from endtask.progress import say, warn
from endtask.selectors.base import Order, RunContext, by_bm25_rank, fill
from endtask.selectors.influence.cluster import score_shards
from endtask.selectors.influence.config import InfluenceConfig
from endtask.selectors.influence.first_round import FirstRound
from endtask.selectors.influence.held_out import HeldOutScore, check_informed
from endtask.selectors.influence.limits import Allowance, allowance, fitting_cost, target_memory
from endtask.selectors.influence.scorer import (
    CandidateUnits,
    Scorer,
    Shards,
    ShardStatistics,
    calibration_draw,
    pack_candidates,
    score_units,
    scoring_order,
)
from endtask.selectors.influence.scoring_model import (
    TOKENIZER,
    Column,
    Fold,
    check_layers_known,
    class_names,
    class_shares,
    columns_of,
    fit,
    folds_of,
    labels_with_targets,
    prepare_folds,
    scoring_settings,
)
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.tokenizer import load_tokenizer
from endtask.training.device import check_arithmetic

_WORTH_COMPILING = 1e16
"""Scoring is compiled from so many FLOPs on: they take a large GPU about as long as compilation, half a minute."""
_CALIBRATION = "calibration.npz"


@dataclass(frozen=True)
class Scored:
    """The results of scoring: the files of the shards, and the targets and classes of their columns."""

    shards: Shards
    columns: list[Column]
    labels: tuple[str, ...]  # the classes that have targets
    counts: dict[str, Any]


@dataclass(frozen=True)
class InfluenceRunner:
    """Fits the scoring models and scores candidates; `decided` stores decisions for a resumed run."""

    context: RunContext
    statistics: SelectionStatistics
    config: InfluenceConfig

    def score(self) -> Scored:
        """Fit the scoring models and score as many candidates as the budget allows."""
        columns = columns_of([fold.task for fold in self.folds], self.config.target_batch)
        labels = labels_with_targets(columns, class_names(self.task))
        self.check(labels)
        fitted = self.expected_fitting()
        if self.context.stage is not None:
            check_arithmetic(self.context.stage, self.folds[0].context)
        counts = {**self.read_first(), **self.fit()}
        units = self.units(self.every())
        memory = self.decided("memory", lambda: target_memory(self.folds[0].context.device))
        scorer = Scorer(self.folds, units, memory=memory, compiled=self.compiled)
        self.say_size(scorer, len(columns))
        calibration, cost = self.calibrate(scorer, units)
        scored = self.decided("candidates", lambda: self.allowed_candidates(fitted, cost))
        if scored < len(units.order):
            units = self.units(by_bm25_rank(self.statistics)[:scored])
        tokens = int(units.tokens.sum())
        counts |= {"candidates": len(self.statistics.rank), "scored": scored, "scored_tokens": tokens}
        counts |= {"scoring_flops": tokens * scorer.flops_per_token, **scorer.record()}
        shards = Shards(units, self.folder / "shards")
        executor = model_executor(self.run, self.folder)
        if executor is None:
            statistics = ShardStatistics(self.config, calibration, class_shares(columns, labels))
            shards.score(scorer, statistics, self.store_time)
        else:
            del scorer  # a process that takes part builds its own, on the same device
            score_shards(self.context, shards, executor, memory=memory, compiled=self.compiled)
        return Scored(shards, columns, labels, counts)

    def prepared(
        self, candidates: int, memory: int, *, shard_size: int, compiled: bool
    ) -> tuple[Shards, Scorer, ShardStatistics]:
        """Return what scores the best-ranked candidates, in a process that did not fit and calibrate the models."""
        columns = columns_of([fold.task for fold in self.folds], self.config.target_batch)
        labels = labels_with_targets(columns, class_names(self.task))
        scorer = Scorer(self.folds, self.units(self.every()), memory=memory, compiled=compiled)
        best = self.every() if candidates == len(self.every()) else by_bm25_rank(self.statistics)[:candidates]
        statistics = ShardStatistics(self.config, self.read_calibration()[0], class_shares(columns, labels))
        return Shards(self.units(best), self.folder / "shards", shard_size), scorer, statistics

    def every(self) -> Order:
        """Return the indices of all candidates."""
        return np.arange(len(self.statistics.rank))

    @property
    def task(self) -> Task:
        """The labelled data."""
        assert self.context.task is not None
        return self.context.task

    @property
    def run(self) -> Settings:
        """The settings of the run."""
        assert self.context.run is not None
        return self.context.run

    @property
    def seed(self) -> int:
        """The seed of the scoring models."""
        return self.config.seed(self.run)

    @property
    def folder(self) -> Path:
        """The scratch folder of the selector."""
        assert self.context.folder is not None
        return self.context.folder / INFLUENCE_FOLDER

    @property
    def table(self) -> Path:
        """The candidates."""
        return self.context.retrieved / RETRIEVED

    @cached_property
    def compiled(self) -> bool:
        """Whether scoring is compiled: by default on a GPU if it takes longer than compilation."""
        if not compiles(self.run, self.folds[0].context.device):
            return False
        passes = len(self.folds) * self.config.masks
        weights = sum(weight.numel() for weight in self.folds[0].network().parameters())
        flops = training_flops(weights, float(passes * self.candidates.lengths.sum()))
        return self.run.compile is True or flops >= _WORTH_COMPILING

    @cached_property
    def allowed(self) -> Allowance | None:
        """The limit on the cost of fitting and scoring; None: no limit."""
        return allowance(self.run)

    @cached_property
    def folds(self) -> list[Fold]:
        """The folds with their tokens."""
        parts = folds_of(self.task, self.config, self.seed)
        return prepare_folds(self.task, parts, self.table, scoring_settings(self.run), self.folder)

    @cached_property
    def candidates(self) -> PackedTexts:
        """The tokens of all candidates."""
        tokenizer, max_length = load_tokenizer(self.folder / TOKENIZER), scoring_settings(self.run).pretrain.max_length
        return pack_candidates(self.table, tokenizer, max_length, self.folder / "candidates")

    def units(self, indices: Order) -> CandidateUnits:
        """Return the candidates at some indices, in the units in which they are scored."""
        size = self.config.candidate_batch
        order = np.sort(indices) if size == 1 else scoring_order(indices, self.table, self.statistics, self.task.train)
        return CandidateUnits(self.candidates, order, size)

    def check(self, labels: tuple[str, ...]) -> None:
        """Raise `InputError` for settings that cannot rank and warn of surprises, before anything is trained."""
        check_layers_known(self.folds[0].network(), self.config.layers)
        size, candidates = self.config.candidate_batch, len(self.statistics.rank)
        if size > 1 and 2 * size > candidates:
            raise InputError(
                f"{candidates:,} candidates are less than two units of {size:,}: there is nothing to rank",
                key="select.candidate_batch",
                hint="lower it, or retrieve more",
            )
        if self.context.settings.budget is None:
            hint = "--set select.budget=20%retrieved"
            warn(f"without select.budget every candidate is selected, and influence only orders them ({hint})")
        if missing := [label for label in class_names(self.task) if label not in labels]:
            warn(f"influence: no target is of class {', '.join(missing)}; nothing is selected for it")

    def expected_fitting(self) -> float:
        """Return the cost of fitting in the allowance's unit; raise `InputError` if it exceeds the allowance."""
        if self.allowed is None:
            return 0.0
        allowed = self.allowed

        def decide() -> float:  # if this raises, no decision is stored
            cost = len(self.folds) * self.fitting_cost() + self.first_round_cost()
            allowed.check_fit_cost(cost)
            return cost

        cost: float = self.decided("fitting", decide)
        return cost

    def read_first(self) -> dict[str, Any]:
        """Train the weights that the scoring models start from on the best-ranked candidates, if requested."""
        if not self.config.first_round_steps:
            return {}
        return FirstRound(self.context, self.statistics, self.folds[0]).train(on_checkpoint=self.store_time)

    def fit(self) -> dict[str, Any]:
        """Fit the scoring models, check their held-out scores, and return scores and cost."""
        counts = [
            fit(fold, label=f"scoring model {number} of {len(self.folds)}", on_checkpoint=self.store_time)
            for number, fold in enumerate(self.folds, start=1)
        ]
        scores = [HeldOutScore(**count["held_out"]) for count in counts]
        check_informed(scores, stops=self.config.uninformed == "error")
        return {
            "scoring_models": [score.record() for score in scores],
            "fitted_steps": sum(count["steps"] for count in counts),
            "fitted_tokens": sum(count["tokens"] for count in counts),
            "fitting_flops": sum(count["flops"] for count in counts),
        }

    def fitting_cost(self) -> float:
        """Return the cost of fitting one scoring model."""
        assert self.allowed is not None
        return fitting_cost(self.folds[0].phase(), self.allowed)

    def first_round_cost(self) -> float:
        """Return the cost of the first round."""
        if not self.config.first_round_steps:
            return 0.0
        assert self.allowed is not None
        return fitting_cost(FirstRound(self.context, self.statistics, self.folds[0]).phase(), self.allowed)

    def calibrate(self, scorer: Scorer, units: CandidateUnits) -> tuple[Calibration, float]:
        """Return mean and deviation of each target's scores over a sample, and the cost of scoring one candidate."""
        path = self.folder / _CALIBRATION
        if not path.exists():
            drawn = calibration_draw(units.count, self.seed)
            if self.compiled:  # compile before the clock starts
                score_units(scorer, units, drawn)
            started = time.perf_counter()
            measured = Calibration.of(score_units(scorer, units, drawn))  # the copy to the CPU waits for the GPU
            seconds = (time.perf_counter() - started) / len(drawn) / units.size
            _check_distinct_scores(measured, units.count)
            with atomic_file(path) as aside, open(aside, "wb") as file:
                np.savez(file, mean=measured.mean, deviation=measured.deviation, seconds=seconds)
        calibration, seconds = self.read_calibration()
        in_seconds = self.allowed is None or self.allowed.in_seconds
        return calibration, seconds if in_seconds else scorer.flops_per_token * units.tokens.sum() / len(units.order)

    def read_calibration(self) -> tuple[Calibration, float]:
        """Return the stored calibration, and the seconds of a candidate."""
        with np.load(self.folder / _CALIBRATION) as file:
            return Calibration(file["mean"], file["deviation"]), float(file["seconds"])

    def allowed_candidates(self, fitted: float, each: float) -> int:
        """Return how many candidates are scored: all, or the best-ranked that the allowance covers."""
        candidates = len(self.statistics.rank)
        if self.allowed is None:
            return candidates
        covered = self.allowed.candidates(fitted, each)
        if covered >= candidates:
            return candidates
        best, budget = by_bm25_rank(self.statistics)[:covered], self.context.settings.budget
        if len(fill(best, self.statistics.bytes, budget, corpus_bytes=self.context.corpus_bytes)) == covered:
            raise self.allowed.too_few(covered, candidates)
        say(f"influence: {self.allowed} is enough for the {covered:,} best-ranked of {candidates:,} candidates")
        return covered

    def decided(self, name: str, decide: Callable[[], Any]) -> Any:
        """Return a decision from the stage's plan; the first call makes it and stores it there."""
        stage = self.context.stage
        if stage is None:
            return decide()
        decisions = stage.plan.get("influence", {})
        if name not in decisions:
            stage.set_plan(influence={**decisions, name: decide()})
        return stage.plan["influence"][name]

    def store_time(self) -> None:
        """Store the seconds spent so far, so that a resumed stage counts them."""
        if self.context.stage is not None:
            self.context.stage.save_time()

    def say_size(self, scorer: Scorer, columns: int) -> None:
        """Print the size of the targets before scoring starts."""
        size = scorer.record()["bytes_per_target"] * sum(len(fold.task.dev) for fold in self.folds)
        say(f"influence: {columns:,} targets in {size / 1e6:,.1f} MB; {len(self.statistics.rank):,} candidates")


def _check_distinct_scores(calibration: Calibration, units: int) -> None:
    if units > 1 and not calibration.deviation.any():
        raise InputError(
            "for every target all candidates have the same score: there is nothing to rank",
            key="select.name",
            hint="are the candidates too short, or too few? other layers or more epochs may separate them",
        )
