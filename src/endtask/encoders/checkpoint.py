"""Start from a given checkpoint: its architecture, sizes and weights, with a new task head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from endtask.config import ModelSettings
from endtask.encoders.base import Encoder, encoders
from endtask.encoders.checkpoint_files import config_file, weight_files
from endtask.encoders.checkpoint_weights import fill_network, read_tensors
from endtask.encoders.modernbert import rotary_of_each_kind
from endtask.encoders.network import Network, name_labels, name_markers, pooling_of
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
