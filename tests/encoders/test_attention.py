"""Attention stays inside each text with every available backend, against a loop over texts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from endtask.encoders import attention
from endtask.encoders.attention import Backend, attend, attention_metadata, choose_backend
from endtask.encoders.batch import BatchShape, Layout, TextBatch, lay_out
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.tokenization.packed_texts import PackedTexts
from tests.encoders.test_lean import both_losses, full_batch, gradients
from tests.tiny import make_network, make_packed, shake

CPU = torch.device("cpu")
LONGEST, HEADS, SIZE = 9, 2, 64
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


def texts_of(folder: Path, lengths: list[int]) -> PackedTexts:
    """Packed texts of these lengths; attention does not see their tokens."""
    folder.mkdir(exist_ok=True)
    np.zeros(sum(lengths), dtype=np.uint16).tofile(folder / "tokens.bin")
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    np.save(folder / "second.npy", np.array(lengths, dtype=np.int32))
    (folder / "shape.json").write_text(json.dumps({"tokens": sum(lengths), "dtype": "uint16"}))
    return PackedTexts(folder)


def laid_out(folder: Path, lengths: list[int], *, grid: bool = True, spare: int | None = None) -> TextBatch:
    """A batch of texts of these lengths, in a shape with `spare` tokens and three more texts if asked."""
    fixed_shape = None if spare is None else BatchShape(sum(lengths) + spare, len(lengths) + 3 + spare // LONGEST)
    return lay_out(
        texts_of(folder, lengths), np.arange(len(lengths)), Layout(0, LONGEST, grid=grid, fixed_shape=fixed_shape)
    )


def parts(tokens: int, **options: Any) -> list[Tensor]:
    """Query, key and value: (N, heads, size) each."""
    random = torch.Generator().manual_seed(0)
    values = torch.randn(3, tokens, HEADS, SIZE, generator=random, dtype=torch.float64)
    return [value.to(**options).requires_grad_() for value in values]


def loop(query: Tensor, key: Tensor, value: Tensor, lengths: list[int]) -> Tensor:
    """Softmax attention of each text by itself, written out."""
    out = []
    split = (part.split(lengths) for part in (query, key, value))
    for one, other, content in zip(*split, strict=True):
        weights = torch.einsum("qhs,khs->hqk", one, other) / math.sqrt(SIZE)
        out.append(torch.einsum("hqk,khs->qhs", weights.softmax(-1), content))
    return torch.cat(out)


def check_padded(batch: TextBatch, lengths: list[int]) -> None:
    """Outputs and gradients of the real tokens are the loop's, and nothing comes from padding."""
    real = sum(lengths)
    ours, theirs = parts(len(batch.input_ids), dtype=torch.float64), parts(len(batch.input_ids), dtype=torch.float64)
    out = attend(*ours, attention_metadata("padded", batch))
    expected = loop(*(part[:real] for part in theirs), lengths)
    assert out.shape == ours[0].shape
    assert out[:real].allclose(expected, atol=1e-12)
    out[:real].square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert one.grad.allclose(other.grad, atol=1e-12)


@given(lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=8), spare=st.none() | st.integers(0, 40))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_padded_table_gives_what_a_loop_gives(lengths: list[int], spare: int | None, tmp_path: Path) -> None:
    check_padded(laid_out(tmp_path / "texts", lengths, spare=spare), lengths)


def test_vectorized_gradients_of_a_padded_table(tmp_path: Path) -> None:
    """`torch.func`, with which peers take the gradient of each text alone, can look through the table."""
    batch = laid_out(tmp_path, [3, 1, 5])
    metadata = attention_metadata("padded", batch)
    query, key, value = parts(len(batch.input_ids), dtype=torch.float64)

    def loss(scale: torch.Tensor) -> torch.Tensor:
        return attend(query * scale, key, value * scale, metadata).square().sum()

    scales = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    at_once = torch.func.vmap(torch.func.grad(loss))(scales)
    assert at_once.allclose(torch.stack([torch.func.grad(loss)(scale) for scale in scales]))
    step = 1e-6
    slopes = torch.stack([(loss(scale + step) - loss(scale - step)) / (2 * step) for scale in scales])
    assert at_once.allclose(slopes, rtol=1e-6)


def test_texts_of_one_length_need_no_indices(tmp_path: Path) -> None:
    batch = laid_out(tmp_path, [5] * 4)
    assert attention_metadata("padded", batch).grid is None
    check_padded(batch, [5] * 4)
    assert attention_metadata("padded", laid_out(tmp_path, [5, 5, 4])).grid is not None


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@given(lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=8), spare=st.none() | st.integers(0, 40))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flex_gives_what_a_loop_gives(lengths: list[int], spare: int | None, tmp_path: Path) -> None:
    """Uncompiled, on the CPU: the same mask that the compiled kernel is made from; CPUs have no way back."""
    from torch.nn.attention.flex_attention import create_block_mask

    batch = laid_out(tmp_path / "texts", lengths, grid=False, spare=spare)
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_compiled_block_mask", lambda: create_block_mask)
        given_parts = parts(len(batch.input_ids), dtype=torch.float32)
        out = attend(*(part.detach() for part in given_parts), attention_metadata("flex", batch))
    real = sum(lengths)
    assert out[:real].allclose(loop(*(part[:real] for part in given_parts), lengths), atol=1e-5)


