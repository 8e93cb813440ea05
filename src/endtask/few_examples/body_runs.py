"""Runs in which the encoder learns too, one after the other, by the one training loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import IGNORED
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.errors import TrainingError
from endtask.few_examples.bench import Bench, phase_settings
from endtask.few_examples.beside import Beside
from endtask.few_examples.chosen_texts import ChosenTexts
from endtask.few_examples.draws import Numbers
from endtask.few_examples.features import unit_vectors
from endtask.few_examples.plan import Key, Trained
from endtask.few_examples.result import Result, make_result
from endtask.objectives.classification import Classification
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.token_classification import Tagging
from endtask.seeds import derive
from endtask.task.targets import NO_WORD
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.word_alignment import WordStarts
from endtask.training.loop import Phase, build_optimizer, train
from endtask.training.task_schedule import END_TASK, batches_per_epoch, in_turn

_NAME = "few-examples"
_BODY, _EMBEDDINGS = "encoder.", "encoder.embeddings."


@dataclass(frozen=True)
class _Best:
    epoch: int
    loss: float
    weights: dict[str, Tensor]


class BodyRuns:
    """Trains the task's head and, by `trained`, transformer and embeddings, each time from the network's weights.

    Tasks `beside` the end task learn in turn with it; what counts is the end task's.
    """

    def __init__(
        self,
        bench: Bench,
        network: Network,
        texts: PackedTexts,
        context: DeviceContext,
        trained: Trained,
        beside: Sequence[Beside] = (),
    ) -> None:
        self._bench, self._network, self._texts, self._context = bench, network, texts, context
        self._beside = beside
        self._first = {name: value.detach().clone() for name, value in network.state_dict().items()}
        heads = {TASK, *(one.head for one in beside)}
        self._trained = {name: weight for name, weight in network.named_parameters() if _learns(name, trained, heads)}

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
        phase, held_out = self.phase(key), self._bench.held_out(key)
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

    def phase(self, key: Key) -> Phase:
        """What a run learns: as many rows of each task, batches in turn, so that an epoch reads all of them once."""
        plan = self._bench.plan
        self._network.set_dropout(plan.dropout)
        tasks = {END_TASK: self._objective(key)}
        tasks |= {one.name: one.objective(self._network, key) for one in self._beside}
        return Phase(
            network=self._network,
            objectives=tasks,
            weighting=in_turn(tasks),
            steps=plan.epochs * batches_per_epoch(tasks),
            settings=phase_settings(),
            learning_rate=key.rate,
            seed=derive(plan.seed, _NAME, key.seed),
            context=self._context,
        )

    def _objective(self, key: Key) -> TaskObjective:
        units, batches, size = self._bench.units, self._bench.batches(key), self._bench.plan.batch_size
        stream = ChosenTexts(_NAME, self._texts, self._network, self._bench.learned(key), batches, size)
        if not units.per_token:
            return Classification(_NAME, stream, units.classes)
        tags = units.truth[units.truth != NO_WORD]
        return Tagging(_NAME, stream, WordStarts(self._texts), np.where(tags < units.known, tags, IGNORED))

    def _probabilities(self, rows: Numbers) -> NDArray[np.float32]:
        vectors = unit_vectors(self._network, self._texts, self._bench.units, rows, self._context)
        with torch.no_grad(), self._context.autocast():
            probabilities: NDArray[np.float32] = self._network.heads[TASK](vectors).float().softmax(-1).cpu().numpy()
        return probabilities

    @torch.no_grad()
    def _put_in(self, weights: dict[str, Tensor]) -> None:
        for name, weight in self._trained.items():
            weight.copy_(weights[name])


def _learns(name: str, trained: Trained, heads: Collection[str]) -> bool:
    """Whether a weight of the network is trained, beside the heads of the tasks that learn.

    >>> [_learns("encoder.embeddings.norm.weight", trained, ["task"]) for trained in ("head", "transformer", "all")]
    [False, False, True]
    """
    if any(name.startswith(f"heads.{head}.") for head in heads):
        return True
    if trained == "head" or not name.startswith(_BODY):
        return False
    return trained == "all" or not name.startswith(_EMBEDDINGS)
