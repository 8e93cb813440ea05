"""An arm: one run's stage 1, what is trained of it, and the head it starts with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from endtask.errors import InputError
from endtask.few_examples.bench import Bench
from endtask.few_examples.body_runs import BodyRuns
from endtask.few_examples.draws import Draw, Rows
from endtask.few_examples.features import unit_vectors
from endtask.few_examples.head_runs import Cache, HeadRuns
from endtask.few_examples.plan import Head, Key, Plan, Trained
from endtask.few_examples.result import Result
from endtask.few_examples.stage_one import StageOne
from endtask.few_examples.units import Units, packed_rows
from endtask.models.network import TASK, Network
from endtask.models.place import Place
from endtask.models.weights import load_weights
from endtask.seeds import derive
from endtask.text.packed import PackedTexts
from endtask.train.device import choose_place, move
from endtask.train.kept_head import keep_aligned_head
from endtask.train.start import network_for


@dataclass(frozen=True)
class Arm:
    """One line of the table."""

    stage_one: StageOne
    train: Trained
    head: Head

    @property
    def name(self) -> str:
        """The run's name, what is trained and the head, as people read it."""
        return f"{self.stage_one.name}, {self.train}, {'kept' if self.head == 'keep' else 'new'} head"

    @property
    def folder(self) -> Path:
        """Where its results stand below the output folder."""
        return Path("runs") / self.stage_one.name / f"{self.train}-{self.head}"

    def check(self) -> None:
        """Refuse, before any work, a head that is to be kept and is not there."""
        settings = self.stage_one.settings
        if self.head == "keep" and not (settings.reads_aligned or _keeps_task_head(self.stage_one)):
            raise InputError(
                "stage 1 trained no head that could be kept: no objective is aligned, and none is the task",
                path=self.stage_one.folder,
                hint="--head new",
            )


def _keeps_task_head(one: StageOne) -> bool:
    return one.settings.stage1 != "none" and one.settings.train.trains_task and one.settings.train.task_head == "stock"


class ArmWork:
    """Trains the runs of the arms of one stage 1; its texts are tokenised in `scratch`."""

    def __init__(
        self, one: StageOne, rows: Rows, draws: Sequence[Draw], plan: Plan, labels: tuple[int, ...], scratch: Path
    ) -> None:
        self._one, self._plan = one, plan
        self._texts: PackedTexts = packed_rows(rows, one.tokenizer, one.settings.finetune.max_length, scratch)
        self._bench = Bench(plan, labels, draws, Units(one.task, rows, self._texts))
        self._place: Place = choose_place(one.settings)

    @property
    def units(self) -> Units:
        """What the rows ask."""
        return self._bench.units

    @cached_property
    def _network(self) -> Network:
        one = self._one
        return move(network_for(one.task, one.folder / "pack", one.settings), one.settings, self._place)

    def train(self, arm: Arm, keys: Sequence[Key]) -> Iterator[list[Result]]:
        """The results of the runs, some at a time."""
        if arm.train == "head":
            return self._heads(arm).train(keys)
        return self.body_runs(arm).train(keys, None if arm.head == "keep" else self.reset_head)

    def body_runs(self, arm: Arm) -> BodyRuns:
        """Runs through the whole network, one by one, from the arm's first weights."""
        self._load(arm)
        return BodyRuns(self._bench, self._network, self._texts, self._place, arm.train)

    def _load(self, arm: Arm) -> None:
        load_weights(self._one.weights, self._network)
        if arm.head == "keep" and self._one.settings.reads_aligned:
            keep_aligned_head(self._network, self._one.settings)

    def _heads(self, arm: Arm) -> HeadRuns:
        self._load(arm)
        kept = self._head_weights() if arm.head == "keep" else None

        def first_weights(seed: int) -> dict[str, Tensor]:
            if kept is not None:
                return kept
            self.reset_head(seed)
            return self._head_weights()

        return HeadRuns(self._bench, self._network.heads[TASK], first_weights, self._cache)

    def _head_weights(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self._network.heads[TASK].named_parameters()}

    def reset_head(self, seed: int) -> None:
        """Give the task's head the random weights of a seed."""
        self._network.reset_task_head(derive(self._plan.seed, "few-examples", "head", seed))

    @cached_property
    def _cache(self) -> Cache:
        """Vectors of all rows that are read; arms that freeze the body share them."""
        rows = self._bench.all_rows()
        vectors = unit_vectors(self._network, self._texts, self.units, rows, self._place)
        return Cache(vectors, self.units.of(rows), len(self.units.classes))
