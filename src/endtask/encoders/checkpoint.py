"""Start from a given checkpoint: its architecture, sizes and weights, with a new task head."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from endtask.config import ModelSettings
from endtask.encoders.base import Encoder, encoders
from endtask.encoders.checkpoint_files import config_file, weight_files
from endtask.encoders.modernbert import rotary_of_each_kind
from endtask.encoders.network import Network, name_labels, name_markers, pooling_of
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


_KEY = "model.path"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose configuration was read; its weights are read later."""

    path: str
    """As the user wrote it."""
    architecture: Encoder
    config: Any

    @property
    def max_length(self) -> int:
        """How many tokens of a text it can read."""
        return self.architecture.max_length(self.config)


def open_checkpoint(path: str) -> Checkpoint:
    """Read the configuration in a folder, or of `hf:NAME`, and find the encoder that accepts it.

    >>> open_checkpoint("absent")
    Traceback (most recent call last):
        ...
    endtask.errors.InputError: absent, key 'model.path': no such checkpoint folder (on the hub it would be hf:absent)
    """
    file = config_file(path)
    values = _values(file)
    model_type = values.get("model_type")
    readers = [encoder for encoder in map(encoders.get, encoders.names()) if encoder.model_type == model_type]
    if not readers:
        types = sorted({encoders.get(name).model_type for name in encoders.names()})
        hint = f"known: {', '.join(types)}"
        raise InputError(f"a model of type {model_type!r} cannot be trained here", path=path, key=_KEY, hint=hint)
    try:
        config = readers[0]().config_class().from_dict(values, attn_implementation="sdpa")
    except Exception as error:  # numbers can be wrong in ways that only the library knows
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"no configuration of {model_type}: {reason}", path=file, key=_KEY) from None
    encoder = _encoder_of(config, readers, path)
    problem = _problem(config) or encoder.config_problem(config)
    if problem is not None:
        raise InputError(problem, path=file, key=_KEY)
    return Checkpoint(path, encoder, config)


def check_tokenizer(checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerFast, *, key: str) -> None:
    """Raise where the checkpoint has no vectors for a tokenizer's tokens; `key` is the setting that named it."""
    capacity = checkpoint.config.vocab_size
    if len(tokenizer) > capacity:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens, the checkpoint {checkpoint.path} vectors for {capacity}",
            key=key,
            hint="tokenizer.entity_markers that are no tokens yet count too",
        )
    problem = checkpoint.architecture.tokenizer_problem(checkpoint.config, tokenizer)
    if problem is not None:
        pad = tokenizer.pad_token_id
        raise InputError(f"the tokenizer pads with token {pad}, the checkpoint {checkpoint.path} {problem}", key=key)


def load_network(
    checkpoint: Checkpoint,
    settings: ModelSettings,
    *,
    pad_id: int,
    labels: tuple[str, ...],
    seed: int,
    tlm_head: bool = False,
    task_type: str = "text",
    markers: tuple[int, ...] = (),
) -> Network:
    """The checkpoint's encoder, and its masked-LM head if it has one; other heads have random weights by `seed`.

    Of the settings only dropout and pooling count; sizes are the checkpoint's.
    """
    architecture, config = checkpoint.architecture, deepcopy(checkpoint.config)
    tensors = read_tensors(weight_files(checkpoint.path), architecture.to_masked_lm["encoder."])
    if not getattr(config, "decoder_bias", True):  # our masked-LM head has one: zero does the same
        config.decoder_bias = True
        tensors["decoder.bias"] = torch.zeros(config.vocab_size)
    pooling = pooling_of(settings, architecture, markers)
    architecture.adopt(config, dropout=settings.dropout, pooling=pooling)
    config.pad_token_id = pad_id
    config.tie_word_embeddings = True
    config.dtype = torch.float32
    name_labels(config, labels, task_type)  # over those of the task it was trained on before
    name_markers(config, pooling, markers)
    network = Network(architecture, config, seed, tlm_head=tlm_head, task_type=task_type)
    fill_network(network, tensors, checkpoint.path)
    return network


def _values(file: Path) -> dict[str, Any]:
    """What stands in a configuration, less what other code than the library's would be needed for."""
    try:
        values = json.loads(file.read_bytes())
    except ValueError as error:
        raise InputError(f"not valid JSON: {error}", path=file, key=_KEY) from None
    if not isinstance(values, dict):
        raise InputError("no JSON object", path=file, key=_KEY)
    if isinstance(values.get("rope_parameters"), dict):
        values["rope_parameters"] = rotary_of_each_kind(values["rope_parameters"])
    values.pop("auto_map", None)
    return values


def _problem(config: Any) -> str | None:
    """Return what makes a configuration useless here although the library accepts it."""
    if getattr(config, "is_decoder", False):
        return "a decoder; only encoders can be trained here"
    if config.hidden_size % config.num_attention_heads:
        return f"hidden_size {config.hidden_size} is not a multiple of num_attention_heads {config.num_attention_heads}"
    return None


