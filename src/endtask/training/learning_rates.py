"""Learning rates and decay by a weight's place in the network: the heads may have others than the encoder."""

from __future__ import annotations

from endtask.config.training import PhaseSettings
from endtask.encoders.network import GENERATOR, MASKED_LM

_HEADS = "heads."
_WITH_ENCODER = (f"heads.{MASKED_LM}.", f"heads.{GENERATOR}.")


def base_rate(name: str, settings: PhaseSettings, learning_rate: float) -> float:
    """The highest rate of a parameter.

    >>> settings = PhaseSettings(head_learning_rate=0.1)
    >>> [base_rate(name, settings, 0.01) for name in ("heads.task.bias", "encoder.final_norm.weight")]
    [0.1, 0.01]
    """
    if settings.head_learning_rate is not None and is_apart(name):
        return settings.head_learning_rate
    return learning_rate


def is_apart(name: str) -> bool:
    """Whether a parameter belongs to a head that may have a rate, a decay and clipping of its own.

    The head of masked LM goes with the encoder, as in TARTAN's code. The masked LM that puts tokens in for `replaced`
    stands among the heads, and is an encoder.

    >>> [is_apart(f"heads.{name}.bias") for name in ("task", "masked_lm", "generator.encoder")]
    [True, False, False]
    """
    return is_head(name) and not name.startswith(_WITH_ENCODER)


def head_of(name: str) -> str | None:
    """The head that a parameter belongs to, None for the encoder's.

    >>> head_of("heads.task.dense.bias"), head_of("encoder.layers.0.bias")
    ('heads.task', None)
    """
    return ".".join(name.split(".")[:2]) if is_head(name) else None


def is_head(name: str) -> bool:
    """Whether a parameter belongs to a head.

    >>> is_head("heads.task.bias"), is_head("encoder.heads")
    (True, False)
    """
    return name.startswith(_HEADS)
