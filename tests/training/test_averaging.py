"""The moving average of weights against a sum written out, in a phase and through its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from endtask.encoders.weights import load_tensors
from endtask.training.averaging import Averaging
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.loop import build_optimizer, train
from endtask.training.phase_runner import Callback, TrainState, run_phase

from .conftest import MakePhase
from .numbers import TwoLayers, number_phase
from .test_optimizer import NoReading
from .test_phase_runner import check_resume, same, weights_of

DECAY = 0.8
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def by_hand(history: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """The weights after each step, weighed, summed and divided by the sum of what they weigh."""
    weights = [decay ** (len(history) - 1 - number) for number in range(len(history))]
    return {
        name: sum((weight * one[name].double() for weight, one in zip(weights, history, strict=True)), torch.zeros(()))
        / sum(weights)
        for name in history[0]
    }


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Alike but for the rounding of float32."""
    return one.keys() == other.keys() and all(
        value.allclose(other[name].float(), rtol=1e-4, atol=2e-6) for name, value in one.items()
    )


def shaken(module: nn.Module, steps: int) -> list[dict[str, Tensor]]:
    """Move a module's weights anywhere, and say where they were after each step."""
    history = []
    for _ in range(steps):
        for weight in module.parameters():
            weight.data.copy_(torch.randn_like(weight))
        history.append(weights_of(module))
    return history


@pytest.mark.parametrize("decay", [0.1, 0.9, 0.9999])
@pytest.mark.parametrize("steps", [1, 2, 30])
def test_it_is_the_weighted_mean_of_all_steps(decay: float, steps: int) -> None:
    module = TwoLayers()
    averaging = Averaging(module, decay)
    history: list[dict[str, Tensor]] = []
    for step in range(1, steps + 1):
        history.extend(shaken(module, 1))
        averaging.update(step)
    assert close(averaging.state(), by_hand(history, decay))
    before = weights_of(module)
    with averaging.applied():
        assert close(weights_of(module), by_hand(history, decay))
    assert same(weights_of(module), before)
    averaging.put_in()
    assert close(weights_of(module), by_hand(history, decay))


def test_what_is_done_in_place_is_undone_even_after_an_error() -> None:
    module = TwoLayers()
    averaging = Averaging(module, DECAY)
    shaken(module, 1)
    before = weights_of(module)

    def fail() -> None:
        assert not same(weights_of(module), before)
        raise RuntimeError("while scoring")

    with pytest.raises(RuntimeError, match="while scoring"), averaging.applied():
        fail()
    assert same(weights_of(module), before)


def test_a_state_of_other_weights_is_refused_and_changes_nothing() -> None:
    averaging, other = Averaging(TwoLayers(), DECAY), Averaging(nn.Linear(2, 2), DECAY)
    before = {name: value.clone() for name, value in averaging.state().items()}
    with pytest.raises(ValueError, match=r"the average is of other weights: \['bias', 'encoder"):
        averaging.load_state(other.state())
    wrong = {name: value[None] for name, value in before.items()}
    with pytest.raises(ValueError, match="the average is of other weights"):
        averaging.load_state(wrong)
    assert same(averaging.state(), before)


def recorded_pause(phase: Any, steps: int) -> tuple[Callback, dict[int, dict[str, Tensor]]]:
    seen: dict[int, dict[str, Tensor]] = {}

    def work(step: int, memory: TrainState) -> dict[str, float]:
        seen[step] = weights_of(phase.network)
        return {}

    return Callback(steps, work), seen


def test_a_phase_scores_and_ends_with_the_average_and_trains_as_without(make_phase: MakePhase, tmp_path: Path) -> None:
    plain, averaged = (make_phase(average_decay=decay) for decay in (None, DECAY))
    history = [weights_of(plain.network) for _ in train(plain, build_optimizer(plain))]
    callback, seen = recorded_pause(averaged, 2)
    run_phase(averaged, tmp_path, label="test", callback=callback)
    assert set(seen) == {2, 4, 6}
    for step, weights in seen.items():
        assert close(weights, by_hand(history[:step], DECAY))
    assert same(weights_of(averaged.network), seen[6])
    tensors, _ = load_tensors(tmp_path / CHECKPOINT)
    raw = {name.removeprefix("network/"): value for name, value in tensors.items() if name.startswith("network/")}
    assert same(raw, history[-1]), "training itself does not see the average"
    kept = {name.removeprefix("average/"): value for name, value in tensors.items() if name.startswith("average/")}
    assert same(kept, {name: seen[6][name] for name in kept})


def test_without_it_a_checkpoint_is_as_before(make_phase: MakePhase, tmp_path: Path) -> None:
    run_phase(make_phase(), tmp_path, label="test")
    assert not any(name.startswith("average/") for name in load_tensors(tmp_path / CHECKPOINT)[0])


def test_a_phase_with_an_average_is_resumed_exactly(tmp_path: Path) -> None:
    check_resume(lambda: number_phase(average_decay=DECAY), tmp_path, range(1, 7))


def test_a_finished_phase_opened_again_ends_with_the_average_too(tmp_path: Path) -> None:
    first, again = number_phase(average_decay=DECAY), number_phase(average_decay=DECAY)
    for phase in (first, again):
        run_phase(phase, tmp_path, label="test")
    assert same(weights_of(first.network), weights_of(again.network))


def test_an_update_reads_no_value_on_the_host() -> None:
    averaging = Averaging(TwoLayers(), DECAY)
    with NoReading():
        averaging.update(1)
        averaging.update(2)


@needs_cuda
def test_an_update_on_a_gpu_waits_for_nothing() -> None:
    averaging = Averaging(TwoLayers().cuda(), DECAY)
    torch.cuda.set_sync_debug_mode("error")
    try:
        averaging.update(1)
        with averaging.applied():
            averaging.update(2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(value.is_cuda for value in averaging.state().values())
