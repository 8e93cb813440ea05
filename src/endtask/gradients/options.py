"""How the gradients of targets may be kept, and so how products with them are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from endtask.errors import InputError, did_you_mean
from endtask.gradients.projection import Projection

Way = Literal["pairs", "matrix", "bilinear", "low_rank", "projected"]
"""Targets as rows; as matrices, with the candidate as a matrix too or as rows; as few rows; as random projections."""
WAYS: tuple[Way, ...] = get_args(Way)


@dataclass(frozen=True)
class Options:
    """By default each block takes the cheapest of the exact ways.

    `way` forces one. With a `rank` or a `projection` that approximate way competes too. `memory` is the most that all
    targets may take, in bytes, each block having the same share (None: no limit); where no way keeps to it, the
    smallest is taken.
    `dtype` is that of kept rows, bfloat16 halving them; by default it is as they come.
    `tensor_float` lets a GPU round the factors of float32 products to 10 bits, which makes them several times as fast.

    >>> Options(rank=2).ways
    ('pairs', 'matrix', 'bilinear', 'low_rank')
    """

    way: Way | Literal["auto"] = "auto"
    rank: int | None = None
    projection: Projection | None = None
    memory: int | None = 4 << 30
    dtype: torch.dtype | None = None
    tensor_float: bool = False

    def __post_init__(self) -> None:
        if self.way not in ("auto", *WAYS):
            raise InputError(f"there is no way {self.way!r}", key="way", hint=did_you_mean(self.way, ["auto", *WAYS]))
        size = None if self.projection is None else self.projection.size
        for way, key, value in (("low_rank", "rank", self.rank), ("projected", "projection", size)):
            if self.way == way and value is None:
                raise InputError(f"the way {way} needs it", key=key)
            if value is not None and value < 1:
                raise InputError(f"{value} is less than 1", key=key)

    @property
    def ways(self) -> tuple[Way, ...]:
        """Those that compete."""
        if self.way != "auto":
            return (self.way,)
        closed = {"low_rank": self.rank is None, "projected": self.projection is None}
        return tuple(way for way in WAYS if not closed.get(way))
