"""The prepared texts for each engine, and a clock that times steps without slowing them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from benchmarks.job import Folders
from benchmarks.training.cases import LENGTH, SIZES, Case
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = ROOT / "runs" / "benchmark-training" / "texts"
SEED = 0
MASKED_SHARE = 0.15
LEARNING_RATE = 1e-4


class StepClock:
    """Times steps; waits for the device only before the first and after the last timed step.

    Events on the device mark the ends of the steps between, at no cost.

    >>> clock = StepClock(torch.device("cpu"), warmup=1, steps=2)
    >>> for _ in range(3):
    ...     clock.tick()
    >>> sorted(clock.statistics())
    ['seconds', 'step_milliseconds', 'steps', 'warmup']
    """

    def __init__(self, device: torch.device, warmup: int, steps: int) -> None:
        if warmup < 1 or steps < 1:
            raise ValueError("at least one step to warm up and one to time")
        self._on_gpu = device.type == "cuda"
        self._warmup, self._steps = warmup, steps
        self._ticks = 0
        self._start = self._end = 0.0
        self._events: list[torch.cuda.Event] = []
        self._times: list[float] = []

    @property
    def is_timing(self) -> bool:
        """Whether the current step is timed."""
        return self._warmup <= self._ticks < self._warmup + self._steps

    @property
    def total(self) -> int:
        """The number of all steps."""
        return self._warmup + self._steps

    def tick(self) -> None:
        """Record the end of a step; its kernels may still be running on the device."""
        self._ticks += 1
        if self._ticks == self._warmup:
            self._start = self._now()
        elif self._ticks == self.total:
            self._end = self._now()
        if self._ticks >= self._warmup:
            self._mark()

    def statistics(self) -> dict[str, float | int | list[float]]:
        """Return the seconds of all timed steps, and the milliseconds of each."""
        if self._ticks < self.total:
            raise RuntimeError(f"only {self._ticks} of {self.total} steps have ended")
        if self._on_gpu:
            times = [before.elapsed_time(after) for before, after in pairwise(self._events)]
        else:
            times = [1000 * (after - before) for before, after in pairwise(self._times)]
        return {
            "warmup": self._warmup,
            "steps": self._steps,
            "seconds": round(self._end - self._start, 6),
            "step_milliseconds": [round(milliseconds, 3) for milliseconds in times],
        }

    def _now(self) -> float:
        if self._on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _mark(self) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._events.append(event)
        else:
            self._times.append(time.perf_counter())


@dataclass(frozen=True)
class Setup(Folders):
    """The folders, and the number of steps of the largest model."""

    warmup: int
    steps: int

    def packed(self, case: Case) -> PackedTexts:
        """Return the texts of a case."""
        return PackedTexts(vocabulary_folder(self.texts, case.vocabulary) / case.text)

    def tokenizer(self, case: Case) -> PreTrainedTokenizerFast:
        """Return the tokenizer of the texts."""
        from transformers import PreTrainedTokenizerFast

        folder = vocabulary_folder(self.texts, case.vocabulary) / "tokenizer"
        return PreTrainedTokenizerFast.from_pretrained(str(folder))

    def clock(self, case: Case) -> StepClock:
        """Return a clock for the steps of the case."""
        return StepClock(torch.device(case.device), self.warmup, self.steps * SIZES[case.size].steps_factor)

    def rows(self, case: Case) -> TextRows:
        """Return the texts of all steps."""
        packed = self.packed(case)
        batch_size = texts_per_batch(packed.lengths, case.rows)
        return TextRows(packed, shuffled(len(packed), batch_size * self.clock(case).total), batch_size)


class TextRows(Dataset[dict[str, list[int]]]):
    """Texts for a Hugging Face collator, with a mask of the special tokens, so that it need not search for them."""

    def __init__(self, texts: PackedTexts, order: NDArray[np.int64], batch_size: int) -> None:
        self._texts, self._order = texts, order
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        ids = self._texts[int(self._order[index])].tolist()
        return {"input_ids": ids, "special_tokens_mask": [1, *[0] * (len(ids) - 2), 1]}


def vocabulary_folder(texts: Path, vocabulary: int) -> Path:
    """Return the folder of the texts of a vocabulary."""
    return texts / f"vocabulary-{vocabulary}"


def texts_per_batch(lengths: NDArray[np.int64], rows: int) -> int:
    """Return how many texts have as many tokens, on average, as `rows` full sequences.

    >>> texts_per_batch(np.array([32, 96]), rows=4)
    8
    """
    return max(1, round(rows * LENGTH / float(lengths.mean())))


def shuffled(count: int, size: int, seed: int = SEED) -> NDArray[np.int64]:
    """Return `size` indices of `count` texts: all of them in random order, then all in another order, and so on.

    All steps are in one epoch, so that no engine restarts its workers while it is timed.
    """
    rounds = -(-size // count)
    orders = [generator(seed, "training benchmark", number).permutation(count) for number in range(rounds)]
    return np.concatenate(orders)[:size]
