"""Weights in safetensors files."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from endtask.encoders.weights import load_tensors, load_weights, save_tensors, save_weights
from endtask.errors import InputError
from tests.tiny import make_network


def test_weights_come_back_bit_by_bit(tmp_path: Path) -> None:
    network, other = make_network(seed=0), make_network(seed=1)
    save_weights(tmp_path / "w.safetensors", network)
    load_weights(tmp_path / "w.safetensors", other)
    assert all(value.equal(other.state_dict()[name]) for name, value in network.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_tensors_come_back_with_their_header(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6).reshape(2, 3).T, "b": torch.tensor(1.5)}
    save_tensors(tmp_path / "t.safetensors", tensors, {"step": 3, "memory": {"dev": 0.5}})
    loaded, header = load_tensors(tmp_path / "t.safetensors")
    assert header == {"step": 3, "memory": {"dev": 0.5}}
    assert loaded["a"].equal(tensors["a"])
    assert loaded["b"].equal(tensors["b"])


WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
dtypes = st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16, *WHOLE])
shapes = st.lists(st.integers(0, 4), max_size=3)


@given(st.dictionaries(st.text(max_size=5), st.tuples(dtypes, shapes), max_size=5))
@settings(max_examples=25)
def test_files_are_as_the_library_writes_them(
    tmp_path_factory: pytest.TempPathFactory, asked: dict[str, tuple[torch.dtype, list[int]]]
) -> None:
    asked.pop("__metadata__", None)
    tensors = {name: torch.randint(0, 100, shape).to(dtype) for name, (dtype, shape) in asked.items()}
    folder = tmp_path_factory.mktemp("weights")
    save_tensors(folder / "ours", tensors, {"step": 1})
    save_file(tensors, folder / "theirs", metadata={"endtask": '{"step": 1}'})
    ours, theirs = load_file(folder / "ours"), load_file(folder / "theirs")
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        assert ours[name].equal(value)
    assert load_tensors(folder / "ours")[1] == {"step": 1}
    assert (folder / "ours").stat().st_size % 8 == sum(value.nbytes for value in tensors.values()) % 8


def test_a_file_that_takes_little_at_a_time_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FileIO):
        def write(self, data: Any) -> int:
            return super().write(memoryview(data)[:7])

    monkeypatch.setattr("endtask.encoders.weights.open", lambda path, mode, buffering: Slow(path, mode), raising=False)
    save_tensors(tmp_path / "slow", {"a": torch.arange(100)}, {})
    assert load_tensors(tmp_path / "slow")[0]["a"].equal(torch.arange(100))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent.safetensors: no such weights file"):
        load_weights(tmp_path / "absent.safetensors", make_network())


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_cut_off_file_is_one_line(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, make_network())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"w.safetensors: damaged: .*--from the stage that made it") as raised:
        load_weights(path, make_network())
    assert "\n" not in str(raised.value)


def test_missing_unexpected_and_misshapen_weights_are_refused(tmp_path: Path) -> None:
    network = make_network()
    good = network.state_dict()
    name = next(iter(good))
    for number, bad in enumerate(
        (
            {key: value for key, value in good.items() if key != name},
            {**good, "stranger": torch.zeros(1)},
            {**good, name: torch.zeros(3, 3)},
        )
    ):
        path = tmp_path / f"{number}.safetensors"
        save_tensors(path, bad, {})
        with pytest.raises(InputError, match="does not fit the network") as raised:
            load_weights(path, network)
        assert "\n" not in str(raised.value)
