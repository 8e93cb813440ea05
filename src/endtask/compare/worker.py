"""`python -m endtask.compare.worker FOLDER STAGE PARENT`: one run of a comparison in a process of its own."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from endtask.compare.devices import BROKEN_TRAINING
from endtask.errors import InputError, TrainingError
from endtask.run import run


def main(folder: str, until: str, parent: str) -> int:
    """Do what is left of the run in a folder; returns the exit code."""
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    try:
        run(Path(folder), until=until)
    except InputError as error:
        print(f"endtask: {error}", file=sys.stderr)
        return BROKEN_TRAINING if isinstance(error, TrainingError) else 2
    return 0


def _end_with(parent: int) -> None:
    """End when the comparison was killed: a run that goes on alone would keep its folder locked."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
