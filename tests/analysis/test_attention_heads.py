"""Attention heads are counted as a loop over tokens counts them, with probabilities computed the slow way."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from endtask.analysis.attention_heads import Maxima, count_maxima, fixed_tokens
from endtask.analysis.reading import TextReader
from endtask.encoders.huggingface import masked_lm_of
from endtask.encoders.lean_layers import rotate
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.records import Example
from tests.tiny import ARCHITECTURES, MAX_LENGTH, make_network, make_texts, make_tokenizer, shake

TEXTS = [f"{text} ." if number % 2 else text for number, text in enumerate(make_texts(7, seed=5, longest=9))]
EXAMPLES = [Example(str(number), text, "yes") for number, text in enumerate(TEXTS)]


def slow_attentions(network: Network, ids: list[int]) -> Iterator[Tensor]:
    """Yield the probabilities (heads, T, T) of each layer for one text, by the equations of `lean`."""
    encoder: Any = network.encoder
    cosine, sine = encoder.angles(torch.arange(len(ids)))
    hidden = encoder.embeddings(torch.tensor(ids), torch.float32)
    for layer in encoder.layers:
        attention: Any = layer.attn
        normed = layer.attn_norm(hidden)
        parts = [functional.linear(normed, weight) for weight in attention.Wqkv.weight.chunk(3)]
        query, key, value = (part.view(len(ids), attention.heads, -1) for part in parts)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        weights = torch.zeros(attention.heads, len(ids), len(ids))
        for head, row in product(range(attention.heads), range(len(ids))):
            scores = [float(query[row, head] @ key[column, head]) for column in range(len(ids))]
            weights[head, row] = torch.tensor(scores).div(math.sqrt(query.shape[-1])).softmax(0)
        yield weights
        mixed = torch.cat([weights[head] @ value[:, head] for head in range(attention.heads)], dim=-1)
        hidden = layer.after_attention(hidden + attention.Wo(mixed))


def stock_attentions(network: Network, ids: list[int]) -> Iterator[Tensor]:
    """Yield the same from Hugging Face's own model, without padding."""
    config = copy.deepcopy(network.config)
    config._attn_implementation = "eager"
    model: nn.Module = masked_lm_of(network.architecture, config, network.state_dict())
    yield from (layer[0] for layer in model(input_ids=torch.tensor([ids]), output_attentions=True).attentions)


def counted(attentions: list[list[Tensor]], texts: list[list[int]], fixed: set[int]) -> Maxima:
    """Count maxima token by token."""
    layers, heads = len(attentions[0]), len(attentions[0][0])
    neighbours, on_fixed = np.zeros((layers, heads), dtype=int), np.zeros((layers, heads), dtype=int)
    for ids, layer, head in product(range(len(texts)), range(layers), range(heads)):
        for token, row in enumerate(attentions[ids][layer][head].tolist()):
            best = row.index(max(row))
            neighbours[layer, head] += best in (token - 1, token + 1)
            on_fixed[layer, head] += texts[ids][best] in fixed
    return Maxima(sum(map(len, texts)), neighbours, on_fixed)


@torch.no_grad()
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_maxima_of_a_batch_are_those_of_each_text(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokenizer = shake(make_network(architecture)).eval(), make_tokenizer()
    texts = [tokenizer(text, truncation=True, max_length=MAX_LENGTH)["input_ids"] for text in TEXTS]
    slow = slow_attentions if architecture == "lean" else stock_attentions
    expected = counted([list(slow(network, ids)) for ids in texts], texts, set(fixed_tokens(tokenizer)))
    monkeypatch.setattr("endtask.analysis.reading._MOST_PROBABILITIES", 3 * 4 * max(map(len, texts)) ** 2)
    found, vectors = TextReader.of(network, tokenizer, MAX_LENGTH).read(EXAMPLES, MAX_LENGTH)
    assert found.to_dict() == expected.to_dict()
    assert 0 < found.neighbours.sum() < found.tokens * found.neighbours.size
    hidden = stock_hidden(network, texts[2])
    np.testing.assert_allclose(vectors[2], hidden.mean(0).numpy(), atol=1e-5)


def stock_hidden(network: Network, ids: list[int]) -> Tensor:
    model = masked_lm_of(network.architecture, network.config, network.state_dict())
    hidden: Tensor = getattr(model, model.base_model_prefix)(input_ids=torch.tensor([ids])).last_hidden_state[0]
    return hidden


@torch.no_grad()
def test_the_slow_computation_is_that_of_the_library() -> None:
    network = shake(make_network("lean")).eval()
    ids = make_tokenizer()(TEXTS[1], truncation=True, max_length=MAX_LENGTH)["input_ids"]
    for slow, stock in zip(slow_attentions(network, ids), stock_attentions(network, ids), strict=True):
        torch.testing.assert_close(slow, stock, atol=1e-5, rtol=1e-4)


def test_padding_is_not_counted() -> None:
    attention = torch.tensor([[[0.1, 0.9, 0.0], [0.8, 0.2, 0.0], [0.5, 0.5, 0.0]]])[None]  # the third is padding
    found = count_maxima([attention], torch.tensor([[True, True, False]]), torch.tensor([[True, False, False]]))
    assert found.to_dict() == {"tokens": 2, "neighbours": [[2]], "fixed": [[1]]}


@pytest.mark.parametrize(
    ("neighbours", "fixed", "kind"),
    [(90, 0, "positional"), (89, 11, "other"), (5, 91, "vertical"), (0, 90, "other"), (95, 95, "positional")],
)
def test_nine_tenths_decide(neighbours: int, fixed: int, kind: str) -> None:
    assert Maxima(100, np.array([[neighbours]]), np.array([[fixed]])).kinds == [[kind]]


def test_an_encoder_without_stock_classes_is_refused() -> None:
    network = make_network("lean")
    network.architecture = type("Bag", (), {"name": "bag"})()
    with pytest.raises(InputError, match="the encoder 'bag' is not one of Hugging Face's"):
        TextReader.of(network, make_tokenizer(), MAX_LENGTH)
