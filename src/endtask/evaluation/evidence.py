"""What people look at after a score: rows with predictions and nearest train rows, calibration, and a map of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.encoders.weights import load_weights
from endtask.evaluation.calibration import calibration_of_seeds
from endtask.evaluation.outputs import Answered
from endtask.evaluation.prediction_table import SplitPredictions, write_prediction_table
from endtask.evaluation.task_metrics import Measure
from endtask.evaluation.vectors import TrainVectors, Vectors, plane, text_vectors
from endtask.io.atomic import atomic_file, write_json
from endtask.io.run_layout import CALIBRATION, PREDICTION_TABLE, TEXT_MAP
from endtask.task import Task
from endtask.task.targets import targets
from endtask.tokenization.packed_texts import PackedTexts, write_packed

MAP_ROWS, MAP_PASSAGES = 400, 400
"""Rows of the scored split and selected passages on the map, evenly spread over them."""
_FEWEST_ON_MAP = 3
_CHARACTERS, _TOKENS = 160, 48


@dataclass(frozen=True)
class Evaluated:
    """An evaluated model: its network, the weights of every seed, and their answers for dev and the scored split."""

    task: Task
    packed: Path
    network: Network
    weights: Mapping[int, Path]
    settings: Settings
    context: DeviceContext
    dev: Mapping[int, Answered]
    final: Mapping[int, Answered]
    split: str
    measure: Measure

    @property
    def saved_seed(self) -> int:
        """The seed with the best score on dev, whose model is saved; the first of equals."""
        truth = targets(self.task, "dev")
        return max(self.dev, key=lambda seed: self.measure.score(truth, self.dev[seed].answers))


def write_evidence(run: Evaluated, folder: Path) -> None:
    """Write the rows of dev and of the scored split, the calibration, and the map of texts."""
    calibration = calibration_of_seeds(run.task, run.split, _outputs(run.dev), _outputs(run.final))
    if calibration is not None:
        write_json(folder / CALIBRATION, calibration)
    load_weights(run.weights[run.saved_seed], run.network)
    vectors = {name: _vectors(run, run.packed / name) for name in ("train", *dict.fromkeys(("dev", run.split)))}
    splits = [split_predictions(run.dev, "dev", vectors["dev"])]
    if run.split != "dev":
        splits.append(split_predictions(run.final, run.split, vectors[run.split]))
    train = TrainVectors.of(vectors["train"])
    write_prediction_table(folder / PREDICTION_TABLE, run.task, splits, run.measure.name, train)
    _write_map(run, vectors[run.split], folder / TEXT_MAP)


def split_predictions(answered: Mapping[int, Answered], split: str, vectors: Vectors | None = None) -> SplitPredictions:
    """Return the predictions of a split; the threshold of labels is the mean of the seeds' thresholds."""
    answers = {seed: one.answers for seed, one in answered.items()}
    threshold = float(np.mean([one.threshold for one in answered.values()]))
    return SplitPredictions(split, answers, _outputs(answered), threshold, vectors)


def _outputs(answered: Mapping[int, Answered]) -> dict[int, NDArray[np.float32]]:
    return {seed: one.outputs for seed, one in answered.items()}


def _vectors(run: Evaluated, texts: Path) -> Vectors:
    return text_vectors(run.network, PackedTexts(texts), run.context)


def _write_map(run: Evaluated, vectors: Vectors, path: Path) -> None:
    """Write the coordinates of some rows and of some selected passages on their principal components.

    Passages come from the packed selection, which a bundle has too; a long one is there in several segments.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    rows = spread_over(len(vectors), MAP_ROWS)
    passages, passage_vectors = _passages(run)
    if len(rows) + len(passages) < _FEWEST_ON_MAP:
        return
    coordinates, explained = plane(np.concatenate([vectors[rows], *passage_vectors]))
    examples = [run.task.splits[run.split][row] for row in rows]
    columns: dict[str, Any] = {
        "kind": [run.split] * len(rows) + ["passage"] * len(passages),
        "id": [example.id for example in examples] + [None] * len(passages),
        "text": [example.text[:_CHARACTERS] for example in examples] + passages,
        "x": coordinates[:, 0],
        "y": coordinates[:, 1],
    }
    table = arrow.table(columns).replace_schema_metadata({"explained_variance": f"{explained:.4f}"})
    with atomic_file(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def _passages(run: Evaluated) -> tuple[list[str], list[Vectors]]:
    """Return the beginnings of some segments of the selection, evenly spread over it, and their vectors."""
    from endtask.tokenization.tokenizer import load_tokenizer

    if not (run.packed / "selection").exists():
        return [], []
    packed = PackedTexts(run.packed / "selection")
    indices = spread_over(len(packed), MAP_PASSAGES)
    if not indices:
        return [], []
    tokens = [packed[index] for index in indices]
    tokenizer = load_tokenizer(run.packed / "tokenizer")
    texts = tokenizer.batch_decode([ids[:_TOKENS] for ids in tokens], skip_special_tokens=True)
    with TemporaryDirectory() as scratch:
        sample = write_packed(((ids.tolist(), len(ids)) for ids in tokens), len(tokenizer), Path(scratch))
        return [text[:_CHARACTERS] for text in texts], [text_vectors(run.network, sample, run.context)]


def spread_over(count: int, most: int) -> list[int]:
    """Return at most `most` indices below `count`, evenly spread.

    >>> spread_over(10, 4), spread_over(2, 4)
    ([0, 2, 5, 7], [0, 1])
    """
    return [index * count // most for index in range(most)] if count > most else list(range(count))
