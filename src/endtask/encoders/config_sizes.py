"""Check the sizes in a checkpoint's configuration before anything is built from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from endtask.config.section import LARGEST
from endtask.errors import InputError
from endtask.io.machine import available_memory

_LARGEST = {**LARGEST, "type_vocab_size": 1 << 16, "embedding_size": 1 << 16}
"""The sizes that are read."""
_LEAST_BYTES = 0.25
"""Per parameter, of the most compressed weights."""
_SLACK_BYTES = 1 << 24


def size_problem(values: Mapping[str, Any], weights: Iterable[Path] = ()) -> str | None:
    """Return what is wrong with the sizes in a configuration, also compared with the size of its weights, or None.

    >>> size_problem({"hidden_size": 64, "num_attention_heads": 0})
    'num_attention_heads is 0, not a whole number from 1 to 1,024'
    """
    for name, largest in _LARGEST.items():
        value = values.get(name)
        if value is None and (name not in values or name == "embedding_size"):
            continue
        least = 0 if name == "type_vocab_size" else 1
        if type(value) is not int or not least <= value <= largest:
            return f"{name} is {value!r:.60}, not a whole number from {least} to {largest:,}"
    stored = sum(file.stat().st_size for file in weights)
    parameters = _least_parameters(values)
    if stored and parameters * _LEAST_BYTES > stored + _SLACK_BYTES:
        return f"its sizes need {parameters / 1e6:,.0f} million parameters, its weights have {stored / 1e6:,.1f} MB"
    return None


def check_memory(values: Mapping[str, Any]) -> None:
    """Raise `InputError` for sizes whose weights alone are more than the memory of this machine."""
    needed, memory = 4 * _least_parameters(values), available_memory()
    if needed > memory:
        raise InputError(
            f"an encoder of these sizes has {needed / 1e9:,.0f} GB of weights; this machine has {memory / 1e9:,.0f} GB "
            "of memory left",
            key="model",
            hint="choose a smaller model.size, hidden_size, num_hidden_layers or tokenizer.vocab_size",
        )


def _least_parameters(values: Mapping[str, Any]) -> int:
    """Return how many parameters an encoder of these sizes has at least: word vectors and weights of its layers."""
    hidden = values.get("hidden_size", 0)
    vectors = values.get("vocab_size", 0) * (values.get("embedding_size") or hidden)
    layers = 1 if "num_hidden_groups" in values else values.get("num_hidden_layers", 0)  # ALBERT's share weights
    return int(vectors + layers * (4 * hidden**2 + 2 * hidden * values.get("intermediate_size", 0)))
