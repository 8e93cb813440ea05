"""The optimizer against torch's AdamW; skipped steps and exact resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from endtask.config.training import PhaseSettings
from endtask.training.optimizer import Optimizer

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Layer(nn.Module):
    """Matrices under the names of the lean encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.ModuleDict({"Wqkv": nn.Linear(6, 18, bias=False), "Wo": nn.Linear(6, 6, bias=False)})
        self.mlp = nn.ModuleDict({"Wi": nn.Linear(6, 20, bias=False), "Wo": nn.Linear(10, 6, bias=False)})
        self.norm = nn.LayerNorm(6)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = self.attn["Wqkv"](hidden).chunk(3, dim=-1)
        hidden = hidden + self.attn["Wo"](query * key + value)
        left, right = self.mlp["Wi"](self.norm(hidden)).chunk(2, dim=-1)
        return hidden + self.mlp["Wo"](left * right)


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict({"tok_embeddings": nn.Embedding(11, 6)})
        self.position = nn.Embedding(4, 6)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embeddings["tok_embeddings"](ids) + self.position.weight
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class Model(nn.Module):
    """A body and two heads, of which each step trains one."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Body()
        self.heads = nn.ModuleDict({"even": nn.Linear(6, 3), "odd": nn.Linear(6, 3)})

    def loss(self, step: int) -> Tensor:
        random = torch.Generator().manual_seed(step)
        ids = torch.randint(11, (5, 4), generator=random).to(self.encoder.position.weight.device)
        head = self.heads["odd" if step % 2 else "even"]
        return nn.functional.cross_entropy(head(self.encoder(ids).mean(1)), ids[:, 0] % 3)


def make_model() -> Model:
    torch.manual_seed(0)
    return Model()


def make(*, fused: bool = True, **changes: Any) -> tuple[Model, Optimizer]:
    model = make_model()
    settings = PhaseSettings.model_validate({"weight_decay": 0.1, "max_grad_norm": 0.2, **changes})
    return model, Optimizer(model, settings, CPU, learning_rate=0.05, fused=fused)


def train(model: Model, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        model.loss(step).backward()
        optimizer.step(1.0 / (1 + step))


def break_gradient(model: Model) -> None:
    gradient = model.encoder.layers[1].norm.bias.grad
    assert gradient is not None
    gradient[0] = float("inf")


def bits(model: Model, optimizer: Optimizer) -> dict[str, Tensor]:
    """Copies of all weights and all state but the counters."""
    kept = {name: value for name, value in optimizer.state_tensors().items() if not name.startswith("skipped")}
    return {name: value.detach().clone() for name, value in (dict(model.named_parameters()) | kept).items()}


def assert_same_bits(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert (
            value.cpu()
            .view(torch.uint8 if value.ndim else value.dtype)
            .equal(right[name].cpu().view(torch.uint8 if value.ndim else value.dtype))
        ), name


def torch_adamw(model: Model) -> torch.optim.AdamW:
    weights = list(model.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": 0.1},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.9), eps=1e-6, foreach=False)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("max_grad_norm", [None, 0.2, 1e6])
def test_weights_move_as_with_torchs_adamw_and_clipping(fused: bool, max_grad_norm: float | None) -> None:
    rest = {"adam_beta2": 0.9, "max_grad_norm": max_grad_norm}
    model, optimizer = make(fused=fused, **rest)
    twin = make_model()
    oracle = torch_adamw(twin)
    for step in range(6):
        model.loss(step).backward()
        twin.loss(step).backward()
        for group in oracle.param_groups:
            group["lr"] = 0.05 / (1 + step)
        norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), max_grad_norm or float("inf"))
        outcome = optimizer.step(1.0 / (1 + step))
        oracle.step()
        oracle.zero_grad()
        torch.testing.assert_close(outcome.grad_norm, norm, rtol=1e-4, atol=0)
        assert not outcome.skipped
    for name, weight in twin.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), weight, rtol=1e-4, atol=1e-5, msg=name)


def test_gradients_are_dropped_after_a_step() -> None:
    model, optimizer = make()
    train(model, optimizer, range(1))
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("done", [0, 3])
def test_a_skipped_step_changes_no_bit(fused: bool, done: int) -> None:
    model, optimizer = make(fused=fused)
    train(model, optimizer, range(done))
    before = bits(model, optimizer)
    model.loss(done).backward()
    break_gradient(model)
    outcome = optimizer.step(1.0)
    assert outcome.skipped
    assert not outcome.grad_norm.isfinite()
    assert_same_bits(before, bits(model, optimizer))
    assert all(weight.grad is None for weight in model.parameters())


def test_a_run_with_a_skipped_step_goes_on_as_if_it_had_not_been() -> None:
    model, optimizer = make()
    unbroken, other = make()
    train(model, optimizer, range(3))
    model.loss(9).backward()
    break_gradient(model)
    optimizer.step(1.0)
    train(model, optimizer, range(3, 6))
    train(unbroken, other, range(6))
    assert_same_bits(bits(unbroken, other), bits(model, optimizer))


def test_skipped_steps_are_counted_and_a_good_one_ends_the_row() -> None:
    model, optimizer = make()
    counts = []
    for step, broken in enumerate([False, True, True, False, True]):
        model.loss(step).backward()
        if broken:
            break_gradient(model)
        optimizer.step(1.0)
        counts.append((int(optimizer.skipped_total), int(optimizer.skipped_in_a_row)))
    assert counts == [(0, 0), (1, 1), (2, 2), (2, 0), (3, 1)]


@pytest.mark.parametrize("fused", [True, False])
def test_a_loaded_state_goes_on_bit_for_bit(fused: bool, tmp_path: Path) -> None:
    unbroken, whole = make(fused=fused)
    first, before = make(fused=fused)
    for model, optimizer in ((unbroken, whole), (first, before)):
        train(model, optimizer, range(3))
        model.loss(0).backward()
        break_gradient(model)
        optimizer.step(1.0)
        optimizer.scale_rate(0.3)
    save_file(before.state_tensors(), tmp_path / "state.safetensors")
    second, after = make(fused=fused)
    second.load_state_dict(first.state_dict())
    after.load_state_tensors(load_file(tmp_path / "state.safetensors"))
    assert (int(after.skipped_total), int(after.skipped_in_a_row), after.rate_scale) == (1, 1, 0.3)
    train(unbroken, whole, range(3, 7))
    train(second, after, range(3, 7))
    assert_same_bits(bits(unbroken, whole), bits(second, after))
    assert int(after.skipped_in_a_row) == 0


def test_a_scaled_rate_is_a_lower_factor() -> None:
    (one, scaled), (two, plain) = make(), make()
    scaled.scale_rate(0.5)
    scaled.scale_rate(0.5)
    for model in (one, two):
        model.loss(0).backward()
    scaled.step(0.8)
    plain.step(0.2)
    for name, weight in one.named_parameters():
        torch.testing.assert_close(weight, two.get_parameter(name), msg=name)


def test_state_is_there_before_the_first_step_and_as_torch_makes_it() -> None:
    model, optimizer = make()
    twin = make_model()
    oracle = torch_adamw(twin)
    for step in (0, 1):  # one for each head
        twin.loss(step).backward()
    oracle.step()
    made = {f"{name}/{key}" for name, weight in twin.named_parameters() for key in oracle.state[weight]}
    assert optimizer.state_tensors().keys() == made | {"skipped_total", "skipped_in_a_row", "rate_scale"}
    names = optimizer.state_tensors().keys()
    train(model, optimizer, range(2))
    assert optimizer.state_tensors().keys() == names


def test_parameters_without_a_gradient_are_left_alone() -> None:
    model, optimizer = make()
    before = bits(model, optimizer)
    train(model, optimizer, range(1))
    after = bits(model, optimizer)
    odd = {name for name in before if name.startswith("heads.odd")}
    assert len(odd) == 2 * 4
    assert_same_bits({name: before[name] for name in odd}, {name: after[name] for name in odd})
    assert not before["heads.even.weight"].equal(after["heads.even.weight"])


def test_frozen_parameters_have_no_state() -> None:
    model = make_model()
    model.encoder.requires_grad_(False)
    optimizer = Optimizer(model, PhaseSettings(), CPU, learning_rate=0.1)
    before = bits(model, optimizer)
    train(model, optimizer, range(2))
    assert not any(name.startswith("encoder") for name in optimizer.state_tensors())
    assert before["encoder.position.weight"].equal(model.encoder.position.weight)
    assert not before["heads.odd.bias"].equal(model.heads["odd"].bias)


BIAS = "heads.odd.bias/exp_avg"
CHANGES: dict[str, tuple[Callable[[dict[str, Tensor]], object], str]] = {
    "missing": (lambda state: state.pop(BIAS), f"lacks {BIAS}"),
    "unexpected": (lambda state: state.update(extra=state[BIAS]), "does not know extra"),
    "shape": (lambda state: state.update({BIAS: torch.zeros(4)}), f"shape or type of {BIAS}"),
    "type": (lambda state: state.update({BIAS: state[BIAS].half()}), f"shape or type of {BIAS}"),
    "empty": (lambda state: state.clear(), r"lacks encoder[^,]*(, [^,]+){4} and \d+ more$"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_state_that_does_not_fit_is_refused_and_named(name: str) -> None:
    change, message = CHANGES[name]
    _, other = make()
    other.scale_rate(0.5)
    state = {tensor: value.clone() + 1 for tensor, value in other.state_tensors().items()}
    change(state)
    model, optimizer = make()
    before = bits(model, optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_tensors(state)
    assert_same_bits(before, bits(model, optimizer))


def test_a_step_without_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match="backward"):
        make()[1].step(1.0)


def test_weights_in_few_bits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"float32: encoder\.embeddings.* and \d+ more"):
        Optimizer(make_model().bfloat16(), PhaseSettings(), CPU, learning_rate=0.1)


class NoReading(TorchDispatchMode):
    """Fails where a tensor's value is asked for on the host."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        return function(*args, **(kwargs or {}))


