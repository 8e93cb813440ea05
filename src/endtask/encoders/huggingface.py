"""Convert a network to stock Hugging Face models; missing or unexpected weights are errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from endtask.encoders.base import Encoder
from endtask.encoders.checkpoint_files import without_progress_bars
from endtask.encoders.modernbert import rotary_of_each_kind
from endtask.encoders.network import Network
from endtask.io.atomic import write_json
from endtask.io.parsing import read_json


def to_classifier(network: Network) -> Any:
    """Return the stock classifier of texts or tokens with the network's weights."""
    architecture, is_tagger = network.architecture, network.task_type.per_token
    model = (architecture.token_classifier if is_tagger else architecture.classifier)(network.config)
    names = architecture.to_token_classifier if is_tagger else architecture.to_classifier
    names = getattr(model, "weight_names", names)
    model.load_state_dict(_renamed(network.state_dict(), names), strict=True)
    model.eval()
    return model


def to_masked_lm(network: Network) -> Any:
    """Return the stock masked language model with the network's weights."""
    return masked_lm_of(network.architecture, network.config, network.state_dict())


def masked_lm_of(architecture: Encoder, config: Any, weights: Mapping[str, Tensor]) -> Any:
    """Return the stock masked language model with a network's weights, given by their names there."""
    model = architecture.masked_lm(config)
    loaded = model.load_state_dict(_renamed(weights, architecture.to_masked_lm), strict=False)
    # The output matrix (and BERT's second name for its bias) are tied to loaded weights.
    untied = [name for name in loaded.missing_keys if name not in model._tied_weights_keys]
    if untied or loaded.unexpected_keys:
        raise ValueError(f"weights do not fit: missing {untied}, unexpected {loaded.unexpected_keys}")
    model.tie_weights()
    model.eval()
    return model


def save_classifier(network: Network, folder: Path) -> None:
    """Write configuration and weights of the stock classifier, as Hugging Face does."""
    save_stock(to_classifier(network), folder)


def save_masked_lm(network: Network, folder: Path) -> None:
    """Write configuration and weights of the stock masked language model, as Hugging Face does."""
    save_stock(to_masked_lm(network), folder)


def save_stock(model: Any, folder: Path) -> None:
    """Write configuration and weights of a stock model, readable by all releases that we support."""
    with without_progress_bars():
        model.save_pretrained(str(folder))
    path = folder / "config.json"
    config = read_json(path)
    for weights in folder.glob("*.safetensors"):  # the library makes them readable for the owner alone
        shutil.copymode(path, weights)
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["model_type"] == "modernbert":
        write_json(path, _with_keys_of_all_releases(config))


def _with_keys_of_all_releases(config: dict[str, Any]) -> dict[str, Any]:
    """Return ModernBERT's configuration with the keys that releases before `rope_parameters` and `layer_types` read."""
    rotary = rotary_of_each_kind(config["rope_parameters"])
    is_global = [kind == "full_attention" for kind in config["layer_types"]]
    layers = len(is_global)
    periods = [every for every in range(1, layers + 1) if is_global == [n % every == 0 for n in range(layers)]]
    written = {
        **config,
        "rope_parameters": rotary,
        "global_rope_theta": rotary["full_attention"]["rope_theta"],
        "local_rope_theta": rotary["sliding_attention"]["rope_theta"],
        "sliding_window": config["local_attention"] // 2,
    }
    written.pop("global_attn_every_n_layers", None)  # some releases write their default for any layers
    if periods:
        written["global_attn_every_n_layers"] = periods[0]
    return dict(sorted(written.items()))


def _renamed(weights: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    """Return a network's weights under Hugging Face's names, without weights that have none."""
    renamed = {}
    for name, weight in weights.items():
        for old, new in prefixes.items():
            if name.startswith(old):
                renamed[new + name.removeprefix(old)] = weight
    return renamed
