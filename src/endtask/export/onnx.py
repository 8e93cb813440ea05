"""`--to onnx`: the saved model as an ONNX graph, compared with torch on dev."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from endtask.export.base import Facts, FolderExporter, TrainedRun, exporters, write_card
from endtask.export.measure import Measured, check_parity, comparison, comparison_lines, dev_texts, measured
from endtask.export.model_card import CardKind
from endtask.io.run_layout import MODEL_FACTS
from endtask.serving.onnx_model import EXPORT, ONNX_FILES, write_onnx
from endtask.serving.predictor import Predictor

FULL_PRECISION, QUANTIZED = ONNX_FILES
_COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", MODEL_FACTS)

USE = """import numpy as np, onnxruntime
from transformers import AutoTokenizer
folder = "path/to/this/folder"
tokenizer = AutoTokenizer.from_pretrained(folder)
session = onnxruntime.InferenceSession(f"{{folder}}/{file}")
inputs = tokenizer(["some text"], truncation=True, padding=True, return_tensors="np")
(logits,) = session.run(None, {{name: np.asarray(values) for name, values in inputs.items()}})"""


def graph_kind(file: str, *notes: str) -> CardKind:
    """Return what the card of an ONNX folder says."""
    return CardKind("onnx", usage=USE.format(file=file), notes=notes, with_times=True)


def write_graph(run: TrainedRun, folder: Path, file: str = FULL_PRECISION) -> None:
    """Write the graph at full precision, with the files of the tokenizer and the configuration."""
    write_onnx(run.model, folder / file, dev_texts(run)[:1], per_token=run.task.task_type.per_token)
    for name in _COPIED:
        if (run.model / name).exists():
            shutil.copyfile(run.model / name, folder / name)


def predictor_of(run: TrainedRun, folder: Path) -> Predictor:
    """Load a model folder for the task of a run."""
    return Predictor(folder, task_type=run.task.type)


def both_measured(run: TrainedRun, folder: Path, name: str) -> tuple[Measured, Measured]:
    """Return the measurements of the run's own model and of an exported one."""
    return (
        measured(run, predictor_of(run, run.model), "torch"),
        measured(run, predictor_of(run, folder), name),
    )


@exporters.register("onnx")
class Onnx(FolderExporter):
    """An ONNX graph for batches of any size and length; refused where its outputs differ from those of torch."""

    packages: ClassVar[tuple[str, ...]] = EXPORT
    extra = "onnx"

    def write(self, run: TrainedRun, folder: Path) -> Facts:
        write_graph(run, folder)
        torch, exported = both_measured(run, folder, self.name)
        check_parity(torch, exported, run)
        write_card(run, folder, graph_kind(FULL_PRECISION))
        return {"file": FULL_PRECISION, **comparison(run, torch, exported, self.name)}

    def lines(self, facts: Facts) -> Iterator[str]:
        yield from comparison_lines(facts, self.name)
