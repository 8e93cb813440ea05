"""What a run starts from where its settings do not say: a preset by the machine, endtask-mini or random weights.

`model: auto`, which the preset `laptop` has, is the checkpoint that endtask ships on a CPU and for short budgets, and
random weights on a GPU with minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endtask.config.budget import Budget
from endtask.config.model import AUTO
from endtask.config.root import Settings
from endtask.io.installed_package import package_model
from endtask.io.machine import gpu_names

MINI = "package:endtask-mini"
"""The general English encoder that comes with endtask."""
SHORT_GPU_SECONDS = 180.0
"""Under a shorter budget a GPU too starts from endtask-mini, which scores as much within half a minute."""
_SHAPE_KEYS = frozenset(
    ("architecture", "size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
)
_TOKENIZER_KEYS = frozenset(("path", "kind", "vocab_size", "lowercase", "spell_capitals"))

Tree = dict[str, Any]


def automatic_preset(tree: Mapping[str, Any]) -> str | None:
    """Return the preset of settings that name none: by the machine; None where they describe an encoder themselves.

    >>> automatic_preset({"device": "cpu"}), automatic_preset({"model": {"size": "mini"}})
    ('laptop', None)
    """
    if _describes_encoder(tree) or _section(tree, "model").get("path", AUTO) != AUTO:
        return None
    return "gpu-long" if _has_gpu_and_minutes(tree) else "laptop"


def leave_automatic(tree: Tree, change: Mapping[str, Any]) -> None:
    """Drop the automatic checkpoint of `tree` where `change` describes another encoder or tokenizer."""
    model, names_another = tree.get("model"), _describes_encoder(change) and "path" not in _section(change, "model")
    if isinstance(model, dict) and model.get("path") in (AUTO, MINI) and names_another:
        model["path"] = None


def choose_checkpoint(tree: Tree) -> None:
    """Replace the checkpoint `auto` by the name of a checkpoint, or by None for random weights."""
    model = tree.get("model")
    if isinstance(model, dict) and model.get("path") == AUTO:
        model["path"] = MINI if package_model(MINI) is not None and not _has_gpu_and_minutes(tree) else None


def starting_point(settings: Settings) -> str:
    """Return a line about what the encoder starts from."""
    path, model = settings.model.path, settings.model
    if path == MINI:
        return "the encoder starts from endtask-mini, which comes with endtask (model.path: null is random weights)"
    if path is not None:
        return f"the encoder starts from the checkpoint {path}"
    return f"the encoder starts from random weights: {model.architecture}, {model.size}"


def _describes_encoder(tree: Mapping[str, Any]) -> bool:
    """Return whether settings give the sizes of an encoder or say how its vocabulary is learned."""
    model, tokenizer = tree.get("model"), _section(tree, "tokenizer")
    names_encoder = isinstance(model, str) and model != AUTO
    described = {key for key, value in _section(tree, "model").items() if value is not None}
    return names_encoder or bool(described & _SHAPE_KEYS or tokenizer.keys() & _TOKENIZER_KEYS)


def _section(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = tree.get(name)
    return section if isinstance(section, Mapping) else {}


def _has_gpu_and_minutes(tree: Mapping[str, Any]) -> bool:
    if tree.get("device", AUTO) not in (AUTO, "cuda") or not gpu_names():
        return False
    seconds = _seconds(tree.get("budget"))
    return seconds is None or seconds >= SHORT_GPU_SECONDS


def _seconds(budget: Any) -> float | None:
    """Return the seconds of a budget; None for one in another unit, an absent one, or a mistake that is told later."""
    try:
        return Budget.parse(str(budget)).seconds if budget is not None else None
    except ValueError:
        return None
