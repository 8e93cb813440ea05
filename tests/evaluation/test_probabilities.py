"""Class probabilities do not depend on the batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch._dynamo.testing import CompileCounter

from endtask.encoders.batch import lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.huggingface import to_classifier
from endtask.encoders.network import TLM_TASK, Network
from endtask.evaluation.probabilities import class_probabilities
from endtask.tokenization.packed_texts import PackedTexts, pack_examples, pack_windows
from tests.tiny import (
    ARCHITECTURES,
    LABELS,
    MAX_LENGTH,
    WORDS,
    make_network,
    make_packed,
    make_texts,
    make_tokenizer,
    shake,
)

CPU = DeviceContext(torch.device("cpu"))


def probabilities(
    network: Network, texts: PackedTexts, batch_size: int = 8, context: DeviceContext = CPU
) -> NDArray[np.float32]:
    return class_probabilities(network, texts, batch_size=batch_size, context=context)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batch_size_changes_nothing(architecture: str, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture)), make_packed(tmp_path, pairs=architecture == "bert")
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
    shuffled = pack_examples(
        [(given[context], None) for context in order], make_tokenizer(), MAX_LENGTH, tmp_path / "b"
    )
    np.testing.assert_allclose(probabilities(network, shuffled), probabilities(network, straight)[order], atol=1e-6)


def test_dropout_is_off_and_the_same_call_gives_the_same_bits(tmp_path: Path) -> None:
    network, texts = make_network(dropout=0.5), make_packed(tmp_path)
    network.train()
    first = probabilities(network, texts)
    assert np.array_equal(first, probabilities(network, texts))


@pytest.fixture(scope="module")
def trained() -> Network:
    """A network whose answers differ from text to text."""
    return shake(make_network())


@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=4),
    stride=st.integers(3, MAX_LENGTH - 2),
    batch_size=st.integers(1, 9),
)
@settings(max_examples=20, deadline=None)
def test_windows_are_averaged(
    trained: Network, tmp_path_factory: pytest.TempPathFactory, texts: list[str], stride: int, batch_size: int
) -> None:
    """Against the stock classifier, text by text and window by window."""
    tokenizer, model = make_tokenizer(), to_classifier(trained)
    packed = pack_windows(texts, tokenizer, MAX_LENGTH, stride, tmp_path_factory.mktemp("windows"))
    expected = []
    for text in texts:
        tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        each, start = [], 0
        while not each or start - stride + MAX_LENGTH - 2 < len(tokens):
            window = tokens[start : start + MAX_LENGTH - 2]
            ids = torch.tensor([[tokenizer.cls_token_id, *window, tokenizer.sep_token_id]])
            with torch.inference_mode():
                each.append(model(ids).logits[0].softmax(-1).numpy())
            start += stride
        expected.append(np.mean(each, axis=0))
    np.testing.assert_allclose(probabilities(trained, packed, batch_size), np.stack(expected), atol=2e-6)


def test_a_single_window_keeps_its_bits(trained: Network, tmp_path: Path) -> None:
    given_texts = make_texts(9, longest=3)
    plain = pack_examples([(text, None) for text in given_texts], make_tokenizer(), MAX_LENGTH, tmp_path / "plain")
    windows = pack_windows(given_texts, make_tokenizer(), MAX_LENGTH, 4, tmp_path / "windows")
    assert len(windows) == len(plain)
    assert np.array_equal(probabilities(trained, windows), probabilities(trained, plain))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU that has no bfloat16 of its own
def test_the_precision_of_the_place_is_used(tmp_path: Path) -> None:
    network, texts = shake(make_network()), make_packed(tmp_path)
    exact = probabilities(network, texts)
    network.dtype = torch.bfloat16
    rounded = probabilities(network, texts, context=DeviceContext(torch.device("cpu"), torch.bfloat16))
    assert rounded.dtype == np.float32
    assert not np.array_equal(exact, rounded)
    np.testing.assert_allclose(rounded, exact, atol=0.05)


def test_stage_1s_own_head_can_be_asked(tmp_path: Path) -> None:
    plain, texts = make_network(), make_packed(tmp_path)
    network = shake(Network(plain.architecture, plain.config, seed=0, tlm_head=True))
    own = class_probabilities(network, texts, batch_size=8, context=CPU, head=TLM_TASK)
    batch = lay_out(texts, np.arange(len(texts)), network.layout(MAX_LENGTH))
    with torch.inference_mode():
        first = network(batch)[batch.offsets[:-1].long()]
        expected = network.heads[TLM_TASK](first).softmax(-1)
    np.testing.assert_allclose(own, expected, atol=2e-6)
    assert not np.allclose(own, probabilities(network, texts))


def test_nothing_is_compiled_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CompileCounter()
    compile_module = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **options: compile_module(self, backend=counter, **options)
    )
    network, texts = shake(make_network()), make_packed(tmp_path)
    expected = probabilities(network, texts)
    network.compile_parts()
    assert np.array_equal(probabilities(network, texts, batch_size=5), probabilities(network, texts, batch_size=5))
    np.testing.assert_allclose(probabilities(network, texts), expected, atol=2e-6)
    assert counter.frame_count == 0
