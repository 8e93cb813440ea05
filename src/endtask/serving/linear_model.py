"""A stored linear model over words, predicted with through the interface of a tokenizer and a torch model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from endtask.errors import InputError
from endtask.evaluation.linear_text import LinearTextModel
from endtask.io.atomic import write_json
from endtask.io.parsing import read_json

if TYPE_CHECKING:
    import torch

LINEAR = "endtask_linear_text"
"""The model type in config.json."""
_TERMS, _WEIGHTS = "terms.json", "model.safetensors"
_ARRAYS = ("idf", "coefficients", "intercepts")


def is_linear(folder: Path) -> bool:
    """Return whether a model folder holds a linear model over words."""
    config = folder / "config.json"
    values = read_json(config) if config.exists() else None
    return isinstance(values, dict) and values.get("model_type") == LINEAR


def save_linear(model: LinearTextModel, labels: Sequence[str], problem_type: str, folder: Path) -> None:
    """Write configuration, terms and weights."""
    from safetensors.numpy import save_file

    names = {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
    write_json(folder / "config.json", {"model_type": LINEAR, "problem_type": problem_type, **names})
    write_json(folder / _TERMS, list(model.terms))
    save_file({name: getattr(model, name) for name in _ARRAYS}, folder / _WEIGHTS)
    (folder / _WEIGHTS).chmod(0o644)  # the library makes it readable for its owner alone


def load_linear(folder: Path) -> LinearModel:
    """Return the model in a folder. Raise `InputError` where its files do not fit together."""
    from safetensors.numpy import load_file

    config, terms = read_json(folder / "config.json"), read_json(folder / _TERMS)
    arrays = load_file(folder / _WEIGHTS)
    labels = {int(number): str(label) for number, label in config["id2label"].items()}
    shapes = [arrays[name].shape for name in _ARRAYS]
    if shapes != [(len(terms),), (len(terms), len(labels)), (len(labels),)]:
        raise InputError("its terms, labels and weights do not fit together", path=folder)
    model = LinearTextModel(tuple(map(str, terms)), *(arrays[name] for name in _ARRAYS))
    facts = SimpleNamespace(id2label=labels, problem_type=config.get("problem_type"), architectures=None)
    return LinearModel(model, facts)


class Texts:
    """Takes the place of a tokenizer: keeps texts as they are, both of a pair joined."""

    model_max_length = 1 << 30

    def __call__(self, first: Sequence[str], second: Sequence[str] | None = None, **options: Any) -> dict[str, Any]:
        """Return the texts under the name that the model takes."""
        return {"texts": Batch(map(" ".join, zip(first, second, strict=True))) if second else Batch(first)}


class Batch(list[str]):
    """Texts that take the place of a tensor."""

    def to(self, device: torch.device) -> Batch:
        """Return the texts themselves."""
        return self


class LinearModel:
    """Called like a model of transformers, it returns `logits`."""

    def __init__(self, model: LinearTextModel, config: Any) -> None:
        self.config, self._model = config, model

    def to(self, device: torch.device) -> LinearModel:
        """Return the model itself: it runs on the CPU."""
        return self

    def __call__(self, texts: Sequence[str]) -> SimpleNamespace:
        """Return the outputs for texts."""
        import torch

        return SimpleNamespace(logits=torch.from_numpy(self._model.outputs(texts)))
