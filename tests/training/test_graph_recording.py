"""The state after a recording, with a stub for torch's part; real recordings need a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from endtask.training import graph_replay as module

DEVICE = torch.device("cuda")


class StandIn:
    """As much of torch as a recording uses; one that fails leaves its stream, as torch does."""

    def __init__(self, *, fails: bool, ends: bool) -> None:
        self.fails, self.collects = fails, True
        self.ended: list[tuple[int, str]] = []
        self.seeds: list[int] = []
        self.states = ["the recording's"]
        self._ends = ends
        generator = SimpleNamespace(
            initial_seed=lambda: 7, graphsafe_set_state=self.states.append, manual_seed=self.seeds.append
        )
        self.cuda = SimpleNamespace(
            current_stream=lambda device: self.stream,
            set_stream=lambda stream: setattr(self, "stream", stream),
            graph_pool_handle=lambda: "its own",
            graph=self._graph,
            default_generators=[generator],
            _utils=SimpleNamespace(_get_device_index=lambda device, optional: 0),
        )
        self.stream = "the usual"
        self._C = SimpleNamespace(_cuda_endAllocateToPool=self._end)

    def Generator(self, device: Any) -> Any:
        return SimpleNamespace(graphsafe_get_state=lambda: "nobody's")

    @contextmanager
    def _graph(self, graph: Any, pool: str, *, capture_error_mode: str) -> Iterator[None]:
        self.stream = "the recording's"
        self.collects = gc.isenabled()
        yield
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.stream = "the usual"

    def _end(self, number: int, pool: str) -> None:
        self.ended.append((number, pool))
        if not self._ends:
            raise RuntimeError("not currently recording")


@pytest.mark.parametrize("fails", [False, True])
def test_no_garbage_is_collected_meanwhile_and_then_as_before(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    stand_in = StandIn(fails=fails, ends=True)
    monkeypatch.setattr(module, "torch", stand_in)
    before = gc.isenabled()
    try:
        for collects in (True, False):
            (gc.enable if collects else gc.disable)()
            with (
                pytest.raises(RuntimeError) if fails else nullcontext(),
                module.recording("graph", DEVICE),  # type: ignore[arg-type]
            ):
                assert not gc.isenabled()
            assert not stand_in.collects
            assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


def test_garbage_of_earlier_trainings_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Round:
        """Holds itself, so that only a collection ends it."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            gone.append(stand_in.stream)

    gone: list[str] = []
    stand_in = StandIn(fails=False, ends=True)
    monkeypatch.setattr(module, "torch", stand_in)
    Round()
    with module.recording("graph", DEVICE):  # type: ignore[arg-type]
        pass
    assert gone == ["the usual"]


@pytest.mark.parametrize("ends", [True, False], ids=["torch has not ended it", "torch has"])
def test_one_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    stand_in = StandIn(fails=True, ends=ends)
    monkeypatch.setattr(module, "torch", stand_in)
    with (
        pytest.raises(RuntimeError, match="not permitted"),
        module.recording("graph", DEVICE),  # type: ignore[arg-type]
    ):
        assert stand_in.stream == "the recording's"
    assert stand_in.stream == "the usual"
    assert stand_in.ended == [(0, "its own")]
    assert stand_in.states[-1] == "nobody's"
    assert stand_in.seeds == [7]


def test_one_that_succeeds_is_not_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn(fails=False, ends=True)
    monkeypatch.setattr(module, "torch", stand_in)
    with module.recording("graph", DEVICE):  # type: ignore[arg-type]
        pass
    assert (stand_in.ended, stand_in.seeds, stand_in.stream) == ([], [], "the usual")


def test_torch_still_has_the_way_to_end_it() -> None:
    """By the names in its own description; the functions themselves are in builds for a GPU only."""
    from pathlib import Path

    described = (Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text(encoding="utf-8")
    assert any(f"def {name}(" in described for name in module._END_OF_POOL)
