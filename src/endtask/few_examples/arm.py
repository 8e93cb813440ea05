"""An arm: one run's pre-training, what is trained of it, and the head it starts with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.encoders.weights import load_weights
from endtask.errors import InputError
from endtask.few_examples.bench import Bench
from endtask.few_examples.beside import Beside, further_rows
from endtask.few_examples.body_runs import BodyRuns
from endtask.few_examples.draws import Draw, Rows
from endtask.few_examples.features import unit_vectors
from endtask.few_examples.head_runs import Cache, HeadRuns
from endtask.few_examples.plan import Head, Key, Plan, Tasks, Trained
from endtask.few_examples.result import Result
from endtask.few_examples.stage_one import StageOne
from endtask.few_examples.units import Units, packed_rows
from endtask.seeds import derive
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.device import choose_device_context, move
from endtask.training.initial_network import network_for
from endtask.training.reused_head import fitting_objective, keep_aligned_head, reuse_auxiliary_head


@dataclass(frozen=True)
class Arm:
    """One line of the table."""

    stage_one: StageOne
    train: Trained
    head: Head
    tasks: Tasks = "main"

    @property
    def name(self) -> str:
        """The run's name, what is trained, the head and whether other tasks learn too, as people read it."""
        together = ", all tasks" if self.tasks == "all" else ""
        return f"{self.stage_one.name}, {self.train}, {'kept' if self.head == 'keep' else 'new'} head{together}"

    @property
    def folder(self) -> Path:
        """Where its results stand below the output folder."""
        together = "-all-tasks" if self.tasks == "all" else ""
        return Path("runs") / self.stage_one.name / f"{self.train}-{self.head}{together}"

    def check(self) -> None:
        """Refuse, before any work, a head that is to be kept and is not there, and tasks that are not."""
        settings = self.stage_one.settings
        if self.head == "keep" and not (settings.reads_aligned or _keeps_task_head(self.stage_one)):
            raise InputError(
                "pre-training trained no head that could be kept: no objective is aligned, and none is the task",
                path=self.stage_one.folder,
                hint="--head new",
            )
        if self.tasks == "all" and not self.stage_one.task.auxiliary:
            raise InputError(
                "--tasks all: the run has no auxiliary tasks",
                path=self.stage_one.folder,
                hint="--tasks main, or name some under `tasks` and set finetune.tasks: all",
            )


def _keeps_task_head(one: StageOne) -> bool:
    return (
        not one.settings.skip_pretraining
        and one.settings.pretrain.trains_task
        and one.settings.pretrain.task_head == "stock"
    )


def _keeps_further_head(one: StageOne, beside: Beside) -> bool:
    """Whether pre-training trained a head that answers a auxiliary task, or an aligned one that is shaped like it."""
    settings, task = one.settings, beside.task
    fits = settings.reads_aligned and fitting_objective(task.task_type, task.labels, settings) is not None
    return fits or beside.name in settings.learned_tasks


class ArmWork:
    """Trains the runs of the arms of one pre-training; its texts are tokenised in `scratch`."""

    def __init__(
        self, one: StageOne, rows: Rows, draws: Sequence[Draw], plan: Plan, labels: tuple[int, ...], scratch: Path
    ) -> None:
        self._one, self._plan, self._scratch = one, plan, scratch
        self._rows, self._draws = rows, draws
        self._texts: PackedTexts = packed_rows(rows, one.tokenizer, one.settings.finetune.max_length, scratch)
        self._bench = Bench(plan, labels, draws, Units(one.task, rows, self._texts))
        self._context: DeviceContext = choose_device_context(one.settings)

    @property
    def units(self) -> Units:
        """What the rows ask."""
        return self._bench.units

    @cached_property
    def _network(self) -> Network:
        one = self._one
        return move(network_for(one.task, one.folder / "pack", one.settings), one.settings, self._context)

    def train(self, arm: Arm, keys: Sequence[Key]) -> Iterator[list[Result]]:
        """The results of the runs, some at a time."""
        if arm.train == "head":
            return self._heads(arm).train(keys)
        return self.body_runs(arm).train(keys, lambda seed: self._reset_heads(arm, seed))

    def body_runs(self, arm: Arm) -> BodyRuns:
        """Runs through the whole network, one by one, from the arm's first weights."""
        self._load(arm)
        return BodyRuns(self._bench, self._network, self._texts, self._context, arm.train, self._beside_of(arm))

    def _load(self, arm: Arm) -> None:
        load_weights(self._one.weights, self._network)
        if arm.head == "keep" and self._one.settings.reads_aligned:
            keep_aligned_head(self._network, self._one.settings)
            for one in self._beside_of(arm):
                reuse_auxiliary_head(self._network, one.name, one.task, self._one.settings)

    def _beside_of(self, arm: Arm) -> Sequence[Beside]:
        return self._beside if arm.tasks == "all" else ()

    @cached_property
    def _beside(self) -> tuple[Beside, ...]:
        """The auxiliary tasks, tokenised when the first arm wants them."""
        one, found = self._one, further_rows(self._one.task, self._rows, self._draws, self._plan)
        length, folder = one.settings.finetune.max_length, self._scratch / "tasks"
        return tuple(Beside(rows, one.tokenizer, length, self._plan, folder / rows.name) for rows in found)

    def _reset_heads(self, arm: Arm, seed: int) -> None:
        """New weights for the heads that are not kept; a auxiliary task may have none to keep."""
        if arm.head == "new":
            self.reset_head(seed)
        for one in self._beside_of(arm):
            if arm.head == "new" or not _keeps_further_head(self._one, one):
                self._network.reset_task_head(self._seed_of_head(seed, one.name), one.head)

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
        self._network.reset_task_head(self._seed_of_head(seed))

    def _seed_of_head(self, seed: int, *auxiliary: str) -> int:
        return derive(self._plan.seed, "few-examples", "head", seed, *auxiliary)

    @cached_property
    def _cache(self) -> Cache:
        """Vectors of all rows that are read; arms that freeze the encoder share them."""
        rows = self._bench.all_rows()
        vectors = unit_vectors(self._network, self._texts, self.units, rows, self._context)
        return Cache(vectors, self.units.of(rows), len(self.units.classes))
