"""Saved models in ONNX: export, and prediction by ONNX Runtime through the interface of a torch model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from endtask.errors import InputError
from endtask.io.extras import require

if TYPE_CHECKING:
    import torch

ONNX_FILES = ("model.onnx", "model_quantized.onnx")
"""Names that Hugging Face's Optimum gives to the files: full precision, 8 bits."""
RUNTIME, EXPORT = ("onnxruntime",), ("onnx", "onnxscript", "onnxruntime")
"""The packages that prediction and export need; the extra `onnx` installs all."""
_LARGEST_FILE = 1_500_000_000
"""Bytes of weights above which the graph stores them in a second file: the format ends at 2 GB."""


def is_onnx(folder: Path) -> bool:
    """Return whether a model folder has an ONNX graph and no weights of torch."""
    return _graph_of(folder) is not None and not (folder / "model.safetensors").exists()


def _graph_of(folder: Path) -> Path | None:
    return next((folder / name for name in ONNX_FILES if (folder / name).exists()), None)


class OnnxModel:
    """The ONNX graph of a model folder; called like a model of transformers, it returns `logits`."""

    def __init__(self, folder: Path, config: Any) -> None:
        require(*RUNTIME, extra="onnx", purpose="a model in ONNX")
        path = _graph_of(folder)
        assert path is not None
        self.config, self._session = config, open_session(path)

    def to(self, device: torch.device) -> OnnxModel:
        """Return the model itself: it runs on the CPU."""
        return self

    def __call__(self, **inputs: torch.Tensor) -> SimpleNamespace:
        """Return the logits of padded token ids."""
        import torch

        (logits,) = self._session.run(None, {name: values.numpy() for name, values in inputs.items()})
        return SimpleNamespace(logits=torch.from_numpy(logits))


def open_session(path: Path) -> Any:
    """Open an ONNX graph on the CPU, with as many threads as torch has."""
    import torch

    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's errors have no common class
        raise InputError(f"cannot be loaded: {str(error).splitlines()[0]}", path=path) from None


def model_class(config: Any, *, per_token: bool) -> Any:
    """Return the class that loads a saved classifier of texts or of tokens."""
    from transformers import AutoModelForTokenClassification

    from endtask.encoders.saved_model import classifier_class

    return AutoModelForTokenClassification if per_token else classifier_class(config)


def load_model(model: Path, *, per_token: bool) -> tuple[Any, Any]:
    """Return the tokenizer and the torch model of a model folder."""
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    config = AutoConfig.from_pretrained(str(model), local_files_only=True)
    network = model_class(config, per_token=per_token).from_pretrained(str(model), local_files_only=True)
    return tokenizer, network.eval()


def write_onnx(model: Path, path: Path, texts: Sequence[Any], *, per_token: bool) -> None:
    """Export a model folder to an ONNX file that takes batches of any size and length; `texts` are traced."""
    import torch

    tokenizer, network = load_model(model, per_token=per_token)
    example = dict(_tokens(tokenizer, texts))
    batch = torch.export.Dim("batch", min=1, max=1 << 16)
    tokens = torch.export.Dim("tokens", min=2, max=min(int(tokenizer.model_max_length), 1 << 20))
    if network.config.model_type == "endtask":
        raise InputError("an encoder without a class in transformers cannot be exported to ONNX", path=model)
    with quiet_export():
        torch.onnx.export(
            network,
            kwargs=example,
            f=str(path),
            dynamo=True,
            dynamic_shapes={name: {0: batch, 1: tokens} for name in example},
            input_names=list(example),
            output_names=["logits"],
            external_data=_bytes_of(network) > _LARGEST_FILE,
            verbose=False,
        )


def _bytes_of(network: Any) -> int:
    return sum(weight.numel() * weight.element_size() for weight in network.parameters())


def _tokens(tokenizer: Any, texts: Sequence[Any]) -> Any:
    """Return the padded token ids of every text twice: the exporter would take a batch of one text for a constant."""
    joined = [" ".join(text) if isinstance(text, list) else text for text in texts]
    first = [text if isinstance(text, str) else text[0] for text in joined]
    second = [text[1] for text in joined if not isinstance(text, str)]
    return tokenizer(2 * first, 2 * second or None, truncation=True, padding=True, return_tensors="pt")


@contextmanager
def quiet_export() -> Iterator[None]:
    """Suppress the exporter's warnings and log lines about its internals."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
