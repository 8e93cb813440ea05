"""Some of the cells of an evidence, by the names on a command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from endtask.errors import InputError, did_you_mean

Values = TypeVar("Values")


def some_arms(cells: Mapping[str, Values], arms: Collection[str], where: str) -> dict[str, Values]:
    """The cells asked for, in their own order; all of them where none is."""
    if unknown := [arm for arm in arms if arm not in cells]:
        raise InputError(f"{where} has no arm {unknown[0]!r}", hint=did_you_mean(unknown[0], cells))
    return {name: values for name, values in cells.items() if not arms or name in arms}
