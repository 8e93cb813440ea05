"""Checkpoints get vectors for entity markers that their vocabulary lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM

from endtask.config import ModelSettings
from endtask.encoders.checkpoint import check_tokenizer, load_network, open_checkpoint
from endtask.errors import InputError
from endtask.tokenization.special_tokens import add_markers
from tests.encoders.stock_models import save_stock
from tests.tiny import LABELS, make_tokenizer

MARKERS = ("[[", "]]", "<<", ">>")


@pytest.mark.parametrize("architecture", ["bert", "roberta", "lean"])
def test_old_rows_stay_and_new_rows_are_like_them(tmp_path: Path, architecture: str) -> None:
    save_stock(tmp_path, architecture, "masked_lm")
    stock = AutoModelForMaskedLM.from_pretrained(tmp_path)
    old = stock.get_input_embeddings().weight.detach()
    checkpoint = open_checkpoint(str(tmp_path))
    size = len(old) + 500
    network = load_network(checkpoint, ModelSettings(), pad_id=0, labels=LABELS, seed=1, vocabulary=size)
    vectors = network.embeddings.detach()
    assert (len(vectors), network.config.vocab_size) == (size, size)
    assert vectors[: len(old)].equal(old)
    new = vectors[len(old) :]
    assert len(new.unique(dim=0)) == len(new)
    assert torch.allclose(new.mean(0), old.mean(0), atol=4 * float(old.std()) / 500**0.5)
    assert torch.allclose(new.std(0), old.std(0), rtol=0.2)
    bias = dict(network.named_parameters())["heads.masked_lm.bias"]
    assert len(bias) == size
    assert not bias[len(old) :].any()
    again = load_network(checkpoint, ModelSettings(), pad_id=0, labels=LABELS, seed=1, vocabulary=size)
    assert again.embeddings.equal(network.embeddings)


def test_a_smaller_vocabulary_changes_nothing(tmp_path: Path) -> None:
    save_stock(tmp_path, "bert", "masked_lm")
    checkpoint = open_checkpoint(str(tmp_path))
    network = load_network(checkpoint, ModelSettings(), pad_id=0, labels=LABELS, seed=1, vocabulary=5)
    assert len(network.embeddings) == checkpoint.config.vocab_size


def test_only_markers_may_exceed_the_vectors(tmp_path: Path) -> None:
    save_stock(tmp_path, "bert", "masked_lm")  # has three vectors more than the tokenizer has tokens
    checkpoint, tokenizer = open_checkpoint(str(tmp_path)), make_tokenizer()
    add_markers(tokenizer, MARKERS)
    check_tokenizer(checkpoint, tokenizer, key="model.path", markers=MARKERS)
    with pytest.raises(InputError, match=r"key .model\.path.: the tokenizer has \d+ tokens"):
        check_tokenizer(checkpoint, tokenizer, key="model.path")
