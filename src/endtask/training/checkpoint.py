"""Checkpoints: weights, optimizer, weighting, refresh hook and state of training in one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from endtask.encoders.weights import load_state_dict, load_tensors, save_tensors, whole
from endtask.errors import InputError, TrainingError
from endtask.processes import ALONE, Processes
from endtask.training.optimizer import Optimizer
from endtask.weighting.base import Rule

if TYPE_CHECKING:
    from endtask.training.phase import RefreshHook

CHECKPOINT = "checkpoint.safetensors"
_START_OVER = "delete it to train this stage again from its start"
_NETWORK, _OPTIMIZER, _WEIGHTING, _REFRESH = "network/", "optimizer/", "weighting/", "refresh/"


class Checkpoints:
    """Saves and loads the last checkpoint of a phase; a thread writes the file while training continues.

    Of several processes the first writes and all read. The file is the same for any number of processes.
    """

    def __init__(
        self,
        folder: Path,
        network: nn.Module,
        optimizer: Optimizer,
        weighting: Rule,
        refresh: RefreshHook | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self._processes = processes
        self.path = folder / CHECKPOINT
        self._network, self._optimizer, self._weighting, self._refresh = network, optimizer, weighting, refresh
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Copy all tensors and start to write them; `state` holds plain values such as the best dev score."""
        self.wait()
        tensors = {
            **_prefixed(_NETWORK, self._network.state_dict()),
            **_prefixed(_OPTIMIZER, self._optimizer.state_tensors()),
            **_prefixed(_WEIGHTING, self._weighting.state()),
            **_prefixed(_REFRESH, {} if self._refresh is None else self._refresh.state()),
        }
        tensors = {name: whole(value) for name, value in tensors.items()}
        if not self._processes.is_first:
            return
        # Copies on the device are quick and asynchronous; the writer transfers them to the host.
        copies = {name: value.detach().clone() for name, value in tensors.items()}
        header = {"step": step, "state": deepcopy(dict(state))}
        self._writing = self._writer.submit(_write, self.path, copies, header, _copies_done(copies))

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Restore all tensors; return the steps done and the state, or None without a checkpoint."""
        self.wait()
        if not self._exists():
            return None
        try:
            return self._load()
        finally:
            self._processes.wait()  # the first process may write the next checkpoint at once

    def _exists(self) -> bool:
        """Return whether there is a checkpoint, in which all processes have to agree."""
        self._processes.wait()
        exists = self.path.exists()
        self._processes.wait()
        if self._processes.shared(exists) != exists:
            hint = "put the run on a disk that all machines share"
            raise TrainingError(f"{self.path} is not the same file in all processes", hint=hint)
        return exists

    def _load(self) -> tuple[int, dict[str, Any]]:
        tensors, header = load_tensors(self.path, hint=_START_OVER)
        load_state_dict(self._network, _with_prefix(_NETWORK, tensors), self.path, hint=_START_OVER)
        try:
            self._optimizer.load_state_tensors(_with_prefix(_OPTIMIZER, tensors))
            self._weighting.load_state(_with_prefix(_WEIGHTING, tensors))
            if self._refresh is not None:
                self._refresh.load_state(_with_prefix(_REFRESH, tensors))
        except ValueError as error:
            raise InputError(f"does not fit this phase: {error}", path=self.path, hint=_START_OVER) from None
        return int(header["step"]), dict(header["state"])

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk; raise the writer's error if there was one."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()


def _copies_done(copies: Mapping[str, Tensor]) -> torch.cuda.Event | None:
    """Return an event that follows the copies in the GPU's stream; None on other devices."""
    if not any(value.is_cuda for value in copies.values()):
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def _write(path: Path, copies: dict[str, Tensor], header: dict[str, Any], copied: torch.cuda.Event | None) -> None:
    """Transfer the copies in a CUDA stream other than training's, and write them; runs in the writer's thread."""
    if copied is None:
        return save_tensors(path, copies, header)
    copied.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        save_tensors(path, copies, header)
    return None


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in tensors.items()}


def _with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
