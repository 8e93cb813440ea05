"""What is measured: which engine trains which size on which text, in the order of importance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

Device = Literal["cuda", "cpu"]
Text = Literal["full", "task"]
Row = dict[str, Any]

LENGTH = 128
"""Tokens in a row of full sequences; no task text is longer."""

VOCABULARY, SMALL_VOCABULARY = 30_522, 8_000
GPU_WORKERS, CPU_WORKERS = 8, (0, 2)
CPU_ROWS = 32
CPU_THREADS = 2
MATMUL, OURS, TRAINER, COMPILED, REFERENCE = "matmul", "endtask", "trainer", "compiled trainer", "reference"


@dataclass(frozen=True)
class Size:
    """An encoder's shape, the same for all engines but for the width inside the feed-forward blocks.

    BERT's are four times as wide as a token's vector. Ours are gated, with three matrices instead of two, and so wide
    that they hold as many weights as BERT's or a few more.
    """

    hidden: int
    layers: int
    heads: int
    gated_width: int
    steps_factor: int = 1
    """Steps of small models are short; so many times as many are timed."""


SIZES = {
    "110m": Size(768, 12, 12, 2048),
    "42m": Size(512, 8, 8, 1408, steps_factor=2),
    "23m": Size(384, 6, 6, 1024, steps_factor=4),
    "128x2": Size(128, 2, 2, 384),
}


@dataclass(frozen=True)
class Case:
    """One measurement; its batches hold about `rows` x 128 real tokens, whatever the text."""

    engine: str
    size: str
    text: Text
    rows: int
    device: Device
    workers: int = 0
    vocabulary: int = VOCABULARY
    repeat: int = 1


def gpu_plan(rows: int) -> list[Case]:
    """Everything the headline figures of a GPU need, then what is good to know."""
    needed: list[tuple[str, str, Text]] = [
        (MATMUL, "110m", "full"),
        (OURS, "110m", "full"),
        (OURS, "110m", "task"),
        (OURS, "42m", "full"),
        (OURS, "23m", "full"),
        (TRAINER, "110m", "full"),
        (TRAINER, "110m", "task"),
        (TRAINER, "42m", "full"),
        (TRAINER, "23m", "full"),
        (COMPILED, "110m", "full"),
        (COMPILED, "110m", "task"),
        (REFERENCE, "110m", "full"),
        (REFERENCE, "110m", "task"),
    ]
    workers = {MATMUL: 0, OURS: 0}
    return [Case(engine, size, text, rows, "cuda", workers.get(engine, GPU_WORKERS)) for engine, size, text in needed]


def cpu_plan(rows: int) -> list[Case]:
    """The smallest size on both vocabularies and both kinds of text; the Trainer with and without worker processes."""
    kinds: list[tuple[int, Text]] = [(VOCABULARY, "full"), (SMALL_VOCABULARY, "full"), (VOCABULARY, "task")]
    engines = [(OURS, 0), *((TRAINER, workers) for workers in CPU_WORKERS)]
    return [
        Case(engine, "128x2", text, rows, "cpu", workers, vocabulary)
        for vocabulary, text in kinds
        for engine, workers in engines
    ]


def by_engine(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases of one engine that follow each other, which share a process."""
    return [list(group) for _, group in groupby(cases, key=lambda case: case.engine)]
