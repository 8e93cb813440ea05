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


@contextmanager
def explained_memory_trouble() -> Iterator[None]:
    """Turn the libraries' out-of-memory errors into ours; finished steps stay in the checkpoint."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        said = (str(error).splitlines() or ["no more was said"])[0]
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(sign in said for sign in _SIGNS):
            raise
        raise TrainingError(
            f"the device is out of memory: {said}",
            hint="lower train.batch_size (and raise train.gradient_accumulation_steps by as much), train.max_length "
            "or model.size; for fine-tuning finetune.batch_size, for scoring evaluate.batch_size; the run then goes on "
            "with --from its stage",
        ) from None