@needs_cuda
@pytest.mark.parametrize("backend", ["varlen", "flex"])
@pytest.mark.parametrize("spare", [None, 0, 40])
def test_gpu_kernels_give_what_a_loop_gives(backend: Backend, spare: int | None, tmp_path: Path) -> None:
    device, lengths = torch.device("cuda"), [3, 9, 1, 7, 9]
    _skip_where_absent(backend, device)
    batch = laid_out(tmp_path, lengths, grid=False, spare=spare).to(device)
    real = sum(lengths)
    ours, theirs = (parts(len(batch.input_ids), dtype=torch.bfloat16, device=device) for _ in range(2))
    work = torch.compile(attend) if backend == "flex" else attend
    out = work(*ours, attention_metadata(backend, batch))
    expected = loop(*(part[:real].float() for part in theirs), lengths)
    assert out[:real].float().allclose(expected, atol=2e-2, rtol=2e-2)
    out[:real].float().square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert one.grad[:real].float().allclose(other.grad[:real].float(), atol=1e-1, rtol=1e-1)


@needs_cuda
@pytest.mark.parametrize("backend", ["varlen", "flex"])
def test_gpu_kernels_train_as_the_padded_table_does(backend: Backend, tmp_path: Path) -> None:
    """A whole network in bfloat16: losses and the direction of every gradient."""
    device = torch.device("cuda")
    _skip_where_absent(backend, device)
    texts = make_packed(tmp_path, pairs=True)
    found = {one: _losses_and_gradients(one, texts, device) for one in (backend, "padded")}
    (ours, our_gradients), (theirs, their_gradients) = found[backend], found["padded"]
    assert ours == pytest.approx(theirs, rel=2e-2)
    for name, value in our_gradients.items():
        alike = torch.nn.functional.cosine_similarity(value.flatten(), their_gradients[name].flatten(), dim=0)
        assert alike > 0.99 or their_gradients[name].norm() < 1e-3, name


def _losses_and_gradients(
    backend: str, texts: PackedTexts, device: torch.device
) -> tuple[list[float], dict[str, Tensor]]:
    network = _gpu_network(backend).to(device)
    if backend == "flex":
        network.compile_parts()
    batch = full_batch(network, texts, BatchShape(tokens=13, texts=40, masked=128)).to(device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        losses = both_losses(network, batch)
    return [loss.item() for loss in losses], gradients(network, sum(losses))  # type: ignore[arg-type]


def _gpu_network(backend: str) -> Network:
    from tests.encoders.test_network import build  # heads of 16 numbers, the least that GPU kernels take

    network = shake(build("lean", hidden_size=32, dropout=0.0))
    network.backend, network.dtype = backend, torch.bfloat16  # type: ignore[assignment]
    return network


def _skip_where_absent(backend: str, device: torch.device) -> None:
    if not attention._works(backend, device, torch.bfloat16, True, 64):
        pytest.skip(f"{backend} attention does not work with this torch and GPU")


def test_layouts_carry_a_grid_only_where_it_is_used() -> None:
    network = make_network("lean")
    assert network.layout(16).grid
    network.backend = "varlen"
    assert not network.layout(16).grid
    stock = make_network("bert")
    assert stock.layout(16).grid
    assert stock.layout(16).padded
    stock.backend = "varlen"
    assert not stock.layout(16).grid
    assert not stock.layout(16).padded


def test_the_cpu_has_the_padded_table_only() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for fixed in (False, True):
            assert choose_backend("auto", CPU, dtype, fixed_shapes=fixed) == "padded"
            assert choose_backend("padded", CPU, dtype, fixed_shapes=fixed) == "padded"


@pytest.mark.parametrize("asked", ["varlen", "flex"])
def test_a_backend_that_does_not_work_here_is_one_line(asked: str) -> None:
    message = (
        rf"key 'model.attention': {asked} does not work here \(cpu, torch.float32, torch .*auto takes what works\)"
    )
    with pytest.raises(InputError, match=message) as raised:
        choose_backend(asked, CPU, torch.float32, fixed_shapes=True)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("varlen", "flex", "dtype", "fixed", "chosen"),
    [
        (True, True, torch.bfloat16, True, "varlen"),
        (True, True, torch.bfloat16, False, "varlen"),
        (True, True, torch.float32, True, "flex"),  # the variable-length kernel has half precision only
        (True, True, torch.float32, False, "padded"),  # flex would compile anew for every shape
        (False, True, torch.bfloat16, True, "flex"),
        (False, True, torch.bfloat16, False, "padded"),
        (False, False, torch.bfloat16, True, "padded"),
    ],
)
def test_the_fastest_that_works_is_chosen(
    varlen: bool, flex: bool, dtype: torch.dtype, fixed: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_varlen_works", lambda device, size: varlen)
    monkeypatch.setattr(attention, "_flex_works", lambda device: flex)
    assert choose_backend("auto", CPU, dtype, fixed_shapes=fixed) == chosen
    for asked in ("varlen", "flex"):
        works = {"varlen": varlen and dtype == torch.bfloat16, "flex": flex and fixed}[asked]
        if works:
            assert choose_backend(asked, CPU, dtype, fixed_shapes=fixed) == asked
        else:
            with pytest.raises(InputError, match=f"{asked} does not work here"):
                choose_backend(asked, CPU, dtype, fixed_shapes=fixed)


@pytest.mark.parametrize("error", [ImportError, RuntimeError, TypeError])
def test_a_kernel_that_is_missing_or_fails_is_passed_over(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise error("not in this build")

    monkeypatch.setattr(attention, "_finite_after_backward", fail)
    monkeypatch.setattr(torch, "tensor", lambda *_, **__: None)
    assert not attention._varlen_works.__wrapped__(torch.device("cuda"), 64)
    monkeypatch.setattr(torch, "arange", fail)
    assert not attention._flex_works.__wrapped__(torch.device("cuda"))
