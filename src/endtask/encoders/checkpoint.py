"""Load a Hugging Face checkpoint: its architecture, sizes and weights, with a new task head."""

from __future__ import annotations

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
from endtask.encoders.config_sizes import size_problem
from endtask.encoders.modernbert import rotary_of_each_kind
from endtask.encoders.network import Network, name_labels, name_markers, pooling_of
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.io.parsing import ParseError, parse_json
from endtask.seeds import derive

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_KEY = "model.path"
_FETCH_AGAIN = "copy or download the checkpoint again"
_NAMES_SHOWN = 3
# Tables that earlier releases saved, and the pooler, which belongs to the task head here.
_NOT_ENCODER = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.")
# Word vectors, the output matrix tied to them, and its bias, in the encoders' stock models.
_ROW_PER_TOKEN = (
    *("word_embeddings.weight", "tok_embeddings.weight", "decoder.weight"),
    *("decoder.bias", "predictions.bias", "lm_head.bias"),
)
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """The configuration of a checkpoint; `load_network` reads its weights."""

    path: str
    """As the user wrote it."""
    architecture: Encoder
    config: Any

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a text."""
        return self.architecture.max_length(self.config)


def open_checkpoint(path: str) -> Checkpoint:
    """Return the configuration of a folder or of `hf:NAME`, with the encoder that accepts it.

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
    if (wrong := size_problem(values)) is not None:
        raise InputError(wrong, path=file, key=_KEY)
    try:
        config = readers[0]().config_class().from_dict(values, attn_implementation="sdpa")
    except Exception as error:  # the library checks the values in its own ways
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"no configuration of {model_type}: {reason}", path=file, key=_KEY) from None
    encoder = _encoder_of(config, readers, path)
    problem = _problem(config) or encoder.config_problem(config)
    if problem is not None:
        raise InputError(problem, path=file, key=_KEY)
    return Checkpoint(path, encoder, config)


def check_tokenizer(
    checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerFast, *, key: str, markers: Sequence[str] = ()
) -> None:
    """Raise `InputError` if the checkpoint lacks vectors for tokens other than entity markers, which get new vectors.

    `key` is the setting that names the tokenizer.
    """
    capacity = checkpoint.config.vocab_size
    others = 1 + max((number for token, number in tokenizer.get_vocab().items() if token not in markers), default=-1)
    if others > capacity:
        raise InputError(
            f"the tokenizer has {others} tokens, the checkpoint {checkpoint.path} vectors for {capacity}", key=key
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
    vocabulary: int = 0,
    tlm_head: bool = False,
    task_type: str = "text",
    markers: tuple[int, ...] = (),
) -> Network:
    """Return a network with the checkpoint's encoder, and its masked-LM head if it has one; other heads are random.

    A `vocabulary` larger than the checkpoint's gets random vectors for the new tokens. Only dropout and pooling of the
    settings apply; sizes are the checkpoint's.
    """
    architecture, config = checkpoint.architecture, deepcopy(checkpoint.config)
    files = weight_files(checkpoint.path)
    if (wrong := size_problem(config.to_dict(), files)) is not None:
        raise InputError(wrong, path=checkpoint.path, key=_KEY)
    tensors = read_tensors(files, architecture.to_masked_lm["encoder."])
    if not getattr(config, "decoder_bias", True):  # our masked-LM head has a bias; zeros have no effect
        config.decoder_bias = True
        tensors["decoder.bias"] = torch.zeros(config.vocab_size)
    pooling = pooling_of(settings, architecture, markers)
    architecture.adopt(config, dropout=settings.dropout, pooling=pooling)
    config.pad_token_id = pad_id
    config.tie_word_embeddings = True
    config.dtype = torch.float32
    name_labels(config, labels, task_type)  # instead of the labels of the checkpoint
    name_markers(config, pooling, markers)
    grow_vocabulary(tensors, config, vocabulary, seed)
    network = Network(architecture, config, seed, tlm_head=tlm_head, task_type=task_type)
    fill_network(network, tensors, checkpoint.path)
    return network


def grow_vocabulary(tensors: Tensors, config: Any, vocabulary: int, seed: int) -> None:
    """Add vectors for new tokens to a checkpoint's tensors: random ones with the mean and spread of the others.

    All tensors with a row per token grow: the word vectors, the output matrix tied to them and its bias (zeros).
    """
    old, new = config.vocab_size, vocabulary - config.vocab_size
    if new <= 0:
        return
    for name, value in tensors.items():
        if value.shape[:1] != (old,) or not name.endswith(_ROW_PER_TOKEN):
            continue
        rows = torch.zeros(new, *value.shape[1:], dtype=value.dtype)
        if value.dim() == 2:
            noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(derive(seed, "new tokens")))
            rows = (value.float().mean(0) + noise * value.float().std(0)).to(value.dtype)
        tensors[name] = torch.cat([value, rows])
    config.vocab_size = vocabulary


