"""The candidates as tokens, in the units that are scored, and the batches in which they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.files.atomic import whole_file
from endtask.files.selection_table import SelectionFigures, read_batches
from endtask.progress import bar
from endtask.records import Example
from endtask.seeds import generator
from endtask.select.inputs import Order
from endtask.settings.influence import InfluenceSettings
from endtask.text.packed import PackedTexts, runs, write_packed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CALIBRATED = 512
_STARTS = "starts.npy"
_TEXTS_AT_ONCE = 2000
_SPECIAL, _OF_NOTHING = 2, 1e-9  # tokens around a piece; and a share for one that has no others


@dataclass(frozen=True)
class Candidates:
    """Tokens of all candidates: number i has the texts from `starts[i]` to `starts[i + 1]`, one unless cut."""

    texts: PackedTexts
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1


def pack_candidates(
    table: Path, tokenizer: PreTrainedTokenizerFast, settings: InfluenceSettings, folder: Path
) -> Candidates:
    """Tokenise a table's texts, their beginnings or the whole of them; done once, and read again after a kill."""
    if not (folder / _STARTS).exists():
        counts: list[int] = []
        write_packed(_pieces(table, tokenizer, settings, counts), len(tokenizer), folder)
        with whole_file(folder / _STARTS) as aside, open(aside, "wb") as file:
            np.save(file, np.cumsum([0, *counts]))
    return Candidates(PackedTexts(folder), np.load(folder / _STARTS))


def _pieces(
    table: Path, tokenizer: PreTrainedTokenizerFast, settings: InfluenceSettings, counts: list[int]
) -> Iterator[tuple[list[int], int]]:
    cls, sep, room = tokenizer.cls_token_id, tokenizer.sep_token_id, settings.max_length - 2
    with bar("tokens of the candidates", None):
        for batch in read_batches(table, columns=["text"]):
            texts = batch.column(0).to_pylist()
            for first in range(0, len(texts), _TEXTS_AT_ONCE):
                some = texts[first : first + _TEXTS_AT_ONCE]
                for ids in tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]:
                    # A text without a token is one text all the same: every candidate has a place.
                    cuts = range(0, max(1, len(ids)) if settings.whole_passages else 1, room)
                    counts.append(len(cuts))
                    for start in cuts:
                        piece = [cls, *ids[start : start + room], sep]
                        yield piece, len(piece)


@dataclass(frozen=True)
class UnitTexts:
    """Texts by their numbers among all; for each its unit's place among some units, and its share in the unit."""

    numbers: NDArray[np.int64]
    owners: NDArray[np.int64]
    shares: NDArray[np.float64]


@dataclass(frozen=True)
class CandidateUnits:
    """Candidates in the order in which they are scored; each `size` neighbours are a unit (B_p)."""

    candidates: Candidates
    order: Order
    size: int

    @property
    def count(self) -> int:
        """How many units; the last may be smaller."""
        return -(-len(self.order) // self.size)

    @property
    def of_each(self) -> NDArray[np.int64]:
        """The unit of each candidate, in the order of scoring."""
        return np.arange(len(self.order)) // self.size

    @cached_property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens of each unit."""
        offsets, starts = self.candidates.texts.offsets, self.candidates.starts
        each = offsets[starts[self.order + 1]] - offsets[starts[self.order]]
        return np.bincount(self.of_each, weights=each, minlength=self.count).astype(np.int64)

    def batches(self, units: NDArray[np.int64], most_tokens: int) -> Iterator[NDArray[np.int64]]:
        """Whole units of like length, together no more than so many tokens unless one alone has more."""
        by_length = units[np.argsort(self.tokens[units], kind="stable")]
        start, held = 0, 0
        for place, unit in enumerate(by_length.tolist()):
            size = int(self.tokens[unit])
            if place > start and held + size > most_tokens:
                yield by_length[start:place]
                start, held = place, 0
            held += size
        if start < len(by_length):
            yield by_length[start:]

    def texts_of(self, units: NDArray[np.int64]) -> UnitTexts:
        """The texts of some units: a unit's candidates count alike, a candidate's pieces by their tokens."""
        members = np.minimum(self.size, len(self.order) - units * self.size)  # the last unit may have fewer
        candidates = self.order[runs(units * self.size, members)]
        first, offsets = self.candidates.starts[candidates], self.candidates.texts.offsets
        pieces = self.candidates.starts[candidates + 1] - first
        numbers, candidate = runs(first, pieces), np.repeat(np.arange(len(candidates)), pieces)
        opened = np.maximum(offsets[numbers + 1] - offsets[numbers] - _SPECIAL, _OF_NOTHING)
        unit = np.repeat(np.arange(len(units)), members)[candidate]
        shares = opened / np.bincount(candidate, weights=opened)[candidate] / members[unit]
        return UnitTexts(numbers, unit, shares)


def scoring_order(places: Order, table: Path, figures: SelectionFigures, examples: tuple[Example, ...]) -> Order:
    """The candidates of one asker side by side, best rank first, so that the neighbours of a unit are alike.

    So stand the rows of the ISS authors' file, whose batches are of consecutive rows.
    """
    import pyarrow.compute as compute

    number = {example.id: place for place, example in enumerate(examples)}
    firsts = (compute.list_element(batch.column(0), 0) for batch in read_batches(table, columns=["asked_by"]))
    asker = np.asarray([number.get(name, len(number)) for part in firsts for name in part.to_pylist()], dtype=np.int64)
    return places[np.lexsort((places, figures.rank[places], asker[places]))]


def calibration_draw(units: int, seed: int) -> Order:
    """The units of candidates that tell the usual score of each target, and how long scoring takes; rising.

    >>> calibration_draw(3, 0).tolist(), len(calibration_draw(10_000, 0))
    ([0, 1, 2], 512)
    """
    return np.sort(generator(seed, "influence", "calibration").permutation(units)[:_CALIBRATED])
