"""The most memory that this process held on a GPU. Torch is asked where it is at work, never imported for it."""

from __future__ import annotations

import sys
from typing import Any


def forget_peak() -> None:
    """Count from what is held now."""
    cuda = initialized_cuda()
    for number in range(cuda.device_count()) if cuda is not None else ():
        cuda.reset_peak_memory_stats(number)


def peak_bytes() -> int:
    """The most that was reserved on any one GPU since then, which is what others could not use; 0 without a GPU."""
    cuda = initialized_cuda()
    return 0 if cuda is None else max(cuda.max_memory_reserved(number) for number in range(cuda.device_count()))


def initialized_cuda() -> Any:
    """`torch.cuda` where this process uses a GPU, else None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
