"""The ceiling: how fast this device multiplies matrices in bfloat16, at the best of several shapes."""

from __future__ import annotations

from statistics import median

import torch

from benchmarks.training.cases import LENGTH, SIZES, Case, Row
from benchmarks.training.inputs import MASKED_SHARE, Bench

_SQUARE = 8192
_REPEATS = 11
_LAUNCHES = 10


def matmul(case: Case, bench: Bench) -> Row:
    """TFLOP/s of a large square product and of the products in our model, each the median of several on random data."""
    device = torch.device(case.device)
    rates = {
        f"{rows}x{inner}x{columns}": round(median(_rates(rows, inner, columns, device)), 1)
        for rows, inner, columns in shapes(case)
    }
    return {"tflops": rates, "best_tflops": max(rates.values())}


def shapes(case: Case) -> list[tuple[int, int, int]]:
    """Rows, inner size and columns of the products to try."""
    size, tokens = SIZES[case.size], case.rows * LENGTH
    return [
        (_SQUARE, _SQUARE, _SQUARE),
        (tokens, size.hidden, 3 * size.hidden),
        (tokens, size.hidden, size.hidden),
        (tokens, size.hidden, 2 * size.gated_width),
        (tokens, size.gated_width, size.hidden),
        (round(tokens * MASKED_SHARE), size.hidden, case.vocabulary),
    ]


def _rates(rows: int, inner: int, columns: int, device: torch.device) -> list[float]:
    """TFLOP/s of each repetition; several launches in one keep the gaps between them small."""
    left = torch.randn(rows, inner, device=device, dtype=torch.bfloat16)
    right = torch.randn(inner, columns, device=device, dtype=torch.bfloat16)
    operations = 2.0 * rows * inner * columns * _LAUNCHES
    milliseconds = []
    for _ in range(_REPEATS + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(_LAUNCHES):
            left @ right
        end.record()
        end.synchronize()
        milliseconds.append(start.elapsed_time(end))
    return [operations / taken / 1e9 for taken in milliseconds[1:]]  # the first warms up
