"""Keep what BM25 ranks best: TLM's own order, made exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.files.selection_table import SelectionFigures


def best_rank(candidates: SelectionFigures) -> NDArray[np.int64]:
    """Best BM25 rank over all examples first; then the higher score, then the earlier passage."""
    places = np.arange(len(candidates.rank))
    return np.lexsort((places, -candidates.score, candidates.rank))
