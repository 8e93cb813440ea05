"""Read texts with a stock encoder: the maxima of its attention heads, and the mean vector of each text."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.analysis.attention_heads import Maxima, count_maxima, fixed_tokens
from endtask.encoders.base import StockEncoder
from endtask.encoders.heads import mean_over
from endtask.encoders.huggingface import masked_lm_of
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.records import Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_MOST_PROBABILITIES = 1 << 25
"""Attention probabilities of a batch in all layers: 128 MiB."""


@dataclass(frozen=True)
class TextReader:
    """An encoder of Hugging Face's classes with eager attention, and what it needs to read a text."""

    encoder: Any
    tokenizer: PreTrainedTokenizerFast
    input_names: tuple[str, ...]
    max_length: int

    @classmethod
    def of(cls, network: Network, tokenizer: PreTrainedTokenizerFast, max_length: int) -> TextReader:
        """Return the encoder of a network with eager attention, the only kind that returns its probabilities."""
        architecture = network.architecture
        if not isinstance(architecture, StockEncoder):
            raise InputError(f"the encoder {architecture.name!r} is not one of Hugging Face's, which return attention")
        config = copy.deepcopy(network.config)
        config._attn_implementation = "eager"
        model = masked_lm_of(architecture, config, network.state_dict())
        return cls(getattr(model, model.base_model_prefix), tokenizer, architecture.input_names, max_length)

    @torch.inference_mode()
    def read(self, examples: Sequence[Example], max_length: int) -> tuple[Maxima, NDArray[np.float32]]:
        """Return the maxima over all texts, and the mean of the last layer's vectors of each text: (texts, hidden).

        Texts are truncated to `max_length` tokens, or to what the encoder can read.
        """
        fixed = torch.tensor(fixed_tokens(self.tokenizer))
        parts, vectors = [], np.zeros((len(examples), self.encoder.config.hidden_size), dtype=np.float32)
        for rows, inputs in self._batches(examples, min(max_length, self.max_length)):
            present = inputs["attention_mask"].bool()
            outputs = self.encoder(**{name: inputs[name] for name in self.input_names}, output_attentions=True)
            parts.append(count_maxima(outputs.attentions, present, torch.isin(inputs["input_ids"], fixed)))
            vectors[rows] = mean_over(outputs.last_hidden_state, present).numpy()
        return sum(parts[1:], parts[0]), vectors

    def _batches(self, examples: Sequence[Example], length: int) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Yield row numbers and padded inputs of texts of similar length."""
        encoded = [self._encode(example, length) for example in examples]
        order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]["input_ids"]))
        while order:
            longest = len(encoded[order[-1]]["input_ids"])
            size = max(1, _MOST_PROBABILITIES // (self._heads * longest**2))
            rows, order = order[-size:], order[:-size]
            yield rows, dict(self.tokenizer.pad([encoded[row] for row in rows], return_tensors="pt"))

    @property
    def _heads(self) -> int:
        config = self.encoder.config
        return int(config.num_hidden_layers * config.num_attention_heads)

    def _encode(self, example: Example, length: int) -> dict[str, list[int]]:
        encoded = self.tokenizer(example.text, example.text_pair, truncation=True, max_length=length)
        return {name: encoded[name] for name in {*self.input_names, "attention_mask"} if name in encoded}
