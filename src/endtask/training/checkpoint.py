"""Checkpoints: weights, optimizer, weighting, refresh hook and counters in one safetensors file, or none at all."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from endtask.encoders.weights import fill, load_tensors, save_tensors
from endtask.errors import InputError
from endtask.training.optimizer import Optimizer
from endtask.weighting.base import Rule

if TYPE_CHECKING:
    from endtask.training.phase import RefreshHook

CHECKPOINT = "checkpoint.safetensors"
_START_OVER = "delete it to train this stage again from its start"
_NETWORK, _OPTIMIZER, _WEIGHTING, _REFRESH = "network/", "optimizer/", "weighting/", "refresh/"


class Checkpoints:
    """The last checkpoint of a phase, written by a thread of its own while training goes on."""

    def __init__(
        self,
        folder: Path,
        network: nn.Module,
        optimizer: Optimizer,
        weighting: Rule,
        refresh: RefreshHook | None = None,
    ) -> None:
        self.path = folder / CHECKPOINT
        self._network, self._optimizer, self._weighting, self._refresh = network, optimizer, weighting, refresh
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, step: int, memory: Mapping[str, Any]) -> None:
        """Copy everything a resumed run needs, then write; `memory` holds plain values such as the best dev score."""
        self.wait()
        tensors = {
            **_prefixed(_NETWORK, self._network.state_dict()),
            **_prefixed(_OPTIMIZER, self._optimizer.state_tensors()),
            **_prefixed(_WEIGHTING, self._weighting.state()),
            **_prefixed(_REFRESH, {} if self._refresh is None else self._refresh.state()),
        }
        # Copied where they lie, which on a GPU takes a moment and no waiting; the writer fetches the copies.
        copies = {name: value.detach().clone() for name, value in tensors.items()}
        header = {"step": step, "memory": deepcopy(dict(memory))}
        self._writing = self._writer.submit(_write, self.path, copies, header, _made_by_now(copies))

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Restore all of it; returns (steps done, memory), or None where there is no checkpoint."""
        self.wait()
        if not self.path.exists():
            return None
        tensors, header = load_tensors(self.path, hint=_START_OVER)
        fill(self._network, _without(_NETWORK, tensors), self.path, hint=_START_OVER)
        try:
            self._optimizer.load_state_tensors(_without(_OPTIMIZER, tensors))
            self._weighting.load_state(_without(_WEIGHTING, tensors))
            if self._refresh is not None:
                self._refresh.load_state(_without(_REFRESH, tensors))
        except ValueError as error:
            raise InputError(f"does not fit this phase: {error}", path=self.path, hint=_START_OVER) from None
        return int(header["step"]), dict(header["memory"])

    def wait(self) -> None:
        """Until what was saved last is on disk; raises what went wrong there."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Wait, and let the thread go."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()


def _made_by_now(copies: Mapping[str, Tensor]) -> torch.cuda.Event | None:
    """A mark behind all that the GPU was told so far, the making of the copies included."""
    if not any(value.is_cuda for value in copies.values()):
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def _write(path: Path, copies: dict[str, Tensor], header: dict[str, Any], made: torch.cuda.Event | None) -> None:
    """In the writer's thread: fetch the copies beside the training's own stream of work, then write them."""
    if made is None:
        return save_tensors(path, copies, header)
    made.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        save_tensors(path, copies, header)
    return None


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in tensors.items()}


def _without(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
