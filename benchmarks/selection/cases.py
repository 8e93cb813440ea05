"""The cases: engines, networks, precisions and batches, in the order of importance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from benchmarks.training.cases import LENGTH as LENGTH
from benchmarks.training.cases import SIZES as TRAINING_SIZES
from benchmarks.training.cases import Size

Device = Literal["cuda", "cpu"]
Precision = Literal["float32", "tf32", "bfloat16"]
Row = dict[str, Any]

MATMUL, ENDTASK, ENDTASK_SHORT, AGREEMENT = "matmul", "endtask", "endtask on task text", "agreement"
REFERENCE, PER_EXAMPLE, KRONFLUENCE = "reference", "torch.func", "kronfluence"
ENGINES = (MATMUL, ENDTASK, AGREEMENT, REFERENCE, PER_EXAMPLE, KRONFLUENCE, ENDTASK_SHORT)

PAPER_CANDIDATES = 4
"""The candidates of a mini-batch, B_p, in seven of the paper's eight tasks."""
PAPER_TARGETS = 8
"""The targets of a mini-batch, B_t, for ChemProt."""
SWEEP = (4, 16, 64, 256)

SIZES = {"110m": TRAINING_SIZES["110m"], "tiny": Size(16, 2, 2, 16)}


@dataclass(frozen=True)
class Case:
    """A measurement; `batch` is the number of candidates in a forward pass."""

    engine: str
    network: Literal["lean", "bert"]
    precision: Precision
    batch: int
    device: Device
    size: str
    compiled: bool = False
    pooling: Literal["cls", "mean"] = "cls"
    """The pooling of the task head; the measurement with `mean` in the results file is of a removed strategy."""


def plan(device: Device, size: str) -> list[Case]:
    """Return the cases that the headline statistics need, then the others; the tiny size is for trials."""
    wide = 512 if size == "110m" else 8
    sweep = SWEEP if size == "110m" else (4, 8)
    compiled = device == "cuda"

    def case(engine: str, network: Any, precision: Precision, batch: int, **more: Any) -> Case:
        return Case(engine, network, precision if size == "110m" else "float32", batch, device, size, **more)

    return [
        *([case(MATMUL, "lean", "bfloat16", wide)] if device == "cuda" else []),
        case(ENDTASK, "lean", "bfloat16", wide, compiled=compiled),
        case(ENDTASK, "lean", "bfloat16", wide),
        case(ENDTASK, "bert", "bfloat16", sweep[-1]),
        case(AGREEMENT, "lean", "bfloat16", wide, compiled=compiled),
        *(case(REFERENCE, "bert", precision, PAPER_CANDIDATES) for precision in ("float32", "bfloat16")),
        *(case(REFERENCE, "bert", "bfloat16", batch) for batch in sweep[1:]),
        *(case(REFERENCE, "bert", "tf32", batch) for batch in (sweep[0], sweep[-1])),
        *(case(REFERENCE, "bert", "float32", batch) for batch in sweep[1:]),
        case(REFERENCE, "lean", "float32", PAPER_CANDIDATES),
        *(case(REFERENCE, "lean", "bfloat16", batch) for batch in sweep),
        *(case(PER_EXAMPLE, "lean", "bfloat16", batch) for batch in sweep[1:]),
        *(case(KRONFLUENCE, "bert", "bfloat16", batch) for batch in sweep[-2:]),
        case(ENDTASK_SHORT, "lean", "bfloat16", 2 * wide, compiled=compiled),
    ]


def by_process(cases: Iterable[Case]) -> list[list[Case]]:
    """Group consecutive cases that share a process: those of a peer, or those of endtask, compiled once."""
    shared = (MATMUL, ENDTASK, AGREEMENT)
    return [
        list(group) for _, group in groupby(cases, key=lambda case: ENDTASK if case.engine in shared else case.engine)
    ]
