"""The contract of a row format: its suffixes, and how it yields the rows of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from endtask.io.input_files import InputFile, ReadOptions
from endtask.registry import row_formats

__all__ = ["NumberedRows", "Row", "RowFormat", "row_formats"]

Row = dict[str, Any]
NumberedRows = Iterator[tuple[int, Row]]
"""(row number, row) in the order of the file: the line that an editor shows, or the number of the record."""


class RowFormat(ABC):
    """Base class of all row formats. Objects have no state."""

    name: ClassVar[str]
    """Set by the registry."""
    suffixes: ClassVar[tuple[str, ...]]
    """In lower case, without compression."""
    has_text: ClassVar[bool] = True
    """Whether a corpus can be made of such files; labelled words alone are none."""
    precedence: ClassVar[int] = 1
    """Of several files of a folder that are named after one split, those of the lowest number count."""

    def recognizes(self, path: InputFile) -> bool:
        """Return whether the content of a file with one of the suffixes is of this format."""
        return True

    @abstractmethod
    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the numbered rows of a file; calls `options.on_error` for rows that cannot be read."""
