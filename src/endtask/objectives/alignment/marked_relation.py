"""Whether two marked spans of a text belong together: inputs like those of relation tasks, such as ChemProt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.config import BatchSize
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.objectives.alignment.pairs import Made, MadeInput, MadePairs, MadeStream, half_of
from endtask.tokenization.aligned_texts import ADDED_TOKENS, AlignedTexts
from endtask.tokenization.packed_texts import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TRIES = 50
_LONGER = ADDED_TOKENS - 4
"""So many more tokens than the span it replaces may another have, beside four marks."""
Tokens = NDArray[np.int64]
Span = tuple[int, int]


class MarkedRelation(MadePairs):
    """Two spans of a text in marks; class 0 where another document's span was put in place of one of them."""

    def __init__(
        self,
        name: str,
        texts: AlignedTexts,
        spans: Ragged,
        tokenizer: PreTrainedTokenizerFast,
        network: Network,
        *,
        markers: Sequence[str],
        batch_size: BatchSize,
        seed: int,
        head: str,
    ) -> None:
        whole_spans = np.concatenate([[0], np.cumsum(spans.values[:, 2])])
        counts = whole_spans[spans.offsets[1:]] - whole_spans[spans.offsets[:-1]]
        chosen, self._with_spans = np.flatnonzero(counts >= 2), np.flatnonzero(counts >= 1)
        stream = MadeStream(
            name,
            chosen,
            texts.lengths[chosen] + ADDED_TOKENS,
            network,
            needs="text with two spans",
            batch_size=batch_size,
            seed=seed,
        )
        super().__init__(name, stream, head=head)
        self._texts, self._spans = texts, spans
        self._markers = [np.array(marker_ids(marker, tokenizer)) for marker in markers]

    def make(self, step: int) -> Made:
        """Texts with two marked spans, half of them as they stood there."""
        positions, random = self.stream.positions(step), self.stream.random(step)
        made = [
            self._make(int(position), bool(own), random)
            for position, own in zip(positions, half_of(len(positions), random), strict=True)
        ]
        inputs = [MadeInput(tokens, len(tokens)) for tokens, _ in made]
        return inputs, np.array([own for _, own in made], dtype=np.int64)

    def _make(self, position: int, own: bool, random: np.random.Generator) -> tuple[Tokens, bool]:
        tokens, whole_spans = self._texts[position], self._whole_spans(position)
        first, second = (whole_spans[index] for index in np.sort(random.permutation(len(whole_spans))[:2]))
        parts = [tokens[slice(*first)], tokens[slice(*second)]]
        if not own:
            replaced = int(random.integers(2))
            foreign = self._foreign(position, parts[replaced], random)
            own = foreign is None
            parts[replaced] = parts[replaced] if foreign is None else foreign
        # Either pair of markers may come first, as in the tasks.
        pairs = [self._markers[:2], self._markers[2:]]
        (open_one, close_one), (open_two, close_two) = pairs if random.random() < 0.5 else pairs[::-1]
        before, between, behind = tokens[: first[0]], tokens[first[1] : second[0]], tokens[second[1] :]
        chunks = [before, open_one, parts[0], close_one, between, open_two, parts[1], close_two, behind]
        return np.concatenate(chunks), own

    def _foreign(self, position: int, replaced: Tokens, random: np.random.Generator) -> Tokens | None:
        """A span of another document that says something else and fits; None where some draws find none."""
        for _ in range(_TRIES):
            other = int(self._with_spans[random.integers(len(self._with_spans))])
            if self._texts.documents[other] == self._texts.documents[position]:
                continue
            whole_spans = self._whole_spans(other)
            found = self._texts[other][slice(*whole_spans[random.integers(len(whole_spans))])]
            if len(found) <= len(replaced) + _LONGER and not np.array_equal(found, replaced):
                return found
        return None

    def _whole_spans(self, position: int) -> list[Span]:
        """The whole spans of a text, in order."""
        return [(int(start), int(end)) for start, end, is_whole in self._spans[position] if is_whole]


def marker_ids(marker: str, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The token of a marker, which must be a single token."""
    ids: list[int] = tokenizer(marker, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise InputError(
            f"{marker!r} is no token of its own",
            key="aligned.entity_markers",
            hint="name it under tokenizer.entity_markers too",
        )
    return ids
