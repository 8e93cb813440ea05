"""The prepared texts as each engine wants them, and a clock that does not disturb the steps it times."""

from __future__ import annotations

import time
from dataclasses import dataclass
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


class StepClock:
    """Told of the end of every step; waits for the device only where the timed steps begin and end.

    In between, events on the device mark the ends of steps, which costs it nothing.

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
        """Whether the step that goes on now is a timed one."""
        return self._warmup <= self._ticks < self._warmup + self._steps

    @property
    def total(self) -> int:
        """Steps to train in all."""
        return self._warmup + self._steps

    def tick(self) -> None:
        """A step has ended, or all its work is on its way to the device."""
        self._ticks += 1
        if self._ticks == self._warmup:
            self._start = self._now()
        elif self._ticks == self.total:
            self._end = self._now()
        if self._ticks >= self._warmup:
            self._mark()

    def statistics(self) -> dict[str, float | int | list[float]]:
        """Seconds of all timed steps, and milliseconds of each."""
        if self._ticks < self.total:
            raise RuntimeError(f"{self._ticks} of {self.total} steps were done")
        if self._on_gpu:
            each = [before.elapsed_time(after) for before, after in zip(self._events, self._events[1:], strict=False)]
        else:
            each = [1000 * (after - before) for before, after in zip(self._times, self._times[1:], strict=False)]
        return {
            "warmup": self._warmup,
            "steps": self._steps,
            "seconds": round(self._end - self._start, 6),
            "step_milliseconds": [round(milliseconds, 3) for milliseconds in each],
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


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = ROOT / "runs" / "benchmark-training" / "texts"
SEED = 0
MASKED_SHARE = 0.15
LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class Bench(Folders):
    """What is read and written where, and how many steps the largest model takes."""

    warmup: int
    steps: int

    def packed(self, case: Case) -> PackedTexts:
        """The texts of a case."""
        return PackedTexts(vocabulary_folder(self.texts, case.vocabulary) / case.text)

    def tokenizer(self, case: Case) -> PreTrainedTokenizerFast:
        """The tokenizer that made them."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(
            str(vocabulary_folder(self.texts, case.vocabulary) / "tokenizer")
        )

    def clock(self, case: Case) -> StepClock:
        """A clock for as many steps as the case is trained."""
        return StepClock(torch.device(case.device), self.warmup, self.steps * SIZES[case.size].steps_factor)

    def rows(self, case: Case) -> TextRows:
        """As many texts as all steps take."""
        packed = self.packed(case)
        batch_size = texts_per_batch(packed.lengths, case.rows)
        return TextRows(packed, shuffled(len(packed), batch_size * self.clock(case).total), batch_size)


class TextRows(Dataset[dict[str, list[int]]]):
    """Texts as a Hugging Face collator takes them, with the special tokens marked, which spares it the search."""

    def __init__(self, texts: PackedTexts, order: NDArray[np.int64], batch_size: int) -> None:
        self._texts, self._order = texts, order
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        ids = self._texts[int(self._order[index])].tolist()
        return {"input_ids": ids, "special_tokens_mask": [1, *[0] * (len(ids) - 2), 1]}


def vocabulary_folder(texts: Path, vocabulary: int) -> Path:
    """Where everything made with a vocabulary lies."""
    return texts / f"vocabulary-{vocabulary}"


def texts_per_batch(lengths: NDArray[np.int64], rows: int) -> int:
    """How many texts hold as many tokens, on average, as `rows` full sequences.

    >>> texts_per_batch(np.array([32, 96]), rows=4)
    8
    """
    return max(1, round(rows * LENGTH / float(lengths.mean())))


def shuffled(count: int, wanted: int, seed: int = SEED) -> NDArray[np.int64]:
    """Positions of `wanted` texts out of `count`: each once before any twice, each time in another order.

    One epoch is enough for all steps then: no engine starts its workers anew while it is timed.
    """
    rounds = -(-wanted // count)
    orders = [generator(seed, "training benchmark", turn).permutation(count) for turn in range(rounds)]
    return np.concatenate(orders)[:wanted]
