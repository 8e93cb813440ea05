"""Checkpoints: weights, optimizer, weighting, refresh hook and state of training in one safetensors file.

The last two are stored. If the last one is damaged, training goes on from the one before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from endtask.encoders.weights import DamagedTensors, load_state_dict, load_tensors, whole, write_safetensors
from endtask.errors import InputError, TrainingError
from endtask.io.atomic import atomic_file
from endtask.processes import ALONE, Processes
from endtask.progress import warn
from endtask.training.optimizer import Optimizer
from endtask.weighting.base import Rule

if TYPE_CHECKING:
    from endtask.training.phase import RefreshHook

CHECKPOINT = "checkpoint.safetensors"
CHECKPOINT_BEFORE = "checkpoint-before.safetensors"
_START_OVER = "delete it to train this stage again from its start"
_NETWORK, _OPTIMIZER, _WEIGHTING, _REFRESH = "network/", "optimizer/", "weighting/", "refresh/"


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a phase that has ended."""
    for name in (CHECKPOINT_BEFORE, CHECKPOINT):
        (folder / name).unlink(missing_ok=True)


class Checkpoints:
    """Saves and loads the last checkpoint of a phase; a thread writes the file while training continues.

    A checkpoint is planned unless a signal asked for it. An unplanned one is replaced by the next, so that the one
    before the last is always planned: a diverged loss goes back to the same step, stopped or not.

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
        self.path, self._before = folder / CHECKPOINT, folder / CHECKPOINT_BEFORE
        self._last_is_planned = True
        self._network, self._optimizer, self._weighting, self._refresh = network, optimizer, weighting, refresh
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, step: int, state: Mapping[str, Any], *, is_planned: bool = True) -> None:
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
        header = {"step": step, "state": deepcopy(dict(state)), "planned": is_planned}
        before = self._before if self._last_is_planned else None
        self._last_is_planned = is_planned
        self._writing = self._writer.submit(_write, self.path, before, copies, header, _copies_done(copies))

    def load(self, *, is_planned: bool = False) -> tuple[int, dict[str, Any]] | None:
        """Restore all tensors; return the steps done and the state, or None without a checkpoint.

        With `is_planned` it is the last planned one, to which a diverged loss goes back.
        """
        self.wait()
        last, before = self._exists(self.path), self._exists(self._before)
        if not last and not before:
            return None
        try:
            if not last or (is_planned and before and not self._last_is_planned):
                return self._load(self._before)
            return self._load_undamaged(has_before=before)
        finally:
            self._processes.wait()  # the first process may write the next checkpoint at once

    def _exists(self, path: Path) -> bool:
        """Return whether there is a checkpoint, in which all processes have to agree."""
        self._processes.wait()
        exists = path.exists()
        self._processes.wait()
        if self._processes.shared(exists) != exists:
            hint = "put the run on a disk that all machines share"
            raise TrainingError(f"{path} is not the same file in all processes", hint=hint)
        return exists

    def _load_undamaged(self, *, has_before: bool) -> tuple[int, dict[str, Any]]:
        """Load the last checkpoint; if it is damaged, the one before, which then is the last."""
        try:
            return self._load(self.path)
        except DamagedTensors as error:
            if not has_before:
                raise
            step, state = self._load(self._before)
            self._processes.wait()
            if self._processes.is_first:
                os.replace(self._before, self.path)
            warn(f"{error.path}: damaged; training goes on from the checkpoint before, after step {step:,}")
            return step, state

    def _load(self, path: Path) -> tuple[int, dict[str, Any]]:
        tensors, header = load_tensors(path, hint=_START_OVER)
        self._restore(tensors, path)
        self._last_is_planned = path == self._before or bool(header.get("planned", True))
        return int(header["step"]), dict(header["state"])

    def _restore(self, tensors: dict[str, Tensor], path: Path) -> None:
        load_state_dict(self._network, _with_prefix(_NETWORK, tensors), path, hint=_START_OVER)
        try:
            self._optimizer.load_state_tensors(_with_prefix(_OPTIMIZER, tensors))
            self._weighting.load_state(_with_prefix(_WEIGHTING, tensors))
            if self._refresh is not None:
                self._refresh.load_state(_with_prefix(_REFRESH, tensors))
        except ValueError as error:
            raise InputError(f"does not fit this phase: {error}", path=path, hint=_START_OVER) from None

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


def _write(
    path: Path, before: Path | None, copies: dict[str, Tensor], header: dict[str, Any], copied: torch.cuda.Event | None
) -> None:
    """Transfer the copies in a CUDA stream other than training's, and write them; runs in the writer's thread.

    The last checkpoint is renamed to `before`, unless that is None.
    """
    if copied is None:
        return _replace(path, before, copies, header)
    copied.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        _replace(path, before, copies, header)
    return None


def _replace(path: Path, before: Path | None, copies: dict[str, Tensor], header: dict[str, Any]) -> None:
    with atomic_file(path) as temporary:
        write_safetensors(temporary, copies, header, with_digest=True)
        if before is not None and path.exists():
            os.replace(path, before)


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in tensors.items()}


def _with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
