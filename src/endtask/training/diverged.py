"""What to say about a loss that is no longer finite: the step, the texts of its batch, and the setting to change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import TrainingError, a_few
from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_batches
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training.phase import Phase

_TEXTS_SHOWN = 4


class LossDiverged(Exception):
    """Too many steps in a row had no finite gradient; `step` is the first of them, counted from 1."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def diverged_error(phase: Phase, label: str, step: int, in_a_row: int, rollbacks: int) -> TrainingError:
    """Return the error that ends training."""
    stage = label.split(" ")[0]
    section = f"{stage}." if stage in ("pretrain", "finetune") else ""
    return TrainingError(
        f"{label}: from step {step:,} on the loss was not finite {in_a_row} steps in a row, and again {rollbacks} "
        f"times after going back with half the rate; that step's batch: {batch_in_words(phase, step)}",
        hint=f"lower {section}learning_rate, now {phase.learning_rate:g}, or raise {section}warmup_steps; if the same "
        "batch fails at any rate, look at its texts",
    )


def batch_in_words(phase: Phase, step: int) -> str:
    """Return the texts of a step's batches by objective; `step` counts from 1."""
    names = []
    for scheduled in phase.weighting.schedule(step - 1):
        objective: Any = phase.objectives[scheduled.objective]
        stream = getattr(objective, "stream", None)
        texts = getattr(stream, "texts", None)
        if stream is None or not isinstance(texts, PackedTexts):
            names.append(f"number {scheduled.step:,} of {scheduled.objective}")
            continue
        first = scheduled.step * phase.accumulation
        positions = np.concatenate([stream.positions(first + number) for number in range(phase.batches_in(step - 1))])
        names.append(f"{scheduled.objective}: {_texts_in_words(texts, np.unique(texts.examples[positions]))}")
    return "; ".join(names)


def _texts_in_words(texts: PackedTexts, examples: NDArray[np.int64]) -> str:
    """Return ids of the selection, or the numbers of rows, counted from 1."""
    selection = texts.folder.parent.parent / "select" / SELECTION
    if texts.folder.name == "selection" and selection.is_file():
        mask = np.zeros(int(examples[-1]) + 1, dtype=bool)
        mask[examples] = True
        return f"passages {a_few(_ids(selection, mask), _TEXTS_SHOWN)}"
    return f"rows {a_few([f'{row + 1:,}' for row in examples.tolist()], _TEXTS_SHOWN)} of {texts.folder.name}"


def _ids(selection: Any, mask: NDArray[np.bool_]) -> list[str]:
    import pyarrow.parquet as parquet

    whole = np.zeros(parquet.read_metadata(selection).num_rows, dtype=bool)
    whole[: len(mask)] = mask[: len(whole)]
    return [str(name) for batch in read_batches(selection, whole, columns=["id"]) for name in batch["id"].to_pylist()]
