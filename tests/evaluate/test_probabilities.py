"""Class probabilities do not depend on how texts are put into batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from endtask.evaluate.probabilities import class_probabilities
from endtask.models.network import Network
from endtask.text.packed import PackedTexts, pack_examples
from tests.tiny import ARCHITECTURES, LABELS, MAX_LENGTH, make_network, make_packed, make_texts, make_tokenizer


def probabilities(network: Network, texts: PackedTexts, batch_size: int = 8) -> NDArray[np.float32]:
    return class_probabilities(network, texts, batch_size=batch_size, device=torch.device("cpu"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batch_size_changes_nothing(architecture: str, tmp_path: Path) -> None:
    network, texts = make_network(architecture), make_packed(tmp_path, pairs=architecture == "bert")
    one_by_one = probabilities(network, texts, batch_size=1)
    assert one_by_one.shape == (len(texts), len(LABELS))
    np.testing.assert_allclose(one_by_one.sum(axis=1), 1.0, rtol=1e-5)
    assert len(np.unique(one_by_one[:, 0])) > len(texts) // 2, "texts must differ for this to show anything"
    for batch_size in (3, 8, 100):
        np.testing.assert_allclose(probabilities(network, texts, batch_size), one_by_one, atol=1e-6)


def test_rows_follow_the_order_of_the_texts(tmp_path: Path) -> None:
    network, given = make_network(), make_texts(20)
    order = np.random.default_rng(3).permutation(len(given))
    straight = pack_examples([(text, None) for text in given], make_tokenizer(), MAX_LENGTH, tmp_path / "a")
    shuffled = pack_examples([(given[place], None) for place in order], make_tokenizer(), MAX_LENGTH, tmp_path / "b")
    np.testing.assert_allclose(probabilities(network, shuffled), probabilities(network, straight)[order], atol=1e-6)


def test_dropout_is_off_and_the_same_call_gives_the_same_bits(tmp_path: Path) -> None:
    network, texts = make_network(dropout=0.5), make_packed(tmp_path)
    network.train()
    first = probabilities(network, texts)
    assert np.array_equal(first, probabilities(network, texts))
