"""What pass 1 looks for in a corpus: the words of the queries, and the texts that must not be there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from endtask.io.atomic import atomic_file
from endtask.retrieval.contamination import ContaminationFilter

_FORMAT = "1"  # raised whenever pass 1 makes something else of the same text


@dataclass(frozen=True)
class Asked:
    """Query words in alphabetical order, which numbers them; evaluation texts; whether near-duplicates are wanted."""

    words: tuple[str, ...]
    contamination_filter: ContaminationFilter
    key: str
    signatures: bool = False

    @classmethod
    def of(cls, words: Iterable[str], is_contaminated: Sequence[str] = (), *, signatures: bool = False) -> Asked:
        """Number the words and make the contamination filter ready."""
        distinct = tuple(sorted(set(words)))
        content = "\n".join([_FORMAT, str(signatures), *distinct, "", *sorted(set(is_contaminated))])
        return cls(
            distinct,
            ContaminationFilter.of(is_contaminated),
            hashlib.blake2b(content.encode(), digest_size=12).hexdigest(),
            signatures,
        )

    def save(self, path: Path) -> None:
        """Write it for other processes."""
        words = np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8)
        with atomic_file(path) as aside, open(aside, "wb") as file:
            arrays: dict[str, Any] = self.contamination_filter.arrays()
            np.savez(file, words=words, signatures=self.signatures, key=self.key, **arrays)

    @classmethod
    def load(cls, path: Path) -> Asked:
        """What `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            words = arrays["words"].tobytes().decode()
            return cls(
                tuple(words.split("\n")) if words else (),
                ContaminationFilter.from_arrays(arrays),
                str(arrays["key"]),
                bool(arrays["signatures"]),
            )
