"""Learning rates by a weight's place in the network: lower for lower layers, and another one for the heads."""

from __future__ import annotations

import re
from collections.abc import Collection

from endtask.settings.training import PhaseSettings

_LAYER = re.compile(r"^body\..*?\blayers?\.(\d+)\.")  # `layers.3.` in ModernBERT, `encoder.layer.3.` in BERT
_EMBEDDINGS, _HEADS = "body.embeddings.", "heads."


def base_rate(name: str, settings: PhaseSettings, learning_rate: float) -> float:
    """The highest rate that AdamW has for a parameter, layers apart.

    >>> settings = PhaseSettings(head_learning_rate=0.1)
    >>> [base_rate(name, settings, 0.01) for name in ("heads.task.bias", "body.final_norm.weight")]
    [0.1, 0.01]
    """
    if name.startswith(_HEADS) and settings.head_learning_rate is not None:
        return settings.head_learning_rate
    return learning_rate


def layer_factors(names: Collection[str], decay: float) -> dict[str, float]:
    """What each parameter's rate is multiplied by: decay^(L - l) in layer l of L, of which the embeddings are layer 0.

    Heads, and whatever stands between the last layer and them, keep the whole rate.

    >>> names = ["body.embeddings.norm.weight", "body.layers.0.attn.Wo.weight", "body.layers.1.attn.Wo.weight"]
    >>> list(layer_factors([*names, "body.final_norm.weight", "heads.task.bias"], 0.5).values())
    [0.25, 0.5, 1.0, 1.0, 1.0]
    """
    layers = {name: int(found[1]) + 1 for name in names if (found := _LAYER.match(name))}
    last = max(layers.values(), default=0)
    layers |= {name: 0 for name in names if name.startswith(_EMBEDDINGS)}
    return {name: decay ** (last - layers.get(name, last)) for name in names}
