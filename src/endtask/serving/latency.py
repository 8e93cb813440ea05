"""Measure the latency of a saved model for one text on the CPU, with torch and with ONNX Runtime."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.machine import describe_machine
from endtask.io.parsing import parse_json
from endtask.io.run_layout import LATENCY
from endtask.progress import bar, say
from endtask.serving.linear_model import is_linear
from endtask.serving.onnx_model import load_model, open_session, write_onnx
from endtask.serving.predictor import Text, load

MOST_TEXTS = 300
_WARM_UP = 10
_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def write_latency(run: Path) -> dict[str, Any]:
    """Measure the model of a finished run on its dev texts and store the result in the run's folder."""
    statistics = measure_latency(run, _dev_texts(run))
    write_json(run / LATENCY, statistics)
    return statistics


def measure_latency(folder: Path, texts: Sequence[Text]) -> dict[str, Any]:
    """Return milliseconds for one text at a time (median, 99th percentile, mean), with torch and with ONNX Runtime.

    `folder` is a run or a model. The time includes tokenization.
    """
    import torch

    predictor = load(folder)
    sample = list(texts)[:MOST_TEXTS]
    model = folder / "model" if (folder / "model").is_dir() else folder
    if is_linear(model):
        raise InputError("a linear model over words, whose latency is not measured", path=model)
    return {
        "texts": len(sample),
        "threads": torch.get_num_threads(),
        "machine": describe_machine(),
        "torch": time_calls(lambda text: predictor.predict([text]), sample, "time torch"),
        "onnx": _onnx(model, sample, predictor.task_type.per_token),
    }


def latency_line(statistics: dict[str, Any]) -> str:
    """Return the latency as a line for the terminal.

    >>> latency_line({"torch": {"p50_ms": 4.21, "p99_ms": 9.0}, "onnx": {"p50_ms": 1.0, "p99_ms": 2.06}})
    'one text on the CPU: median 4.2 ms, 99th percentile 9.0 ms (torch); 1.0 ms and 2.1 ms (ONNX Runtime)'
    """
    torch, onnx = statistics["torch"], statistics["onnx"]
    line = f"one text on the CPU: median {torch['p50_ms']:.1f} ms, 99th percentile {torch['p99_ms']:.1f} ms (torch)"
    if "missing" in onnx:
        return f"{line}; ONNX Runtime not measured: {onnx['missing']}"
    return f"{line}; {onnx['p50_ms']:.1f} ms and {onnx['p99_ms']:.1f} ms (ONNX Runtime)"


def time_calls(predict: Callable[[Text], object], texts: Sequence[Text], name: str = "time") -> dict[str, float]:
    """Return the median, 99th percentile and mean of the milliseconds that a call takes, after a warm-up.

    >>> sorted(time_calls(lambda text: None, ["a", "b"]))
    ['mean_ms', 'p50_ms', 'p99_ms']
    """
    for text in texts[:_WARM_UP]:
        predict(text)
    spent = []
    with bar(name, len(texts)) as advance:
        for text in texts:
            start = time.perf_counter()
            predict(text)
            spent.append(1000 * (time.perf_counter() - start))
            advance()
    middle, slow = np.quantile(spent, [0.5, 0.99])
    statistics = {"p50_ms": middle, "p99_ms": slow, "mean_ms": np.mean(spent)}
    return {name: round(float(value), 4) for name, value in statistics.items()}


def _onnx(model: Path, texts: Sequence[Text], per_token: bool) -> dict[str, Any]:
    """Measure ONNX Runtime, or return the reason why it cannot be measured."""
    absent = [name for name in _ONNX_PACKAGES if find_spec(name) is None]
    if absent:
        return {"missing": f"{', '.join(absent)} not installed"}
    with tempfile.TemporaryDirectory() as scratch:
        say("export to ONNX")
        path = Path(scratch) / "model.onnx"
        write_onnx(model, path, texts[:1], per_token=per_token)
        return time_calls(_session(model, path, texts[0], per_token), texts, "time ONNX Runtime")


def _session(model: Path, path: Path, text: Text, per_token: bool) -> Callable[[Text], object]:
    """Return the prediction function of an exported model. Raise `InputError` if its outputs differ from torch's."""
    import torch

    tokenizer, network = load_model(model, per_token=per_token)
    session = open_session(path)

    def inputs(text: Text, tensors: str) -> dict[str, Any]:
        pair = (text,) if isinstance(text, str) else text
        return dict(tokenizer(*pair, truncation=True, return_tensors=tensors))

    def predict(text: Text) -> Any:
        return session.run(None, inputs(text, "np"))[0]

    with torch.inference_mode():
        expected = network(**inputs(text, "pt")).logits.numpy()
    if not np.allclose(predict(text), expected, atol=1e-3):
        raise InputError("the outputs of the exported ONNX model differ from those of the model", path=model)
    return predict


def _dev_texts(run: Path) -> list[Text]:
    path = run / "read" / "dev.jsonl"
    if not path.exists():
        raise InputError("no trained model here", path=run, hint=f"finish the run first: endtask run {run}")
    rows = [parse_json(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [(row["text"], row["text_pair"]) if "text_pair" in row else row["text"] for row in rows]
