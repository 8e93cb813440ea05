"""Learning rates by a weight's place in the network: lower for lower layers, and another one for the heads."""

from __future__ import annotations

import re
from collections.abc import Collection

from endtask.models.network import GENERATOR, MASKED_LM
from endtask.settings.training import PhaseSettings

_LAYER = re.compile(r"^body\..*?\blayers?\.(\d+)\.")  # `layers.3.` in ModernBERT, `encoder.layer.3.` in BERT
_EMBEDDINGS, _HEADS, _MASKED_LM = "body.embeddings.", "heads.", f"heads.{MASKED_LM}"  # and those of single objectives
_GENERATOR = f"heads.{GENERATOR}."


def base_rate(name: str, settings: PhaseSettings, learning_rate: float) -> float:
    """The highest rate that AdamW has for a parameter, layers apart.

    >>> settings = PhaseSettings(head_learning_rate=0.1)
    >>> [base_rate(name, settings, 0.01) for name in ("heads.task.bias", "body.final_norm.weight")]
    [0.1, 0.01]
    """
    if settings.head_learning_rate is not None and is_apart(name, settings):
        return settings.head_learning_rate
    return learning_rate


def decay_of(name: str, settings: PhaseSettings) -> float:
    """The weight decay of a matrix.

    >>> settings = PhaseSettings(weight_decay=0.01, head_weight_decay=0.1, heads_apart="task")
    >>> names = ("heads.task", "heads.masked_lm", "heads.masked_lm_dapt", "body")
    >>> [decay_of(f"{name}.dense.weight", settings) for name in names]
    [0.1, 0.01, 0.01, 0.01]
    """
    if settings.head_weight_decay is not None and is_apart(name, settings):
        return settings.head_weight_decay
    return settings.weight_decay


def is_apart(name: str, settings: PhaseSettings) -> bool:
    """Whether a parameter belongs to a head that is told apart from the encoder.

    The masked LM that puts tokens in for `replaced` stands among the heads, and is an encoder.

    >>> [is_apart(f"heads.{name}.bias", PhaseSettings()) for name in ("task", "masked_lm", "generator.body")]
    [True, True, False]
    """
    if name.startswith(_GENERATOR):
        return False
    return is_head(name) and not (settings.heads_apart == "task" and name.startswith(_MASKED_LM))


def head_of(name: str) -> str | None:
    """The head that a parameter belongs to, None for the encoder's.

    >>> head_of("heads.task.dense.bias"), head_of("body.layers.0.bias")
    ('heads.task', None)
    """
    return ".".join(name.split(".")[:2]) if is_head(name) else None


def is_head(name: str) -> bool:
    """Whether a parameter belongs to a head.

    >>> is_head("heads.task.bias"), is_head("body.heads")
    (True, False)
    """
    return name.startswith(_HEADS)


def layer_factors(names: Collection[str], decay: float) -> dict[str, float]:
    """What each parameter's rate is multiplied by: decay^(L - l) in layer l of L, of which the embeddings are layer 0.

    Heads, and whatever stands between the last layer and them, keep the whole rate.

    >>> names = ["body.embeddings.norm.weight", "body.layers.0.attn.Wo.weight", "body.layers.1.attn.Wo.weight"]
    >>> list(layer_factors([*names, "body.final_norm.weight", "heads.task.bias"], 0.5).values())
    [0.25, 0.5, 1.0, 1.0, 1.0]
    """
    layers = layer_numbers(names)
    last = max(layers.values(), default=0)
    return {name: decay ** (last - layers.get(name, last)) for name in names}


def layer_numbers(names: Collection[str]) -> dict[str, int]:
    """The layer of each parameter that belongs to one, from 1 on; the embeddings' is 0.

    >>> layer_numbers(["body.embeddings.norm.weight", "body.layers.3.attn.Wo.weight", "heads.task.bias"])
    {'body.embeddings.norm.weight': 0, 'body.layers.3.attn.Wo.weight': 4}
    """
    layers = {name: 0 for name in names if name.startswith(_EMBEDDINGS)}
    return layers | {name: int(found[1]) + 1 for name in names if (found := _LAYER.match(name))}
