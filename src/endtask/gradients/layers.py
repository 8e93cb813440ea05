"""Choose the weights of the encoder whose gradients are compared, by short name, module path or pattern."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from endtask.encoders.network import Network
from endtask.errors import InputError, did_you_mean

DEPTHS = {"quarter": 0.25, "half": 0.5, "three_quarters": 0.75, "last": 1.0}
"""Names for the attention output projection of a layer, by the layer's depth; of 12 layers the 3rd, 6th, 9th, 12th."""
EMBEDDING = "embedding"


def choose_weights(network: Network, layers: Sequence[str]) -> dict[str, nn.Parameter]:
    """Return the weights that the names stand for, by their module's path in the encoder, in the encoder's order.

    A name is `last`, `three_quarters`, `half`, `quarter` (the attention output projection at that depth, as the ISS
    authors use), `embedding` (the word vectors), or the path of a Linear module, `*` standing for anything.
    """
    if isinstance(layers, str) or not layers:
        raise InputError("give a list of at least one layer", key="layers", hint="such as [last]")
    known = _known_weights(network)
    chosen = {path for name in layers for path in _paths(network, name, list(known))}
    return {path: weight for path, weight in known.items() if path in chosen}


def _known_weights(network: Network) -> dict[str, nn.Parameter]:
    embeddings = network.architecture.embeddings(network.encoder)
    weights = dict(network.encoder.named_parameters())
    return {
        path: weights[f"{path}.weight"]
        for path, module in network.encoder.named_modules()
        if isinstance(module, nn.Linear) or module is embeddings
    }


def _paths(network: Network, name: str, known: list[str]) -> list[str]:
    if name in DEPTHS:
        return [output_projection(network, DEPTHS[name])]
    if name == EMBEDDING:
        embeddings = network.architecture.embeddings(network.encoder)
        return [path for path, module in network.encoder.named_modules() if module is embeddings]
    matching = [path for path in known if fnmatchcase(path, name)]
    if not matching:
        hint = did_you_mean(name, [*DEPTHS, EMBEDDING, *known])
        raise InputError(f"{network.architecture.name} has no layer {name!r}", key="layers", hint=hint)
    return matching


def output_projection(network: Network, depth: float) -> str:
    """Return the path of the attention output projection at a depth, as a share of the layers.

    >>> from types import SimpleNamespace as Some
    >>> from endtask.encoders.bert import Bert
    >>> output_projection(Some(architecture=Bert(), config=Some(num_hidden_layers=12)), 0.25)
    'encoder.layer.2.attention.output.dense'
    """
    number = max(1, math.ceil(depth * network.config.num_hidden_layers))
    projection = network.architecture.output_projection
    if projection is None:
        raise InputError(f"{network.architecture.name} has no attention output projections", key="layers")
    return projection.format(number - 1)
