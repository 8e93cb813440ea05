"""The prepared texts as each engine wants them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from benchmarks.job import Folders
from benchmarks.training.cases import LENGTH, SIZES, Case
from benchmarks.training.clock import StepClock
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts

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
