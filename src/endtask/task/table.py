"""The table of a split, and the names of splits: which split a file, folder or hub split is named after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from endtask.io.rows.base import Row

SPLITS = ("train", "dev", "test")
SPLIT_NAMES: Mapping[str, str] = {
    "train": "train",
    **dict.fromkeys(("dev", "validation", "valid", "val"), "dev"),
    "test": "test",
}
TEST_SET = "test-"
"""Prefix of the names of several test sets."""


@dataclass(frozen=True)
class Table:
    """The rows of one split as in the file, with their row numbers."""

    path: str
    rows: tuple[tuple[int, Row], ...]

    @property
    def columns(self) -> list[str]:
        """All columns that any row has; rows of JSON Lines may leave out columns."""
        return list(dict.fromkeys(name for _, row in self.rows for name in row))


def split_of(name: str) -> str | None:
    """Return the split that a file or hub split is named after, `test-NAME` for one of several test sets.

    >>> [split_of(name) for name in ("train", "valid", "test_matched", "test-new", "extra")]
    ['train', 'dev', 'test-matched', 'test-new', None]
    """
    name = name.lower().replace("_", "-")
    if name.startswith(TEST_SET) and name != TEST_SET:
        return name
    return SPLIT_NAMES.get(name.removesuffix("-matched"))


def split_order(split: str) -> tuple[int, str]:
    """Return a sort key: train, dev, test, then other test sets by name."""
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)
