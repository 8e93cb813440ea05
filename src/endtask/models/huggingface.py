"""From our network to stock Hugging Face models; missing or unexpected weights are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from endtask.models.network import Network
from endtask.models.without_bars import without_bars


def to_sequence_classification(network: Network) -> Any:
    """The stock classifier with the network's weights: plain `from_pretrained` loads what it saves."""
    model = network.architecture.classifier(network.config)
    model.load_state_dict(_renamed(network, network.architecture.to_classifier), strict=True)
    model.eval()
    return model


def to_masked_lm(network: Network) -> Any:
    """The stock masked language model with the network's weights, to go on from elsewhere."""
    model = network.architecture.masked_lm(network.config)
    loaded = model.load_state_dict(_renamed(network, network.architecture.to_masked_lm), strict=False)
    # The output matrix (and BERT's second name for its bias) are tied to weights that are there.
    untied = [name for name in loaded.missing_keys if name not in model._tied_weights_keys]
    if untied or loaded.unexpected_keys:
        raise ValueError(f"weights do not fit: missing {untied}, unexpected {loaded.unexpected_keys}")
    model.tie_weights()
    model.eval()
    return model


def save_classifier(network: Network, folder: Path) -> None:
    """Write config and weights the way Hugging Face does."""
    with without_bars():
        to_sequence_classification(network).save_pretrained(str(folder))


def _renamed(network: Network, prefixes: dict[str, str]) -> dict[str, Tensor]:
    """The network's weights under Hugging Face's names; weights without a new name stay behind."""
    renamed = {}
    for name, weight in network.state_dict().items():
        for old, new in prefixes.items():
            if name.startswith(old):
                renamed[new + name.removeprefix(old)] = weight
    return renamed
