"""Start this command again in several processes, by the launcher of torchrun."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn
from uuid import uuid4

from endtask.errors import InputError, TrainingError
from endtask.io.signals import stop


def launch(count: int) -> NoReturn:
    """Run this command in `count` processes of this machine, and exit with the code of the first that failed.

    It is what `torchrun --nproc-per-node COUNT -m endtask ...` does, which also starts them on several machines and
    starts them again after a failure.
    """
    if count < 1:
        raise InputError(f"{count} is no number of processes", key="--nproc")
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the processes have said what is wrong
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "endtask", *_without_nproc(sys.argv[1:]))
    except SignalException as signalled:  # the processes have got it too, and have said where they stopped
        stop(signalled.sigval)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            message = f"process {rank + 1} of {count} was ended by {failure.signal_name()}"
            raise TrainingError(message, hint="the same command resumes the run") from None
        sys.exit(failure.exitcode)
    sys.exit(0)


def _without_nproc(arguments: list[str]) -> list[str]:
    """Return the arguments of the processes.

    >>> _without_nproc(["run", "a.yaml", "--nproc", "2", "-q"]), _without_nproc(["run", "--nproc=2"])
    (['run', 'a.yaml', '-q'], ['run'])
    """
    remaining = iter(arguments)
    others = []
    for argument in remaining:
        if argument == "--nproc":
            next(remaining, None)
        elif not argument.startswith("--nproc="):
            others.append(argument)
    return others
