"""Runs in which the body learns too, one after the other, by the one training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.errors import TrainingError
from endtask.few_examples.bench import Bench, phase_settings
from endtask.few_examples.draws import Numbers
from endtask.few_examples.features import unit_vectors
from endtask.few_examples.plan import Key, Trained
from endtask.few_examples.result import Result, make_result
from endtask.models.batch import IGNORED
from endtask.models.network import TASK, Network
from endtask.models.place import Place
from endtask.objectives.stream import TextStream
from endtask.objectives.tagging import Tagging
from endtask.objectives.task import Classification
from endtask.objectives.task_base import TaskObjective
from endtask.seeds import derive
from endtask.settings import BatchSize
from endtask.task.targets import NO_WORD
from endtask.text.packed import PackedTexts
from endtask.text.sampling import BatchPlan
from endtask.text.tagged import WordPlaces
from endtask.train.loop import Phase, build_optimizer, train
from endtask.weighting.equal import Equal

_NAME = "few-examples"
_HEAD, _BODY, _EMBEDDINGS = f"heads.{TASK}.", "body.", "body.embeddings."


class ChosenTexts(TextStream):
    """Batches of some of the texts, by a plan over these alone."""

    def __init__(self, texts: PackedTexts, network: Network, rows: Numbers, plan: BatchPlan, size: int) -> None:
        super().__init__(_NAME, texts, network, batch_size=BatchSize(size, "texts"), seed=0)
        self._rows, self._chosen = rows, plan

    def positions(self, step: int) -> Numbers:
        """The texts of a step's batch."""
        return self._rows[self._chosen.positions(step)]


@dataclass(frozen=True)
class _Best:
    epoch: int
    loss: float
    weights: dict[str, Tensor]


class BodyRuns:
    """Trains the task's head and, by `trained`, transformer and embeddings, each time from the network's weights."""

    def __init__(self, bench: Bench, network: Network, texts: PackedTexts, place: Place, trained: Trained) -> None:
        self._bench, self._network, self._texts, self._place = bench, network, texts, place
        self._first = {name: value.detach().clone() for name, value in network.state_dict().items()}
        self._trained = {name: weight for name, weight in network.named_parameters() if _learns(name, trained)}

    def train(self, keys: Sequence[Key], reset_head: Callable[[int], None] | None) -> Iterator[list[Result]]:
        """The result of each run; the network has its first weights again when all are done."""
        everything = dict(self._network.named_parameters())
        for name, weight in everything.items():
            weight.requires_grad_(name in self._trained)
        try:
            for key in keys:
                self._network.load_state_dict(self._first)
                if reset_head is not None:
                    reset_head(key.seed)
                yield [self._run(key)]
        finally:
            self._network.load_state_dict(self._first)
            for weight in everything.values():
                weight.requires_grad_(True)

    def _run(self, key: Key) -> Result:
        best = self._best_epoch(key)
        if best is None:
            raise TrainingError(f"no epoch at the rate {key.rate:g} has a finite loss", hint="lower --rates")
        self._put_in(best.weights)
        test = self._bench.test(key)
        return make_result(
            key, best.epoch, float(np.exp(best.loss)), self._bench.units, test, self._probabilities(test)
        )

    def _best_epoch(self, key: Key) -> _Best | None:
        phase, held_out = self._phase(key), self._bench.held_out(key)
        per_epoch, best = phase.steps // self._bench.plan.epochs, None
        for record in train(phase, build_optimizer(phase)):
            epoch, more = divmod(record.step, per_epoch)
            if more:
                continue
            sums, asked = self._bench.units.surprise(held_out, self._probabilities(held_out))
            loss = float(sums.sum() / max(1, asked.sum()))
            self._network.train()
            if np.isfinite(loss) and (best is None or loss < best.loss):
                weights = {name: weight.detach().clone() for name, weight in self._trained.items()}
                best = _Best(epoch, loss, weights)
            if self._bench.plan.is_over(epoch, 0 if best is None else best.epoch):
                break
        return best

    def _phase(self, key: Key) -> Phase:
        plan, batches = self._bench.plan, self._bench.batches(key)
        self._network.set_dropout(plan.dropout)
        stream = ChosenTexts(self._texts, self._network, self._bench.learned(key), batches, plan.batch_size)
        return Phase(
            network=self._network,
            objectives={_NAME: self._objective(stream)},
            weighting=Equal(_NAME),
            steps=plan.epochs * batches.batches_per_epoch,
            settings=phase_settings(),
            learning_rate=key.rate,
            seed=derive(plan.seed, _NAME, key.seed),
            place=self._place,
        )

    def _objective(self, stream: TextStream) -> TaskObjective:
        units = self._bench.units
        if units.kind != "tags":
            return Classification(_NAME, stream, units.classes)
        tags = units.truth[units.truth != NO_WORD]
        return Tagging(_NAME, stream, WordPlaces(self._texts), np.where(tags < units.known, tags, IGNORED))

    def _probabilities(self, rows: Numbers) -> NDArray[np.float32]:
        vectors = unit_vectors(self._network, self._texts, self._bench.units, rows, self._place)
        with torch.no_grad(), self._place.autocast():
            probabilities: NDArray[np.float32] = self._network.heads[TASK](vectors).float().softmax(-1).cpu().numpy()
        return probabilities

    @torch.no_grad()
    def _put_in(self, weights: dict[str, Tensor]) -> None:
        for name, weight in self._trained.items():
            weight.copy_(weights[name])


def _learns(name: str, trained: Trained) -> bool:
    """Whether a weight of the network is trained.

    >>> [_learns("body.embeddings.norm.weight", trained) for trained in ("head", "transformer", "all")]
    [False, False, True]
    """
    if name.startswith(_HEAD):
        return True
    if trained == "head" or not name.startswith(_BODY):
        return False
    return trained == "all" or not name.startswith(_EMBEDDINGS)
