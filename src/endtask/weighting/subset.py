"""Which of many auxiliary objectives have a turn: a few at a time, each as often as any other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from endtask.seeds import generator


class Subset:
    """So many of the names at every step, in a random order that changes each round; a pure function of the step.

    A round has as many steps as there are names. Its steps take names off a shuffled circle, one stretch after the
    other, so that each name comes equally often and never twice in one step.

    >>> subset = Subset(["a", "b", "c"], 2, seed=0)
    >>> [len(subset.at(step)) for step in range(3)], sorted(name for step in range(3) for name in subset.at(step))
    ([2, 2, 2], ['a', 'a', 'b', 'b', 'c', 'c'])
    """

    def __init__(self, names: Sequence[str], size: int, seed: int) -> None:
        self._names, self._size, self._seed = tuple(names), min(size, len(names)), seed
        self._circle = lru_cache(maxsize=2)(self._shuffled)

    @property
    def round(self) -> int:
        """Steps in which each name comes equally often."""
        return 1 if self._size == len(self._names) else len(self._names)

    @property
    def share(self) -> float:
        """How many of the steps a name takes part in."""
        return self._size / len(self._names) if self._names else 1.0

    def at(self, step: int) -> list[str]:
        """The names of a step."""
        if not self._names:
            return []
        turn, inside = divmod(step, len(self._names))
        circle = self._circle(turn)
        return [circle[(inside * self._size + offset) % len(circle)] for offset in range(self._size)]

    def turns_before(self, name: str, step: int) -> int:
        """How often a name had a turn before this step.

        >>> subset = Subset(["a", "b", "c"], 2, seed=0)
        >>> [subset.turns_before("b", step) for step in (0, 3, 6)]
        [0, 2, 4]
        """
        if self.round == 1:
            return step
        whole, inside = divmod(step, self.round)
        return whole * self._size + sum(name in self.at(step - back) for back in range(1, inside + 1))

    def _shuffled(self, turn: int) -> list[str]:
        if self._size == len(self._names):
            return list(self._names)  # all of them, in their own order
        return [self._names[place] for place in generator(self._seed, "subset", turn).permutation(len(self._names))]
