"""Out of memory on the device, said in a line that names what to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from endtask.errors import TrainingError

# These have no class of their own.
_SIGNS = (
    "MPS backend out of memory",
    "DefaultCPUAllocator",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


_HINT = (
    "lower pretrain.batch_size (and raise pretrain.gradient_accumulation_steps by as much), pretrain.max_length or "
    "model.size; for fine-tuning finetune.batch_size; resume with --from STAGE"
)


class OutOfMemory(TrainingError):
    """The memory ran out; a stage around may know better what to lower."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(f"the device is out of memory: {detail}", hint=hint)
        self.detail = detail


@contextmanager
def explained_memory_trouble(hint: str | None = None) -> Iterator[None]:
    """Turn the libraries' out-of-memory errors into ours; finished steps stay in the checkpoint.

    A `hint` says what to lower, also where the work inside has explained its trouble already.
    """
    try:
        yield
    except OutOfMemory as error:
        raise (error if hint is None else OutOfMemory(error.detail, hint)) from None
    except (MemoryError, RuntimeError) as error:
        detail = (str(error).splitlines() or ["no more was said"])[0]
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(sign in detail for sign in _SIGNS):
            raise
        raise OutOfMemory(detail, hint or _HINT) from None
