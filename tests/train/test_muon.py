"""Muon against torch's own, and its batched orthogonalisation against singular values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from endtask.train import muon
from endtask.train.muon import COEFFICIENTS, NEWTON_SCHULZ_STEPS, Muon, orthogonalize, split_fused

GO, SKIP = torch.tensor(False), torch.tensor(True)
SIZES = st.integers(min_value=1, max_value=12)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameter(*shape: int, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(random(*shape, seed=seed))


def by_singular_values(matrix: Tensor) -> Tensor:
    """What Newton-Schulz computes, in float64: the quintic applied to each singular value."""
    first, third, fifth = COEFFICIENTS
    left, values, right = torch.linalg.svd(matrix.double() / matrix.double().norm(), full_matrices=False)
    for _ in range(NEWTON_SCHULZ_STEPS):
        values = first * values + third * values**3 + fifth * values**5
    return left @ values.diag() @ right


@given(count=st.integers(min_value=1, max_value=4), rows=SIZES, columns=SIZES, seed=st.integers(0, 999))
@settings(max_examples=50, deadline=None)
def test_every_matrix_of_a_batch_gets_the_quintic_of_its_singular_values(
    count: int, rows: int, columns: int, seed: int
) -> None:
    matrices = random(count, rows, columns, seed=seed)
    expected = torch.stack([by_singular_values(matrix) for matrix in matrices])
    torch.testing.assert_close(orthogonalize(matrices).double(), expected, rtol=0, atol=1e-3)


def test_singular_values_come_near_one_and_length_does_not_matter() -> None:
    matrices = random(3, 24, 16)
    out = orthogonalize(matrices)
    values = torch.linalg.svdvals(out)
    assert values.min() > 0.5
    assert values.max() < 1.3
    torch.testing.assert_close(orthogonalize(1000 * matrices), out, rtol=0, atol=1e-4)


def test_a_gradient_of_zeros_gives_no_update() -> None:
    assert orthogonalize(torch.zeros(2, 3, 4)).equal(torch.zeros(2, 3, 4))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon, the oracle, came with torch 2.9")
@pytest.mark.parametrize("shape", [(16, 16), (32, 8), (8, 32)])
def test_a_single_matrix_moves_as_with_torchs_muon(shape: tuple[int, int]) -> None:
    ours, theirs = parameter(*shape), parameter(*shape)
    # Theirs orthogonalises in bfloat16 on every device.
    mine = Muon({"weight": ours}, weight_decay=0.1, dtype=torch.bfloat16)
    oracle = torch.optim.Muon([theirs], weight_decay=0.1, momentum=0.95, adjust_lr_fn="original")
    for step in range(6):
        rate = 0.05 / (step + 1)
        oracle.param_groups[0]["lr"] = rate
        ours.grad, theirs.grad = random(*shape, seed=step), random(*shape, seed=step)
        mine.step(rate, divisor=None, skipped=GO)
        oracle.step()
    moved = (theirs - random(*shape)).norm()
    # Equal here; where addmm and baddbmm round otherwise, bfloat16 leaves each some 0.012 from the exact result.
    assert (ours - theirs).norm() < 0.03 * moved
    torch.testing.assert_close(mine.momentum_buffers["weight"], oracle.state[theirs]["momentum_buffer"])


@pytest.mark.parametrize(("name", "count"), [("body.0.attn.Wqkv.weight", 3), ("body.0.mlp.Wi.weight", 2)])
def test_a_fused_projection_moves_like_its_parts(name: str, count: int) -> None:
    fused = parameter(count * 4, 6)
    parts = [nn.Parameter(part.clone()) for part in fused.detach().chunk(count)]
    together = Muon({name: fused}, weight_decay=0.1)
    apart = Muon({str(number): part for number, part in enumerate(parts)}, weight_decay=0.1)
    for step in range(3):
        fused.grad = random(count * 4, 6, seed=step)
        for part, gradient in zip(parts, fused.grad.chunk(count), strict=True):
            part.grad = gradient.clone()
        together.step(0.1, divisor=None, skipped=GO)
        apart.step(0.1, divisor=None, skipped=GO)
    torch.testing.assert_close(fused.detach(), torch.cat([part.detach() for part in parts]))


@pytest.mark.parametrize("name", ["attn.Wqkv.weight", "mlp.Wi.weight"])
def test_a_fused_projection_does_not_move_like_one_matrix(name: str) -> None:
    weights = {name: parameter(12, 6), "one": parameter(12, 6)}
    for weight in weights.values():
        weight.grad = random(12, 6, seed=1)
    Muon(weights, weight_decay=0.0).step(0.1, divisor=None, skipped=GO)
    assert not torch.allclose(weights[name], weights["one"])


def test_other_names_are_not_split() -> None:
    assert len(split_fused("body.0.mlp.Wo.weight", torch.zeros(6, 6))) == 1
    assert len(split_fused("body.0.attention.self.query.weight", torch.zeros(6, 6))) == 1


def test_matrices_of_one_shape_run_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Size] = []

    def watched(matrices: Tensor, dtype: torch.dtype) -> Tensor:
        seen.append(matrices.shape)
        return orthogonalize(matrices, dtype)

    monkeypatch.setattr(muon, "orthogonalize", watched)
    shapes = {"attn.Wqkv.weight": (12, 4), "attn.Wo.weight": (4, 4), "mlp.Wi.weight": (12, 4), "mlp.Wo.weight": (4, 6)}
    weights = {f"{layer}.{name}": parameter(*shape) for layer in range(3) for name, shape in shapes.items()}
    for weight in weights.values():
        weight.grad = torch.ones_like(weight)
    Muon(weights, weight_decay=0.0).step(0.1, divisor=None, skipped=GO)
    assert sorted(seen) == [(3, 4, 6), (6, 6, 4), (12, 4, 4)]


def test_tall_matrices_take_longer_updates_and_decay_is_decoupled() -> None:
    weight = parameter(8, 2)
    weight.grad = random(8, 2, seed=1)
    direction = orthogonalize(weight.grad[None])[0]
    before = weight.detach().clone()
    Muon({"weight": weight}, weight_decay=0.5).step(0.1, divisor=None, skipped=GO)
    torch.testing.assert_close(weight.detach(), before * (1 - 0.1 * 0.5) - 0.1 * 2.0 * direction)


def test_gradients_are_divided_before_they_enter_the_momentum() -> None:
    weight = parameter(4, 4)
    weight.grad = random(4, 4, seed=1)
    optimizer = Muon({"weight": weight}, weight_decay=0.0)
    optimizer.step(0.1, divisor=torch.tensor(8.0), skipped=GO)
    torch.testing.assert_close(optimizer.momentum_buffers["weight"], 0.05 * random(4, 4, seed=1) / 8)


def test_a_skipped_step_changes_no_bit() -> None:
    weight = parameter(6, 4)
    with torch.no_grad():
        weight[0] = -0.0  # equal to zero, yet other bits
    optimizer = Muon({"mlp.Wi.weight": weight}, weight_decay=0.1)
    optimizer.momentum_buffers["mlp.Wi.weight"].copy_(random(6, 4, seed=3))
    before = [tensor.detach().clone() for tensor in (weight, optimizer.momentum_buffers["mlp.Wi.weight"])]
    weight.grad = torch.full((6, 4), float("nan"))
    optimizer.step(0.1, divisor=torch.tensor(float("nan")), skipped=SKIP)
    for was, now in zip(before, (weight.detach(), optimizer.momentum_buffers["mlp.Wi.weight"]), strict=True):
        assert was.view(torch.int32).equal(now.view(torch.int32))


def test_a_matrix_without_a_gradient_is_left_alone() -> None:
    used, unused = parameter(4, 4), parameter(4, 4)
    used.grad = random(4, 4, seed=1)
    optimizer = Muon({"used": used, "unused": unused}, weight_decay=0.1)
    optimizer.momentum_buffers["unused"].fill_(1.0)
    optimizer.step(0.1, divisor=None, skipped=GO)
    assert unused.equal(random(4, 4))
    assert optimizer.momentum_buffers["unused"].equal(torch.ones(4, 4))
    assert not used.equal(random(4, 4))
