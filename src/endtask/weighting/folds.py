"""Parts of train that are held out in turn, so that learned weights need no dev labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.records import Example
from endtask.seeds import derive
from endtask.task.split import group_key

FOLD_STEPS = 100
"""Most steps for which a part is held out."""
SPLIT_KEY = "pretrain.weighting.split"


@dataclass(frozen=True)
class Folds:
    """The part that each example of train belongs to, and the steps for which a part is held out.

    >>> folds = Folds(np.array([0, 1, 0]), steps=2)
    >>> [folds.held_out(step).tolist() for step in (0, 2, 5)]
    [[True, False, True], [False, True, False], [True, False, True]]
    """

    numbers: NDArray[np.int64]
    steps: int

    def held_out(self, step: int) -> NDArray[np.bool_]:
        """Return which examples are held out at a step."""
        parts = int(self.numbers.max()) + 1
        is_held_out: NDArray[np.bool_] = self.numbers == step // self.steps % parts
        return is_held_out


def folds_of(examples: Sequence[Example], count: int, seed: int, *, every: int, steps: int | None = None) -> Folds:
    """Return the parts of train that are held out in turn in a phase of `steps` steps; None: not yet known."""
    numbers = part_numbers(examples, count, seed, key=SPLIT_KEY)
    return Folds(numbers, FOLD_STEPS if steps is None else fold_steps(count, every, steps))


def fold_steps(count: int, every: int, steps: int) -> int:
    """Return the steps for which each of `count` parts is held out, a multiple of the steps between weight updates.

    Short phases hold each part out for fewer steps than `FOLD_STEPS`, so that every part is held out once.

    >>> fold_steps(4, every=2, steps=12), fold_steps(10, every=4, steps=100_000)
    (2, 100)
    """
    return min(FOLD_STEPS, max(every, steps // count // every * every))


def smallest_part(folds: Folds) -> int:
    """Return the number of examples of the smallest part."""
    return int(np.bincount(folds.numbers).min())


def groups_in(examples: Sequence[Example]) -> int:
    """Return the number of groups of examples that stay together, the most parts that train can have.

    >>> groups_in([Example("1", "same text", "a"), Example("2", "Same text", "a"), Example("3", "other", "a")])
    2
    """
    return len({group_key(example) for example in examples})


def check_several_groups(groups: int, key: str) -> None:
    """Raise `InputError`, which names the setting `key`, for a single group, which cannot be cut."""
    if groups < 2:
        hint = "use split: dev" if key == SPLIT_KEY else "leave it unset"
        raise InputError("train is a single group, of which nothing can be held out", key=key, hint=hint)


def part_numbers(examples: Sequence[Example], count: int, seed: int, *, key: str) -> NDArray[np.int64]:
    """Return the part of each example; parts have nearly equal sizes and mixes of labels.

    Groups stay together, as in the task's splits. Raises `InputError`, which names the setting `key`, for one group.
    """
    groups: dict[str, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(group_key(example), []).append(index)
    check_several_groups(len(groups), key)
    parts = min(count, len(groups))
    # Neighbours in this order have the same label and go to different parts.
    order = sorted(groups, key=lambda key: (str(examples[groups[key][0]].label), derive(seed, "fold", key)))
    sizes, numbers = np.zeros(parts, dtype=np.int64), np.zeros(len(examples), dtype=np.int64)
    for key in sorted(order, key=lambda key: -len(groups[key])):  # large groups first: small ones even out the rest
        part = int(sizes.argmin())
        numbers[groups[key]] = part
        sizes[part] += len(groups[key])
    return numbers
