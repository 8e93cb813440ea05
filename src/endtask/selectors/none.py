"""Select nothing: the run trains without corpus text."""

from __future__ import annotations

from pathlib import Path

from endtask.io.selection_table import write_selection
from endtask.selectors.base import RunContext, Selected, Selector, selectors


@selectors.register("none")
class NoSelection(Selector):
    """no corpus text"""

    selects = False
    reads_candidates = False
    requires_corpus = False

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write an empty selection."""
        return Selected(write_selection(path, []), 0, {})
