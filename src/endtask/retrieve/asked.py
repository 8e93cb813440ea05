"""What pass 1 looks for in a corpus: the words of the queries, and the texts that must not be there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from endtask.files.atomic import whole_file
from endtask.retrieve.guard import Guard

_FORMAT = "1"  # raised whenever pass 1 makes something else of the same text


@dataclass(frozen=True)
class Asked:
    """Query words in alphabetical order, which numbers them; guarded texts; whether near-duplicates are wanted."""

    words: tuple[str, ...]
    guard: Guard
    key: str
    signatures: bool = False

    @classmethod
    def of(cls, words: Iterable[str], guarded: Sequence[str] = (), *, signatures: bool = False) -> Asked:
        """Number the words and make the guard ready."""
        distinct = tuple(sorted(set(words)))
        content = "\n".join([_FORMAT, str(signatures), *distinct, "", *sorted(set(guarded))])
        return cls(
            distinct, Guard.of(guarded), hashlib.blake2b(content.encode(), digest_size=12).hexdigest(), signatures
        )

    def save(self, path: Path) -> None:
        """Write it for other processes."""
        words = np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8)
        with whole_file(path) as aside, open(aside, "wb") as file:
            arrays: dict[str, Any] = self.guard.arrays()
            np.savez(file, words=words, signatures=self.signatures, key=self.key, **arrays)

    @classmethod
    def load(cls, path: Path) -> Asked:
        """What `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            words = arrays["words"].tobytes().decode()
            return cls(
                tuple(words.split("\n")) if words else (),
                Guard.from_arrays(arrays),
                str(arrays["key"]),
                bool(arrays["signatures"]),
            )
