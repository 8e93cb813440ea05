"""A phase in its folder: stopped anywhere and started again, it ends where an unbroken one ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from endtask.errors import InputError
from endtask.models.network import Network
from endtask.models.weights import save_tensors
from endtask.objectives.base import Loss
from endtask.train.checkpoint import CHECKPOINT, load_checkpoint, save_checkpoint
from endtask.train.loop import Phase, build_optimizer, train
from endtask.train.metrics_file import read_metrics
from endtask.train.phase_run import Memory, Pause, run_phase
from tests.tiny import ARCHITECTURES

from .conftest import MakePhase

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


class Killed(BaseException):
    """Stands for the end of the process."""


def weights_of(network: Network) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(value.equal(other[name]) for name, value in one.items())


def score(phase: Phase) -> Callable[[int, Memory], dict[str, float]]:
    """A pause that reads the weights, keeps something in memory and leaves the network in evaluation mode."""

    def work(step: int, memory: Memory) -> dict[str, float]:
        phase.network.eval()
        value = float(next(iter(phase.network.parameters())).detach().abs().sum())
        memory.setdefault("scores", []).append(value)
        return {"dev/score": value}

    return work


def go(phase: Phase, folder: Path, **options: Any) -> Memory:
    pause = Pause(4, score(phase))
    return run_phase(phase, folder, label="test", **{"checkpoint_steps": 3, "pause": pause, **options})


def stop_after(count: int) -> Callable[[], None]:
    """Ends the process at the `count`-th checkpoint."""
    seen = []

    def on_checkpoint() -> None:
        seen.append(None)
        if len(seen) == count:
            raise Killed

    return on_checkpoint


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("device", DEVICES)
def test_a_phase_stopped_at_any_checkpoint_ends_with_the_same_bits(
    make_phase: MakePhase, tmp_path: Path, architecture: str, device: str
) -> None:
    options = {"steps": 10, "device": torch.device(device)}
    unbroken = make_phase(architecture, **options)
    memory = go(unbroken, tmp_path / "unbroken")
    curves = (tmp_path / "unbroken" / "metrics.jsonl").read_text()
    for count in range(1, 6):  # checkpoints after steps 3, 4, 6, 8, 9
        folder = tmp_path / f"stopped-{count}"
        with pytest.raises(Killed):
            go(make_phase(architecture, **options), folder, on_checkpoint=stop_after(count))
        resumed = make_phase(architecture, **options)
        assert go(resumed, folder) == memory
        assert same(weights_of(resumed.network), weights_of(unbroken.network)), count
        assert (folder / "metrics.jsonl").read_text() == curves


@pytest.mark.parametrize("stop", [2, 4, 6])
def test_a_phase_stopped_between_checkpoints_goes_back_to_the_last_one(
    make_phase: MakePhase, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = make_phase(steps=7)
    go(unbroken, tmp_path / "unbroken", pause=None)
    killed = make_phase(steps=7)
    objective = killed.objectives["internal"]
    original, turns = objective.loss, []

    def loss(network: Network, batch: Any) -> Loss:
        turns.append(None)
        if len(turns) * 2 == stop:  # internal batches come at every second step
            raise Killed
        return original(network, batch)

    monkeypatch.setattr(objective, "loss", loss)
    with pytest.raises(Killed):
        go(killed, tmp_path / "killed", pause=None)
    resumed = make_phase(steps=7)
    go(resumed, tmp_path / "killed", pause=None)
    assert same(weights_of(resumed.network), weights_of(unbroken.network))
    rows = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("killed", "unbroken")]
    assert rows[0] == rows[1]


def test_a_phase_killed_while_it_saves_keeps_the_older_checkpoint(
    make_phase: MakePhase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = make_phase()
    go(unbroken, tmp_path / "unbroken", checkpoint_steps=2)
    from safetensors import torch as safetensors_torch

    saves = []

    def save_half(tensors: Any, path: str, metadata: Any) -> None:
        saves.append(None)
        safetensors_torch.save_file(tensors, path, metadata)
        if len(saves) == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("endtask.models.weights.save_file", save_half)
        with pytest.raises(Killed):
            go(make_phase(), tmp_path / "killed", checkpoint_steps=2)
    phase = make_phase()
    step, _ = load_checkpoint(tmp_path / "killed", phase.network, build_optimizer(phase)) or (0, {})
    assert step == 2
    resumed = make_phase()
    go(resumed, tmp_path / "killed", checkpoint_steps=2)
    assert same(weights_of(resumed.network), weights_of(unbroken.network))


def test_a_finished_phase_does_nothing_more(make_phase: MakePhase, tmp_path: Path) -> None:
    first = make_phase()
    memory = go(first, tmp_path)
    curves = (tmp_path / "metrics.jsonl").read_text()
    again = make_phase()
    assert go(again, tmp_path) == memory
    assert same(weights_of(again.network), weights_of(first.network))
    assert (tmp_path / "metrics.jsonl").read_text() == curves


def test_pauses_come_at_their_steps_and_after_the_last_and_change_nothing(
    make_phase: MakePhase, tmp_path: Path
) -> None:
    paused, plain = make_phase(steps=7), make_phase(steps=7)
    memory = go(paused, tmp_path / "paused", pause=Pause(3, score(paused)))
    go(plain, tmp_path / "plain", pause=None)
    rows = read_metrics(tmp_path / "paused" / "metrics.jsonl")
    assert [row["step"] for row in rows if "dev/score" in row] == [3, 6, 7]
    assert [row["dev/score"] for row in rows if "dev/score" in row] == memory["scores"]
    assert same(weights_of(paused.network), weights_of(plain.network))


def test_the_memory_counts_tokens(make_phase: MakePhase, tmp_path: Path) -> None:
    phase, other = make_phase(), make_phase()
    memory = go(phase, tmp_path, pause=None)
    records = list(train(other, build_optimizer(other)))
    assert memory["tokens"] == sum(record.tokens for record in records)
    assert memory["padded_tokens"] == sum(record.padded_tokens for record in records) >= memory["tokens"]


def test_a_broken_loss_stops_before_it_is_kept(
    make_phase: MakePhase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = make_phase(steps=600)  # long enough that not every step makes a row
    objective = phase.objectives["external"]
    original = objective.batch
    bad = 4

    def loss(network: Network, batch: Any) -> Loss:
        value = next(network.parameters()).sum() * float("nan")
        return Loss(value, {"mlm": value})

    def batch(step: int) -> Any:
        if step == bad:
            monkeypatch.setattr(objective, "loss", loss)
        return original(step)

    monkeypatch.setattr(objective, "batch", batch)
    with pytest.raises(InputError, match="the loss external/mlm is not finite"):
        go(phase, tmp_path, checkpoint_steps=10, pause=None)
    assert not (tmp_path / CHECKPOINT).exists()


@pytest.mark.parametrize("kept", [0, 7, 1000, -1])
def test_a_cut_off_checkpoint_is_one_line_with_a_way_out(make_phase: MakePhase, tmp_path: Path, kept: int) -> None:
    with pytest.raises(Killed):
        go(make_phase(), tmp_path, on_checkpoint=stop_after(1))
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"checkpoint.safetensors: damaged: .*delete it") as raised:
        go(make_phase(), tmp_path)
    assert "\n" not in str(raised.value)
    path.unlink()
    unbroken, resumed = make_phase(), make_phase()
    go(resumed, tmp_path)
    go(unbroken, tmp_path / "unbroken")
    assert same(weights_of(resumed.network), weights_of(unbroken.network))


def test_a_checkpoint_of_another_network_is_refused(make_phase: MakePhase, tmp_path: Path) -> None:
    save_tensors(tmp_path / CHECKPOINT, {"network/stranger": torch.zeros(2)}, {"step": 1, "memory": {}})
    with pytest.raises(InputError, match="does not fit the network"):
        go(make_phase(), tmp_path)


def test_a_checkpoint_holds_weights_optimizer_and_memory(make_phase: MakePhase, tmp_path: Path) -> None:
    phase, other = make_phase(), make_phase(seed=1)
    optimizer = build_optimizer(phase)
    for _ in train(phase, optimizer):
        pass
    save_checkpoint(tmp_path, phase.network, optimizer, 6, {"best": 0.5})
    loaded = build_optimizer(other)
    assert load_checkpoint(tmp_path, other.network, loaded) == (6, {"best": 0.5})
    assert same(weights_of(other.network), weights_of(phase.network))
    for one, two in zip(phase.network.parameters(), other.network.parameters(), strict=True):
        assert optimizer.state[one].keys() == loaded.state[two].keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(value.equal(loaded.state[two][key]) for key, value in optimizer.state[one].items())


def test_no_checkpoint_is_none(make_phase: MakePhase, tmp_path: Path) -> None:
    phase = make_phase()
    assert load_checkpoint(tmp_path, phase.network, build_optimizer(phase)) is None
