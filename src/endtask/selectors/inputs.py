"""What a selector may read, and what it must answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import SelectSettings, Settings
from endtask.corpus import Corpus
from endtask.io.stage_folder import StageFolder
from endtask.records import Example
from endtask.task import Task

Order = NDArray[np.int64]
"""Places of candidates, best first."""


@dataclass(frozen=True)
class Inputs:
    """Everything a selector may look at.

    `retrieved` is the folder of the retrieve stage; `corpus_bytes` the size of all texts in the corpus, 0 without one;
    `labels` the task's classes; `is_contaminated` tells whether a text holds a dev or test text, None where nobody asks;
    `examples` are the train rows; `folder` is where the stage writes and large scratch files may lie; `device` is where
    a model computes vectors. A selector that trains a model reads more: the `task`, all settings of the `run`, and the
    `stage`, whose plan keeps decisions for a resumed run.
    """

    settings: SelectSettings
    retrieved: Path
    corpus: Corpus | None = None
    corpus_bytes: int = 0
    labels: tuple[str, ...] = ()
    seed: int = 0
    is_contaminated: Callable[[str], bool] | None = None
    examples: Sequence[Example] = ()
    folder: Path | None = None
    device: str = "auto"
    task: Task | None = None
    run: Settings | None = None
    stage: StageFolder | None = None


@dataclass(frozen=True)
class Kept:
    """What a selector kept: passages, bytes of text, and further counts for the manifest."""

    passages: int
    bytes: int
    counts: dict[str, Any]


Selector = Callable[[Inputs, Path], Kept]
"""Writes the selection to a path, the passages in the order of the corpus."""
