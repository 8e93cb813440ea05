"""Random numbers that belong to a passage's id and a seed, whatever other passages there are and in whichever order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.io.selection_table import read_batches
from endtask.retrieval.bm25.scan import string_keys
from endtask.seeds import derive, spread


def draws(ids: Sequence[str], seed: int, purpose: str) -> NDArray[np.uint64]:
    """A random 64-bit number for each id.

    >>> bool(draws(["a", "b"], 0, "test")[1] == draws(["b"], 0, "test")[0] != draws(["b"], 1, "test")[0])
    True
    """
    return spread(string_keys(ids) ^ np.uint64(derive(seed, "select", purpose)))


def table_draws(table: Path, seed: int, purpose: str) -> NDArray[np.uint64]:
    """A random number for each passage of a selection table."""
    ids = (batch.column(0).to_pylist() for batch in read_batches(table, columns=["id"]))
    return np.concatenate([np.zeros(0, dtype=np.uint64), *(draws(some, seed, purpose) for some in ids)])