def _encoder_of(config: Any, readers: Sequence[type[Encoder]], path: str) -> Encoder:
    """Return the preferred encoder of those that accept a configuration."""
    found = [reader for reader in readers if reader().accepts(config)]
    if not found:
        name = getattr(config, "endtask_encoder", config.model_type)
        raise InputError(
            f"no encoder {name!r} is registered", path=path, key=_KEY, hint="load it with --plugin FILE.py"
        )
    best = max(found, key=lambda reader: reader.preferred)
    return best(best.Config(**getattr(config, "encoder_options", {})))


_KEY = "model.path"
_FETCH_AGAIN = "copy or download the checkpoint again"
_NAMED = 3
# Tables that earlier releases saved and the pooler, which is part of a task head here.
_NOT_ENCODER = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.")
Tensors = dict[str, Tensor]


def check_complete(files: Iterable[Path]) -> None:
    """Refuse files that were cut off, by their headers alone."""
    for file in files:
        try:
            with safe_open(str(file), framework="pt"):
                continue
        except SafetensorError as error:
            raise InputError(f"damaged: {error}", path=file, hint=_FETCH_AGAIN) from None


def read_tensors(files: Iterable[Path], encoder: str) -> Tensors:
    """All tensors of a checkpoint, named as in a model with a head; `encoder` is the prefix of the encoder's there."""
    tensors: Tensors = {}
    for file in files:
        tensors |= load_tensors(file, hint=_FETCH_AGAIN)[0]
    if not any(name.startswith(encoder) for name in tensors):  # saved without any head
        tensors = {encoder + name: value for name, value in tensors.items()}
    # Weights once converted from TensorFlow have its names for the two parts of a norm.
    named = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias", ".decoder.bias": ".bias"}
    for name in list(tensors):
        for old, new in named.items():
            if name.endswith(old):
                tensors.setdefault(name.removesuffix(old) + new, tensors.pop(name))
    return tensors


def fill_network(network: Network, tensors: Tensors, path: str) -> None:
    """Put a checkpoint's tensors into the network; of the encoder all must be there, and nothing unknown."""
    encoder = network.architecture.to_masked_lm["encoder."]
    names = _stock_names(network)
    expected = {stock for stock, own in names.items() if own.startswith("encoder.")}
    there = {name for name in tensors if name.startswith(encoder)}
    there -= {name for name in there if name.removeprefix(encoder).startswith(_NOT_ENCODER)}
    _check("lacks weights that its configuration needs", expected - there, path)
    _check("holds weights that its configuration does not ask for", there - expected, path)
    if not _has_masked_lm_head(names.keys() - expected, tensors):
        names = {stock: names[stock] for stock in expected}
    _check("lacks part of its masked-LM head", names.keys() - tensors.keys(), path)
    _check_tied(network, tensors, path)
    _copy(network, {own: (stock, tensors[stock]) for stock, own in names.items()}, path)


def _stock_names(network: Network) -> dict[str, str]:
    """Names in the stock masked language model -> names in the network."""
    return {
        stock + name.removeprefix(own): name
        for own, stock in network.architecture.to_masked_lm.items()
        for name in network.state_dict()
        if name.startswith(own)
    }


def _has_masked_lm_head(names: Iterable[str], tensors: Tensors) -> bool:
    # A classifier's own head may have the same names, as ModernBERT's has.
    return not any(name.startswith("classifier.") for name in tensors) and any(name in tensors for name in names)


def _check_tied(network: Network, tensors: Tensors, path: str) -> None:
    """Our masked-LM head has no output matrix of its own but the word embeddings, as in all common checkpoints."""
    own = next(name for name, weights in network.named_parameters() if weights is network.embeddings)
    stock = next(stock for stock, name in _stock_names(network).items() if name == own)
    for name, value in tensors.items():
        if name.endswith("decoder.weight") and not value.equal(tensors[stock]):
            raise InputError(f"{name} is not equal to {stock}, which is not supported", path=path, key=_KEY)


def _copy(network: Network, tensors: dict[str, tuple[str, Tensor]], path: str) -> None:
    weights = network.state_dict()
    for own, (stock, value) in tensors.items():
        if value.shape != weights[own].shape:
            wanted, found = tuple(weights[own].shape), tuple(value.shape)
            raise InputError(f"{stock} has the shape {found}, its configuration says {wanted}", path=path, key=_KEY)
        weights[own].copy_(value)


def _check(trouble: str, names: set[str], path: str) -> None:
    if names:
        shown = ", ".join(sorted(names)[:_NAMED])
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise InputError(f"{trouble}: {shown}{more}", path=path, key=_KEY)
