"""Texts, a tokenizer and networks small enough to train in a test."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from endtask.config import ModelSettings, TokenizerSettings
from endtask.encoders.batch import TextBatch
from endtask.encoders.network import Network, build_network
from endtask.objectives.masking import Masking
from endtask.tokenization.packed_texts import PackedTexts, pack_examples
from endtask.tokenization.tokenizer import train_tokenizer

ARCHITECTURES = ("lean", "bert", "roberta", "modernbert")
LABELS = ("no", "perhaps", "yes")
MAX_LENGTH = 16
WORDS = [
    "river",
    "stone",
    "cloud",
    "green",
    "apple",
    "candle",
    "window",
    "silver",
    "garden",
    "mountain",
    "paper",
    "letter",
    "music",
    "winter",
    "summer",
    "bridge",
    "ocean",
    "forest",
    "butter",
    "copper",
    "violet",
    "thunder",
    "pepper",
    "shadow",
]


def make_texts(count: int, *, seed: int = 0, longest: int = 12) -> list[str]:
    """Return texts of 1 to `longest` random words."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(1, longest + 1))) for _ in range(count)]


@cache
def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of about a hundred tokens."""
    return train_tokenizer(make_texts(100), TokenizerSettings(vocab_size=100), MAX_LENGTH)


def make_packed(folder: Path, count: int = 24, *, seed: int = 0, pairs: bool = False) -> PackedTexts:
    """Return packed task texts, or pairs of them."""
    firsts, seconds = make_texts(count, seed=seed, longest=6), make_texts(count, seed=seed + 1, longest=6)
    texts = [(first, second if pairs else None) for first, second in zip(firsts, seconds, strict=True)]
    return pack_examples(texts, make_tokenizer(), MAX_LENGTH, folder)


def make_network(architecture: str = "lean", *, seed: int = 0, dropout: float = 0.0, tlm_head: bool = False) -> Network:
    """Return a network of about ten thousand weights."""
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
    return build_network(
        ModelSettings.model_validate({"architecture": architecture, "dropout": dropout, **sizes}),
        vocabulary=len(tokenizer),
        special_ids={"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id},
        labels=LABELS,
        seed=seed,
        tlm_head=tlm_head,
    )


def shake(network: Network) -> Network:
    """Move all weights and biases far from their initial values, so that swapped weights change results."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    return network


def make_masking(probability: float = 0.3) -> Masking:
    """Return the masking of the tiny tokenizer."""
    tokenizer = make_tokenizer()
    return Masking(probability, tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids))


def make_labels(count: int = 24) -> np.ndarray:
    """Return a label for each packed text."""
    return np.arange(count, dtype=np.int64) % len(LABELS)


def by_itself(batch: TextBatch) -> TextBatch:
    """Return the batch as the only one of its stream, so that its mean loss is not scaled."""
    return replace(batch, text_share=1.0, token_share=1.0)
