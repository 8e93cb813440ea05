"""Carve a split out of another, group by group, so that equal texts are never in both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from endtask.records import Example
from endtask.task.text_keys import normalized_key

_SCORE_BINS = 5


def group_key(example: Example) -> str:
    """Return the group of an example: the value of the group column, else the normalised text."""
    return f"column {example.group}" if example.group is not None else f"text {normalized_key(example)}"


def group_numbers(examples: Iterable[Example]) -> NDArray[np.int64]:
    """Return the number of each example's group, from 0 in the order of first occurrence.

    >>> group_numbers([Example("1", "On [[ it ]].", "a"), Example("2", "Off.", "a"), Example("3", "On it.", "b")])
    array([0, 1, 0])
    """
    numbers: dict[str, int] = {}
    return np.asarray([numbers.setdefault(group_key(example), len(numbers)) for example in examples], dtype=np.int64)


def carve(
    examples: Sequence[Example], fraction: float, seed: int, *, salt: str = "", avoid: Set[str] = frozenset()
) -> tuple[list[Example], list[Example]]:
    """Divide examples into (remaining, carved), with about `fraction` of the rows and of each class carved.

    Groups move as a unit, never with the last example of a class, and not those in `avoid` (groups of another split).
    Which groups move depends on the seed and on their keys, not on the order of the rows.

    >>> rows = [Example(str(n), f"text {n}", "even" if n % 2 == 0 else "odd") for n in range(20)]
    >>> remaining, carved = carve(rows, 0.2, seed=0)
    >>> len(remaining), sorted(example.label for example in carved)
    (16, ['even', 'even', 'odd', 'odd'])
    """
    groups: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        groups[group_key(example)].append(example)
    order = sorted((key for key in groups if key not in avoid), key=lambda key: _random_rank(key, seed, salt))
    wanted = max(1, round(fraction * len(examples)))
    strata = _strata(examples)
    carver = _Carver(groups, strata, Counter(_classes(examples)), wanted)
    # First in the proportions of the strata, then any group that fits, then the smallest group if none did.
    quotas = _quotas(Counter(strata.values()), wanted)
    carver.take_all(order, quotas)
    carver.take_all(order, None)
    if not carver.taken:
        carver.take_smallest(order)
    carved = {example.id for key in carver.taken for example in groups[key]}
    return (
        [example for example in examples if example.id not in carved],
        [example for example in examples if example.id in carved],
    )


@dataclass
class _Carver:
    """Takes groups one by one, up to the number of rows wanted, and leaves every class in train."""

    groups: Mapping[str, list[Example]]
    strata: Mapping[str, str]  # by example id
    left: Counter[str]  # rows of each class that train still has
    wanted: int

    def __post_init__(self) -> None:
        self.taken: dict[str, None] = {}

    def take_all(self, order: Iterable[str], quotas: Counter[str] | None) -> None:
        """Take every group that fits; with quotas, at most that many rows of each stratum."""
        for key in order:
            if self.wanted == 0:
                return
            group = self.groups[key]
            strata = Counter(self.strata[example.id] for example in group)
            if key in self.taken or len(group) > self.wanted or (quotas is not None and not strata <= quotas):
                continue
            if self._spares(group):
                self._take(key)
                if quotas is not None:
                    quotas.subtract(strata)

    def take_smallest(self, order: Sequence[str]) -> None:
        """Take the smallest group that train can spare."""
        spare = [key for key in order if self._spares(self.groups[key])]
        if spare:
            self._take(min(spare, key=lambda key: len(self.groups[key])))

    def _spares(self, group: Sequence[Example]) -> bool:
        """Return whether train without this group still has an example of each class."""
        return all(self.left[name] > count for name, count in Counter(_classes(group)).items())

    def _take(self, key: str) -> None:
        self.taken[key] = None
        self.left.subtract(_classes(self.groups[key]))
        self.wanted = max(0, self.wanted - len(self.groups[key]))


def _random_rank(key: str, seed: int, salt: str) -> bytes:
    return blake2b(f"{seed} {salt} {key}".encode(), digest_size=16).digest()


def _classes(examples: Iterable[Example]) -> Iterable[str]:
    """Yield the classes or tags of each example, and "" for the example itself."""
    for example in examples:
        yield ""
        if isinstance(example.label, str):
            yield f"class {example.label}"
        elif isinstance(example.label, tuple):
            yield from {f"class {tag}" for tag in example.label}


def _strata(examples: Sequence[Example]) -> dict[str, str]:
    """Return the stratum of each example id: its class, its quintile of the scores, or ""."""
    scores = sorted(example.label for example in examples if isinstance(example.label, float))
    edges = [scores[len(scores) * step // _SCORE_BINS] for step in range(1, _SCORE_BINS)] if scores else []
    strata: dict[str, str] = {}
    for example in examples:
        if isinstance(example.label, float):
            strata[example.id] = str(sum(example.label >= edge for edge in edges))
        else:
            strata[example.id] = example.label if isinstance(example.label, str) else ""
    return strata


def _quotas(counts: Counter[str], wanted: int) -> Counter[str]:
    """Distribute `wanted` rows in proportion to `counts`, by largest remainder."""
    total = sum(counts.values())
    exact = {name: wanted * count / total for name, count in counts.items()}
    quotas = Counter({name: int(share) for name, share in exact.items()})
    by_remainder = sorted(exact, key=lambda name: (int(exact[name]) - exact[name], name))
    for name in by_remainder[: wanted - sum(quotas.values())]:
        quotas[name] += 1
    return quotas
