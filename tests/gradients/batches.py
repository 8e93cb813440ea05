"""Networks of any small shape in any precision, and batches of random tokens for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.config import ModelSettings
from endtask.encoders.batch import BatchShape, TextBatch, lay_out
from endtask.encoders.network import Network, build_network
from endtask.objectives.masking import Masking
from tests.tiny import shake

CLASSES = 3
PAD, CLS, SEP, MASK = range(4)
VOCABULARY = 40


@dataclass(frozen=True)
class RandomTexts:
    """Texts of random tokens, with what `lay_out` asks of packed texts."""

    texts: list[NDArray[np.int64]]

    @property
    def second(self) -> NDArray[np.int32]:
        return np.asarray([len(text) // 2 for text in self.texts], dtype=np.int32)

    def gather(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        chosen = [self.texts[position] for position in positions]
        return np.concatenate(chosen), np.asarray([len(text) for text in chosen])


def make_network(
    architecture: str = "lean",
    *,
    pooling: str = "auto",
    hidden: int = 8,
    heads: int = 2,
    layers: int = 2,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float64,
    tlm_head: bool = False,
    shaken: bool = True,
) -> Network:
    """A network with weights far from its first ones, unless told otherwise."""
    settings = {
        "architecture": architecture,
        "pooling": pooling,
        "dropout": dropout,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "max_position_embeddings": 16,
    }
    network = build_network(
        ModelSettings.model_validate(settings),
        vocabulary=VOCABULARY,
        special_ids={"pad": PAD, "cls": CLS, "sep": SEP},
        labels=tuple("abc"),
        seed=0,
        tlm_head=tlm_head,
    )
    network.dtype = dtype
    return (shake(network) if shaken else network).to(dtype)


def random_texts(lengths: list[int], seed: int) -> RandomTexts:
    """Texts of so many tokens, [CLS] and [SEP] included."""
    random = np.random.default_rng(seed)
    return RandomTexts(
        [np.concatenate([[CLS], random.integers(MASK + 1, VOCABULARY, size - 2), [SEP]]) for size in lengths]
    )


def masked_batch(
    network: Network,
    lengths: list[int],
    *,
    seed: int = 0,
    probability: float = 0.3,
    fixed_shape: BatchShape | None = None,
) -> TextBatch:
    """Candidates; a random token may be any, [PAD] too, as with the real masking."""
    masking = Masking(probability, MASK, VOCABULARY, (PAD, CLS, SEP, MASK))
    batch = _laid_out(network, lengths, seed, fixed_shape)
    return masking.apply(batch, np.random.default_rng(seed), fixed_shape)


def labelled_batch(
    network: Network, lengths: list[int], *, seed: int = 0, fixed_shape: BatchShape | None = None
) -> TextBatch:
    """Targets."""
    batch = _laid_out(network, lengths, seed, fixed_shape)
    labels = torch.full((len(batch.offsets) - 1,), -100)
    labels[: batch.texts] = torch.from_numpy(np.random.default_rng(seed).integers(CLASSES, size=batch.texts))
    return replace(batch, labels=labels)


def _laid_out(network: Network, lengths: list[int], seed: int, fixed_shape: BatchShape | None) -> TextBatch:
    layout = replace(network.layout(max(lengths)), fixed_shape=fixed_shape)
    return lay_out(random_texts(lengths, seed), np.arange(len(lengths)), layout)  # type: ignore[arg-type]
