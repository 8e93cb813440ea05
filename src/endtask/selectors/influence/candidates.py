"""The candidates as tokens, the units in which they are scored, and the batches in which they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.io.atomic import write_json
from endtask.io.selection_table import SelectionStatistics, read_batches
from endtask.progress import bar
from endtask.records import Example
from endtask.seeds import generator
from endtask.selectors.base import Order
from endtask.tokenization.packed_texts import PackedTexts, runs, write_packed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CALIBRATED = 512
_IS_PACKED = "packed.json"
_TEXTS_AT_ONCE = 2000


def pack_candidates(table: Path, tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path) -> PackedTexts:
    """Tokenize a table's texts up to `max_length` tokens; a resumed run reads the stored tokens."""
    if not (folder / _IS_PACKED).exists():
        packed = write_packed(_beginnings(table, tokenizer, max_length), len(tokenizer), folder)
        write_json(folder / _IS_PACKED, {"texts": len(packed)})
    return PackedTexts(folder)


def _beginnings(table: Path, tokenizer: PreTrainedTokenizerFast, max_length: int) -> Iterator[tuple[list[int], int]]:
    """Yield the tokens of each candidate, also of texts without tokens."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    with bar("tokens of the candidates", None):
        for batch in read_batches(table, columns=["text"]):
            texts = batch.column(0).to_pylist()
            for first in range(0, len(texts), _TEXTS_AT_ONCE):
                some = texts[first : first + _TEXTS_AT_ONCE]
                for ids in tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]:
                    tokens = [cls, *ids[: max_length - 2], sep]
                    yield tokens, len(tokens)


@dataclass(frozen=True)
class UnitTexts:
    """The texts of some units: their indices among all texts, the unit of each, and its share in the unit."""

    numbers: NDArray[np.int64]
    owners: NDArray[np.int64]
    shares: NDArray[np.float64]


@dataclass(frozen=True)
class CandidateUnits:
    """Candidates in the order in which they are scored; each `size` neighbors are a unit (B_p)."""

    texts: PackedTexts
    order: Order
    size: int

    @property
    def count(self) -> int:
        """The number of units; the last may be smaller."""
        return -(-len(self.order) // self.size)

    @property
    def of_each(self) -> NDArray[np.int64]:
        """The unit of each candidate, in the order of scoring."""
        return np.arange(len(self.order)) // self.size

    @cached_property
    def tokens(self) -> NDArray[np.int64]:
        """The number of tokens of each unit."""
        each = self.texts.lengths[self.order]
        return np.bincount(self.of_each, weights=each, minlength=self.count).astype(np.int64)

    def batches(self, units: NDArray[np.int64], most_tokens: int) -> Iterator[NDArray[np.int64]]:
        """Yield units of similar length in batches of at most `most_tokens` tokens, except single longer units."""
        by_length = units[np.argsort(self.tokens[units], kind="stable")]
        start, held = 0, 0
        for end, unit in enumerate(by_length.tolist()):
            size = int(self.tokens[unit])
            if end > start and held + size > most_tokens:
                yield by_length[start:end]
                start, held = end, 0
            held += size
        if start < len(by_length):
            yield by_length[start:]

    def texts_of(self, units: NDArray[np.int64]) -> UnitTexts:
        """Return the texts of some units; the texts of a unit have equal shares."""
        members = np.minimum(self.size, len(self.order) - units * self.size)  # the last unit may have fewer
        owners = np.repeat(np.arange(len(units)), members)
        return UnitTexts(self.order[runs(units * self.size, members)], owners, 1.0 / members[owners])


def scoring_order(indices: Order, table: Path, statistics: SelectionStatistics, examples: tuple[Example, ...]) -> Order:
    """Order candidates by query, best rank first, so that the neighbors of a unit are similar.

    The rows of the ISS authors' file have this order, and their batches are of consecutive rows.
    """
    import pyarrow.compute as compute

    number = {example.id: index for index, example in enumerate(examples)}
    firsts = (compute.list_element(batch.column(0), 0) for batch in read_batches(table, columns=["matched_queries"]))
    query = np.asarray([number.get(name, len(number)) for part in firsts for name in part.to_pylist()], dtype=np.int64)
    return indices[np.lexsort((indices, statistics.rank[indices], query[indices]))]


def calibration_draw(units: int, seed: int) -> Order:
    """Return sorted indices of units that calibrate the scores of each target and measure the time of scoring.

    >>> calibration_draw(3, 0).tolist(), len(calibration_draw(10_000, 0))
    ([0, 1, 2], 512)
    """
    return np.sort(generator(seed, "influence", "calibration").permutation(units)[:_CALIBRATED])
