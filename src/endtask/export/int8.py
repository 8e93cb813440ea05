"""`--to int8`: the ONNX graph with 8-bit weights, and what this costs in score on dev."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from endtask.export.base import Facts, FolderExporter, TrainedRun, exporters, write_card
from endtask.export.measure import comparison, comparison_lines
from endtask.export.onnx import FULL_PRECISION, QUANTIZED, both_measured, graph_kind, write_graph
from endtask.reporting import format as shown
from endtask.serving.onnx_model import EXPORT, quiet_export


def quantize(source: Path, target: Path) -> None:
    """Write a graph with 8-bit weights, scaled by channel; activations are quantised at run time."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph: Any = onnx.load(str(source))
    # Shapes that the exporter noted; the quantiser infers them anew and fails where the two differ.
    del graph.graph.value_info[:]
    with quiet_export():
        quantize_dynamic(graph, str(target), per_channel=True, weight_type=QuantType.QInt8)


@exporters.register("int8")
class Int8(FolderExporter):
    """Dynamic quantisation by ONNX Runtime: a quarter of the size; the loss of score on dev is measured."""

    packages: ClassVar[tuple[str, ...]] = EXPORT
    extra = "onnx"

    def write(self, run: TrainedRun, folder: Path) -> Facts:
        write_graph(run, folder)
        before = _size_of(folder, FULL_PRECISION)
        quantize(folder / FULL_PRECISION, folder / QUANTIZED)
        for file in folder.glob(f"{FULL_PRECISION}*"):
            file.unlink()
        torch, exported = both_measured(run, folder, self.name)
        facts = {
            "file": QUANTIZED,
            "bytes": {"onnx": before, self.name: _size_of(folder, QUANTIZED)},
            **comparison(run, torch, exported, self.name),
            "score_loss": torch.score - exported.score,
        }
        lost = f"The weights have 8 bits: {facts['metric']} on dev falls by {100 * facts['score_loss']:.1f} points."
        write_card(run, folder, graph_kind(QUANTIZED, lost))
        return facts

    def lines(self, facts: Facts) -> Iterator[str]:
        yield from comparison_lines(facts, self.name)
        before, after = facts["bytes"]["onnx"], facts["bytes"][self.name]
        yield f"{shown.size(after)} instead of {shown.size(before)}"


def _size_of(folder: Path, name: str) -> int:
    """Return the bytes of a graph and of the file that large graphs store their weights in."""
    return sum(file.stat().st_size for file in folder.glob(f"{name}*"))
