"""What is measured: one way to weigh three objectives, on one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from endtask.weighting.meta import MetaConfig

Device = Literal["cuda", "cpu"]
Row = dict[str, Any]

LENGTH = 128
VOCABULARY = 30_522
CLASSES = 6
OBJECTIVES = ("task", "tapt", "dapt")
"""The end task, and masked LM on two kinds of text."""

EQUAL, META, DEFAULT, PAPER, AUTHORS = "equal", "meta", "meta default", "meta paper", "authors' way"
RULES: dict[str, MetaConfig | None] = {
    EQUAL: None,
    META: MetaConfig(every=1),
    DEFAULT: MetaConfig(),
    PAPER: MetaConfig(every=1, head="adamw", parameters="all", floor=0.0),
}
"""Ours; None: equal weights."""


@dataclass(frozen=True)
class Case:
    """One measurement: batches of `rows` texts of 128 tokens for each objective, `held_out` texts twice for META."""

    engine: str
    size: str
    rows: int
    held_out: int
    device: Device
    repeat: int = 1
    vocabulary: int = VOCABULARY


def plan(engines: list[str], size: str, rows: int, held_out: int, device: Device, repeats: int) -> list[Case]:
    """Engines in turn, so that a machine that warms up slows all of them; the slow authors' way once."""
    return [
        Case(engine, size, rows, held_out, device, repeat)
        for repeat in range(1, repeats + 1)
        for engine in engines
        if engine != AUTHORS or repeat == 1
    ]
