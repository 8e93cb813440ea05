"""`python -m endtask.compare.worker PARENT`: a process that does runs of a comparison, one after the other.

A job is a line on standard input, `["FOLDER", "STAGE"]`; its exit code is a line on standard output. What the run
itself prints is added to `log.txt` in its folder. Anything but bad input or broken training ends the process.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from endtask.compare.devices import BROKEN_TRAINING, LOG
from endtask.errors import InputError, TrainingError
from endtask.io.exit_with_parent import end_with
from endtask.io.gpu_memory import cuda_at_work
from endtask.pipeline.run import run


def main(parent: str) -> None:
    """Do what is left of the runs that are asked for, until nobody asks any more."""
    end_with(int(parent))
    with os.fdopen(os.dup(1), "w") as answers:
        for line in sys.stdin:
            folder, until = json.loads(line)
            _print_to(Path(folder) / LOG)
            code = do(Path(folder), until)
            print(code, file=answers, flush=True)
            _make_room()


def do(folder: Path, until: str) -> int:
    """What is left of one run; returns its exit code."""
    try:
        run(folder, until=until)
    except InputError as error:
        print(f"endtask: {error}", file=sys.stderr)
        return BROKEN_TRAINING if isinstance(error, TrainingError) else 2
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _print_to(path: Path) -> None:
    """Send what is printed from here on, by whomever, to the end of a file."""
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _make_room() -> None:
    """Leave the GPU's memory to others while this process waits."""
    gc.collect()
    cuda = cuda_at_work()
    if cuda is not None:
        cuda.empty_cache()


if __name__ == "__main__":
    main(*sys.argv[1:])
