"""Worker processes that exit with their parent: orphans would hold locks and cores."""

from __future__ import annotations

import os
import threading
import time

_PAUSE = 0.5


def end_with(parent: int) -> None:
    """Start a thread that exits this process as soon as its parent process is no longer `parent`."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PAUSE)
    os._exit(1)