def test_a_step_reads_no_value_on_the_host() -> None:
    model, optimizer = make()
    with NoReading(), pytest.raises(AssertionError):
        float(torch.ones(()))
    for step in range(2):
        model.loss(step).backward()
        with NoReading():
            optimizer.step(0.5)


@needs_cuda
def test_a_step_on_a_gpu_waits_for_nothing_and_skips_alike() -> None:
    model = make_model().cuda()
    settings = PhaseSettings.model_validate({"max_grad_norm": 0.2})
    optimizer = Optimizer(model, settings, torch.device("cuda"), learning_rate=0.05)
    train(model, optimizer, range(2))
    before = bits(model, optimizer)
    model.loss(2).backward()
    break_gradient(model)
    torch.cuda.set_sync_debug_mode("error")
    try:
        outcome = optimizer.step(1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert outcome.skipped
    assert int(optimizer.skipped_in_a_row) == 1
    assert_same_bits(before, bits(model, optimizer))


@needs_cuda
def test_a_gpu_takes_the_same_steps_as_a_cpu() -> None:
    model, optimizer = make()
    other = make_model().cuda()
    settings = PhaseSettings.model_validate({"weight_decay": 0.1, "max_grad_norm": 0.2})
    on_gpu = Optimizer(other, settings, torch.device("cuda"), learning_rate=0.05)
    train(model, optimizer, range(4))
    train(other, on_gpu, range(4))
    for name, weight in model.named_parameters():
        torch.testing.assert_close(other.get_parameter(name).cpu(), weight, rtol=1e-3, atol=1e-4, msg=name)