def _values(file: Path) -> dict[str, Any]:
    """Return the values of a configuration file, without references to code outside the library."""
    try:
        values = parse_json(file.read_bytes())
    except ParseError as error:
        raise InputError(f"not valid JSON: {error}", path=file, key=_KEY) from None
    if not isinstance(values, dict):
        raise InputError("no JSON object", path=file, key=_KEY)
    if isinstance(values.get("rope_parameters"), dict):
        values["rope_parameters"] = rotary_of_each_kind(values["rope_parameters"])
    values.pop("auto_map", None)
    return values


def _problem(config: Any) -> str | None:
    """Return why no encoder can have this configuration although the library accepts it, or None."""
    if getattr(config, "is_decoder", False):
        return "a decoder; only encoders can be trained here"
    if config.hidden_size % config.num_attention_heads:
        return f"hidden_size {config.hidden_size} is not a multiple of num_attention_heads {config.num_attention_heads}"
    return None


def _encoder_of(config: Any, readers: Sequence[type[Encoder]], path: str) -> Encoder:
    """Return the preferred encoder of those that accept a configuration."""
    accepting = [reader for reader in readers if reader().accepts(config)]
    if not accepting:
        name = getattr(config, "endtask_encoder", config.model_type)
        raise InputError(
            f"no encoder {name!r} is registered", path=path, key=_KEY, hint="load it with --plugin FILE.py"
        )
    best = max(accepting, key=lambda reader: reader.preferred)
    return best(best.Config(**getattr(config, "encoder_options", {})))


def check_complete(files: Iterable[Path]) -> None:
    """Raise `InputError` for truncated files; reads the headers only."""
    for file in files:
        try:
            with safe_open(str(file), framework="pt"):
                continue
        except SafetensorError as error:
            raise InputError(f"damaged: {error}", path=file, hint=_FETCH_AGAIN) from None


def read_tensors(files: Iterable[Path], encoder: str) -> Tensors:
    """Return the tensors of a checkpoint, named as in a model with a head; `encoder` is the encoder's prefix there."""
    tensors: Tensors = {}
    for file in files:
        tensors |= load_tensors(file, hint=_FETCH_AGAIN)[0]
    if not any(name.startswith(encoder) for name in tensors):  # saved without a head
        tensors = {encoder + name: value for name, value in tensors.items()}
    # Weights converted from TensorFlow have its names for the weight and bias of a norm.
    new_names = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias", ".decoder.bias": ".bias"}
    for name in list(tensors):
        for old, new in new_names.items():
            if name.endswith(old):
                tensors.setdefault(name.removesuffix(old) + new, tensors.pop(name))
    return tensors


def fill_network(network: Network, tensors: Tensors, path: str) -> None:
    """Copy a checkpoint's tensors into the network; raise `InputError` for missing or unknown encoder weights."""
    encoder = network.architecture.to_masked_lm["encoder."]
    names = _stock_names(network)
    expected = {stock for stock, name in names.items() if name.startswith("encoder.")}
    present = {name for name in tensors if name.startswith(encoder)}
    present -= {name for name in present if name.removeprefix(encoder).startswith(_NOT_ENCODER)}
    _check_none("lacks weights that its configuration needs", expected - present, path)
    _check_none("holds weights that its configuration does not ask for", present - expected, path)
    if not _has_masked_lm_head(names.keys() - expected, tensors):
        names = {stock: names[stock] for stock in expected}
    _check_none("lacks part of its masked-LM head", names.keys() - tensors.keys(), path)
    _check_tied(network, tensors, path)
    weights = network.state_dict()
    for stock, name in names.items():
        value, weight = tensors[stock], weights[name]
        if value.shape != weight.shape:
            shapes = f"{tuple(value.shape)}, its configuration says {tuple(weight.shape)}"
            raise InputError(f"{stock} has the shape {shapes}", path=path, key=_KEY)
        weight.copy_(value)


def _stock_names(network: Network) -> dict[str, str]:
    """Return the network's weight names by their names in the stock masked language model."""
    return {
        stock + name.removeprefix(prefix): name
        for prefix, stock in network.architecture.to_masked_lm.items()
        for name in network.state_dict()
        if name.startswith(prefix)
    }


def _has_masked_lm_head(names: Iterable[str], tensors: Tensors) -> bool:
    # The head of a classifier may have the same names, as in ModernBERT.
    return not any(name.startswith("classifier.") for name in tensors) and any(name in tensors for name in names)


def _check_tied(network: Network, tensors: Tensors, path: str) -> None:
    """Raise `InputError` unless the output matrix of the masked-LM head is the word embeddings, as in our head."""
    embeddings = next(name for name, weights in network.named_parameters() if weights is network.embeddings)
    stock = next(stock for stock, name in _stock_names(network).items() if name == embeddings)
    for name, value in tensors.items():
        if name.endswith("decoder.weight") and not value.equal(tensors[stock]):
            raise InputError(f"{name} is not equal to {stock}, which is not supported", path=path, key=_KEY)


def _check_none(problem: str, names: set[str], path: str) -> None:
    """Raise `InputError` if there are names with a problem."""
    if names:
        shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        raise InputError(f"{problem}: {shown}{more}", path=path, key=_KEY)
