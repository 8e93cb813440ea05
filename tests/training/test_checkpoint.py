"""Checkpoints: all state of a phase, written in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from endtask.encoders.weights import load_tensors, save_tensors, write_safetensors
from endtask.errors import InputError
from endtask.training import checkpoint as checkpoint_module
from endtask.training.checkpoint import CHECKPOINT, CHECKPOINT_BEFORE, Checkpoints
from endtask.training.loop import build_optimizer, train
from endtask.training.optimizer import Optimizer
from endtask.training.phase import Phase
from endtask.weighting.equal import Equal

from .conftest import MakePhase
from .numbers import Learned, number_phase


class Killed(BaseException):
    """Stands for the end of the process."""


def trained(phase: Phase) -> Optimizer:
    optimizer = build_optimizer(phase)
    for _ in train(phase, optimizer):
        pass
    return optimizer


@contextmanager
def checkpoints(folder: Path, phase: Phase, optimizer: Optimizer | None = None) -> Iterator[Checkpoints]:
    with closing(Checkpoints(folder, phase.network, optimizer or build_optimizer(phase), phase.weighting)) as kept:
        yield kept


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(value.equal(other[name]) for name, value in one.items())


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_a_checkpoint_holds_weights_optimizer_and_memory(
    make_phase: MakePhase, tmp_path: Path, architecture: str
) -> None:
    phase, other = make_phase(architecture), make_phase(architecture, seed=1)
    optimizer, fresh = trained(phase), build_optimizer(other)
    optimizer.scale_rate(0.5)
    with checkpoints(tmp_path, phase, optimizer) as kept:
        kept.save(6, {"best": 0.5, "dev": {"f1": 0.25}})
    with checkpoints(tmp_path, other, fresh) as found:
        assert found.load() == (6, {"best": 0.5, "dev": {"f1": 0.25}})
    assert same(other.network.state_dict(), phase.network.state_dict())
    assert same(fresh.state_tensors(), optimizer.state_tensors())
    assert fresh.rate_scale == 0.5


def test_what_a_weighting_has_learned_travels_along(tmp_path: Path) -> None:
    phase, other = number_phase(weighting=Learned()), number_phase(weighting=Learned())
    optimizer = trained(phase)
    with checkpoints(tmp_path, phase, optimizer) as kept:
        kept.save(12, {})
    with checkpoints(tmp_path, other) as found:
        found.load()
    assert same(other.weighting.state(), phase.weighting.state())
    assert not same(phase.weighting.state(), Learned().state())


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    phase = number_phase()
    with checkpoints(tmp_path, phase) as kept:
        kept.save(3, {"tokens": 7})
    tensors, header = load_tensors(tmp_path / CHECKPOINT)
    assert header == {"step": 3, "state": {"tokens": 7}, "planned": True}
    assert {name.split("/")[0] for name in tensors} == {"network", "optimizer"}
    assert [file.name for file in tmp_path.iterdir()] == [CHECKPOINT]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    with checkpoints(tmp_path, number_phase()) as kept:
        assert kept.load() is None


def test_training_goes_on_while_the_past_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase()
    before = {name: value.clone() for name, value in phase.network.state_dict().items()}
    go_on, writers = threading.Event(), []

    def slowly(*arguments: Any, **options: Any) -> None:
        writers.append(threading.current_thread())
        assert go_on.wait(10)
        write_safetensors(*arguments, **options)

    monkeypatch.setattr(checkpoint_module, "write_safetensors", slowly)
    memory: dict[str, Any] = {"tokens": 1, "scores": [0.5]}
    with checkpoints(tmp_path, phase) as kept:
        kept.save(1, memory)
        memory["tokens"] = 2
        memory["scores"].append(0.75)
        trained(phase)
        assert not (tmp_path / CHECKPOINT).exists()
        go_on.set()
        kept.wait()
        assert kept.load() == (1, {"tokens": 1, "scores": [0.5]})
    assert same(phase.network.state_dict(), before)
    assert writers[0] is not threading.main_thread()
    assert not writers[0].is_alive()


def killed_in(count: int) -> Any:
    """A writer that dies with its whole file written and not yet in place."""
    calls: list[None] = []

    def write(*arguments: Any, **options: Any) -> None:
        calls.append(None)
        write_safetensors(*arguments, **options)
        if len(calls) == count:
            raise Killed

    return write


def test_killed_while_writing_the_older_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phase = number_phase()
    monkeypatch.setattr("endtask.training.checkpoint.write_safetensors", killed_in(2))
    kept = Checkpoints(tmp_path, phase.network, build_optimizer(phase), phase.weighting)
    kept.save(1, {})
    kept.save(2, {})
    with pytest.raises(Killed):
        kept.close()
    with checkpoints(tmp_path, phase) as found:
        assert found.load() == (1, {})


@pytest.mark.parametrize("call", ["save", "load", "wait", "close"])
def test_an_error_of_the_writer_is_raised_at_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("endtask.training.checkpoint.write_safetensors", full)
    phase = number_phase()
    kept = Checkpoints(tmp_path, phase.network, build_optimizer(phase), phase.weighting)
    kept.save(1, {})
    with pytest.raises(OSError, match="No space left on device") as raised:
        getattr(kept, call)(*((2, {}) if call == "save" else ()))
    assert raised.value.filename == str(tmp_path / CHECKPOINT)
    kept.close()
    assert list(tmp_path.iterdir()) == []


def test_the_thread_is_gone_after_closing(tmp_path: Path) -> None:
    with checkpoints(tmp_path, number_phase()) as kept:
        kept.save(1, {})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


@pytest.mark.parametrize("kept", [0, 7, 1000, -1])
def test_a_cut_off_checkpoint_is_one_line_with_a_way_out(tmp_path: Path, kept: int) -> None:
    phase = number_phase()
    with checkpoints(tmp_path, phase) as whole:
        whole.save(1, {})
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:kept])
    message = r"checkpoint\.safetensors: damaged: .*delete it to train this stage again"
    with checkpoints(tmp_path, phase) as cut, pytest.raises(InputError, match=message) as raised:
        cut.load()
    assert "\n" not in str(raised.value)


def damage_at(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("place", [3, 40, 300, 2000, -1])
def test_after_damage_the_one_before_is_the_last(tmp_path: Path, place: int) -> None:
    phase = number_phase()
    optimizer = build_optimizer(phase)
    with checkpoints(tmp_path, phase, optimizer) as kept:
        kept.save(1, {"tokens": 7})
        before = {name: value.clone() for name, value in phase.network.state_dict().items()}
        for _ in train(phase, optimizer):
            pass
        kept.save(2, {"tokens": 9})
    damage_at(tmp_path / CHECKPOINT, place)
    for _ in range(2):  # the second time it is the last one
        fresh = number_phase()
        with checkpoints(tmp_path, fresh) as found:
            assert found.load() == (1, {"tokens": 7})
        assert same(fresh.network.state_dict(), before)
        assert [file.name for file in tmp_path.iterdir()] == [CHECKPOINT]


def test_both_damaged_is_one_line_with_a_way_out(tmp_path: Path) -> None:
    with checkpoints(tmp_path, number_phase()) as kept:
        kept.save(1, {})
        kept.save(2, {})
    for path in tmp_path.iterdir():
        damage_at(path, -1)
    with checkpoints(tmp_path, number_phase()) as found, pytest.raises(InputError, match=r"damaged: .*delete it"):
        found.load()
    assert len(list(tmp_path.iterdir())) == 2


def test_killed_between_the_two_renames(tmp_path: Path) -> None:
    with checkpoints(tmp_path, number_phase()) as kept:
        kept.save(1, {})
    (tmp_path / CHECKPOINT).rename(tmp_path / CHECKPOINT_BEFORE)
    with checkpoints(tmp_path, number_phase()) as found:
        assert found.load() == (1, {})
        found.save(2, {})
    with checkpoints(tmp_path, number_phase()) as again:
        assert again.load() == (2, {})


def test_an_unplanned_checkpoint_is_not_the_one_to_go_back_to(tmp_path: Path) -> None:
    with checkpoints(tmp_path, number_phase()) as kept:
        kept.save(4, {})
        kept.save(6, {}, is_planned=False)
        kept.save(7, {}, is_planned=False)
        assert kept.load(is_planned=True) == (4, {})
    with checkpoints(tmp_path, number_phase()) as found:
        assert found.load() == (7, {})
        assert found.load(is_planned=True) == (4, {})
        found.save(8, {})
        assert found.load(is_planned=True) == (8, {})


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    save_tensors(tmp_path / CHECKPOINT, {"network/stranger": torch.zeros(2)}, {"step": 1, "state": {}})
    with checkpoints(tmp_path, number_phase()) as kept, pytest.raises(InputError, match="does not fit the network"):
        kept.load()


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    with checkpoints(tmp_path, number_phase()) as kept:
        kept.save(1, {})
    tensors, header = load_tensors(tmp_path / CHECKPOINT)
    without = {name: value for name, value in tensors.items() if not name.endswith("exp_avg")}
    save_tensors(tmp_path / CHECKPOINT, without, header)
    message = r"checkpoint\.safetensors: does not fit this phase: the optimizer's state lacks encoder.*delete it"
    with checkpoints(tmp_path, number_phase()) as found, pytest.raises(InputError, match=message):
        found.load()


def test_a_checkpoint_of_another_weighting_is_refused(tmp_path: Path) -> None:
    phase, other = number_phase(weighting=Learned()), number_phase(weighting=Equal("sum"))
    with checkpoints(tmp_path, phase) as kept:
        kept.save(1, {})
    with checkpoints(tmp_path, other) as found, pytest.raises(InputError, match="Equal has no state, got"):
        found.load()
