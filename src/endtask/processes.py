"""The processes of one training, as torchrun starts them: their number, and values that all of them must share.

Every process runs the same steps on its part of each batch. The first one also runs the stages before and after,
writes all files and prints; the others wait for it. With one process everything here does nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from endtask.progress import silence

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_LONGEST_WAIT = timedelta(days=365)
"""Processes wait for the stages of the first one, which may search terabytes of text."""


@dataclass(frozen=True)
class Processes:
    """The number of processes that train together, and the rank of this one among them.

    >>> alone = Processes()
    >>> alone.is_first, alone.shared(3)
    (True, 3)
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def shared(self, value: T) -> T:
        """Return the first process's value, which JSON can hold, in every process."""
        return value if self.count == 1 else self._broadcast(value, 0)

    def gathered(self, value: T) -> list[T]:
        """Return the values of all processes, which JSON can hold, in every process."""
        return [value] if self.count == 1 else [self._broadcast(value, rank) for rank in range(self.count)]

    def _broadcast(self, value: T, source: int) -> T:
        import torch
        from torch import distributed

        data = bytearray(json.dumps(value).encode()) if self.rank == source else bytearray()
        size = torch.tensor(len(data))
        distributed.broadcast(size, source, group=_control_group)
        text = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(int(size), dtype=torch.uint8)
        distributed.broadcast(text, source, group=_control_group)
        received: T = json.loads(text.numpy().tobytes())
        return received

    def wait(self) -> None:
        """Wait until every process has come here."""
        if self.count > 1:
            from torch import distributed

            distributed.barrier(group=_control_group)

    def first_of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return copies of the first process's tensors in every process."""
        if self.count == 1:
            return dict(tensors)
        from torch import distributed

        copies = {name: value.clone() for name, value in tensors.items()}
        for value in copies.values():
            distributed.broadcast(value, 0)
        return copies

    def sums(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums of single numbers over the processes, on their device."""
        if self.count == 1 or not values:
            return dict(values)
        import torch

        total = self.add(torch.stack([value.float() for value in values.values()]))
        return dict(zip(values, total.unbind(), strict=True))

    def add(self, values: Tensor) -> Tensor:
        """Replace the values by their sums over the processes, and return them."""
        if self.count > 1:
            from torch import distributed

            distributed.all_reduce(values)
        return values

    def own(self, items: Sequence[T]) -> list[T]:
        """Return every n-th item, so that each item belongs to one of the n processes."""
        return list(items[self.rank :: self.count])


ALONE = Processes()
_current = ALONE
_control_group: Any = None
"""Values and barriers have a group of their own, whose time-out is longer than any stage."""


def current_processes() -> Processes:
    """Return the processes that this one has joined; a single one unless `join_processes` was called."""
    return _current


def lost_process(error: BaseException) -> bool:
    """Return whether an exchange failed because another process has ended; its own message says why."""
    return _current.count > 1 and any(text in str(error) for text in _LOST)


_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")


def is_started_by_torchrun() -> bool:
    """Return whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_processes() -> Processes:
    """Join the other processes if torchrun started this one, and return all of them; only the first one prints."""
    global _current, _control_group
    if _current.count > 1 or not is_started_by_torchrun():
        return _current
    import torch
    from torch import distributed
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    local_rank, local_count = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    devices = torch.cuda.device_count()
    if devices:
        torch.cuda.set_device(local_rank % devices)
    if not distributed.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if local_count <= devices else "gloo"
        store, rank, count = next(rendezvous("env://"))
        # The launcher keeps its store for processes that it starts again, with the addresses of those that ended.
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        distributed.init_process_group(backend, store=store, rank=rank, world_size=count)
    _control_group = distributed.new_group(backend="gloo", timeout=_LONGEST_WAIT)
    _current = Processes(distributed.get_rank(), distributed.get_world_size())
    if not _current.is_first:
        silence()
    return _current
