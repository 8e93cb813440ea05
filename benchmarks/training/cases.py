"""The cases: engines, sizes and texts, in the order of importance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

Device = Literal["cuda", "cpu"]
Text = Literal["full", "task"]
Precision = Literal["float32", "bfloat16"]
Row = dict[str, Any]

LENGTH = 128
"""Tokens in a row of full sequences; no task text is longer."""

VOCABULARY, SMALL_VOCABULARY = 30_522, 8_000
GPU_WORKERS, CPU_WORKERS = 8, (0, 2)
CPU_ROWS = 32
CPU_THREADS = 2
MATMUL, ENDTASK, TRAINER, COMPILED, REFERENCE = "matmul", "endtask", "trainer", "compiled trainer", "reference"


@dataclass(frozen=True)
class Size:
    """An encoder's shape, the same for all engines except the width inside the feed-forward blocks.

    BERT's blocks are four times as wide as a token's vector. Those of `lean` are gated, with three matrices instead of
    two; with `gated_width` they have as many weights as BERT's or slightly more.
    """

    hidden: int
    layers: int
    heads: int
    gated_width: int
    steps_factor: int = 1
    """Steps of small models are short, so more of them are timed."""

    def dimensions(self, *, gated: bool) -> dict[str, Any]:
        """Return the sizes as Hugging Face's configurations and `ModelSettings` name them."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.gated_width if gated else 4 * self.hidden,
        }


SIZES = {
    "110m": Size(768, 12, 12, 2048),
    "42m": Size(512, 8, 8, 1408, steps_factor=2),
    "23m": Size(384, 6, 6, 1024, steps_factor=4),
    "128x2": Size(128, 2, 2, 384),
    "mini": Size(256, 4, 4, 768),
}


@dataclass(frozen=True)
class Case:
    """A measurement; its batches have about `rows` x 128 real tokens of either text."""

    engine: str
    size: str
    text: Text
    rows: int
    device: Device
    workers: int = 0
    vocabulary: int = VOCABULARY
    repeat: int = 1
    precision: Precision = "float32"


def gpu_plan(rows: int) -> list[Case]:
    """Return the cases of a GPU."""
    needed: list[tuple[str, str, Text]] = [
        (MATMUL, "110m", "full"),
        (ENDTASK, "110m", "full"),
        (ENDTASK, "110m", "task"),
        (ENDTASK, "42m", "full"),
        (ENDTASK, "23m", "full"),
        (TRAINER, "110m", "full"),
        (TRAINER, "110m", "task"),
        (TRAINER, "42m", "full"),
        (TRAINER, "23m", "full"),
        (COMPILED, "110m", "full"),
        (COMPILED, "110m", "task"),
        (REFERENCE, "110m", "full"),
        (REFERENCE, "110m", "task"),
    ]
    workers = {MATMUL: 0, ENDTASK: 0}
    return [
        Case(engine, size, text, rows, "cuda", workers.get(engine, GPU_WORKERS), precision="bfloat16")
        for engine, size, text in needed
    ]


def cpu_plan(rows: int, *, amx: bool) -> list[Case]:
    """Return the cases of a CPU: two small sizes on both texts, the Trainer with and without workers.

    `mini` has the shape of endtask-mini, with AMX in bfloat16 too; the smallest size is measured on the small vocabulary
    too.
    """
    kinds: list[tuple[str, int, Text, Precision]] = [
        ("mini", VOCABULARY, "full", "float32"),
        ("mini", VOCABULARY, "task", "float32"),
        ("mini", VOCABULARY, "full", "bfloat16"),
        ("mini", VOCABULARY, "task", "bfloat16"),
        ("128x2", VOCABULARY, "full", "float32"),
        ("128x2", SMALL_VOCABULARY, "full", "float32"),
        ("128x2", VOCABULARY, "task", "float32"),
    ]
    engines = [(ENDTASK, 0), *((TRAINER, workers) for workers in CPU_WORKERS)]
    return [
        Case(engine, size, text, rows, "cpu", workers, vocabulary, precision=precision)
        for size, vocabulary, text, precision in kinds
        if amx or precision == "float32"
        for engine, workers in engines
    ]


def by_engine(cases: Iterable[Case]) -> list[list[Case]]:
    """Group consecutive cases of one engine, which share a process."""
    return [list(group) for _, group in groupby(cases, key=lambda case: case.engine)]
