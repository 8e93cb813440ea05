"""Lists of different lengths in two flat arrays on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from endtask.io.atomic import whole_file


class Ragged:
    """One array per text, read by position; `of` is the row that belongs to a text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [np.array([1, 2]), np.array([], dtype=int), np.array([3])]
    ...     kept = Ragged.write(Path(folder), "numbers", rows, np.int32)
    ...     [kept[position].tolist() for position in range(3)]
    [[1, 2], [], [3]]
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
        self.offsets: NDArray[np.int64] = np.load(folder / f"{name}-offsets.npy")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, position: int) -> NDArray[Any]:
        return np.asarray(self.values[self.offsets[position] : self.offsets[position + 1]])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each text."""
        return np.diff(self.offsets)

    @classmethod
    def write(
        cls, folder: Path, name: str, rows: list[NDArray[Any]], dtype: DTypeLike, columns: int | None = None
    ) -> Ragged:
        """Write one array per text, of `columns` columns each if there are several."""
        empty = np.zeros((0,) if columns is None else (0, columns), dtype=dtype)
        save_array(folder / f"{name}.npy", np.concatenate([empty, *rows]).astype(dtype))
        save_array(folder / f"{name}-offsets.npy", np.cumsum([0, *map(len, rows)], dtype=np.int64))
        return cls(folder, name)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array, whole or not at all."""
    with whole_file(path) as aside, open(aside, "wb") as file:
        np.save(file, array)
