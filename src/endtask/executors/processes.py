"""Jobs on this machine, in plain interpreters that read jobs and write reports as lines of JSON.

`multiprocessing` would import the user's script again in each worker. A worker exits with the process that started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from endtask.errors import InputError
from endtask.executors.base import (
    Executor,
    Failures,
    Handler,
    Job,
    Report,
    answer_of,
    check_answer,
    handler_of,
    import_path,
)
from endtask.io.processes import exit_with_parent
from endtask.io.signals import ignore_stop_signals
from endtask.progress import set_quiet


class LocalExecutor(Executor):
    """Runs jobs in this process and in others of this machine.

    >>> LocalExecutor(8).processes_for_each(1), LocalExecutor(8).processes_for_each(3)
    (8, 2)
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(
        self,
        module: str,
        jobs: Sequence[Job],
        report: Report,
        *,
        cores: int = 1,
        small: bool = False,
        model: bool = False,
    ) -> None:
        """Run the jobs in as many processes as there are cores for; small jobs and those of a model in this process."""
        run_jobs(module, jobs, 1 if small or model else self.workers // cores, report)


def run_jobs(module: str, jobs: Sequence[Job], count: int, report: Report) -> None:
    """Run all jobs with the `handle(job, report)` of `module`, in this process and in `count - 1` worker processes.

    Each free process takes the next job in the given order.
    """
    queue = _Queue(jobs)
    workers: list[_Worker] = []
    others = max(0, min(count, len(jobs)) - 1)
    with ThreadPoolExecutor(max(1, others)) as pool:
        futures = [pool.submit(_serve_worker, queue, module, report, workers) for _ in range(others)]
        try:
            queue.serve(handler_of(module), report)
            for future in futures:
                future.result()
        except BaseException:  # also Ctrl-C, which must not wait for a large shard
            queue.close()
            for worker in workers:
                worker.kill()
            raise
    queue.failures.raise_first()


class _Queue:
    """Jobs for several threads, and the errors of those that failed."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.failures = Failures()
        self._jobs = iter(enumerate(jobs))
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Hand out no more jobs."""
        self._closed = True

    def serve(self, handle: Handler, report: Report) -> None:
        """Run jobs until none is left; an `OSError`, such as a full disk, stops all threads."""
        while not self._closed:
            with self._lock:
                number, job = next(self._jobs, (-1, None))
            if job is None:
                return
            try:
                handle(job, report)
            except InputError as failure:
                self.failures.add(number, failure)
            except OSError as failure:
                self.failures.add(number, failure)
                self.close()


def _serve_worker(queue: _Queue, module: str, report: Report, workers: list[_Worker]) -> None:
    with _Worker(module) as worker:
        workers.append(worker)
        try:
            queue.serve(worker.do, report)
        except BaseException:
            queue.close()
            raise


class _Worker:
    """One worker process."""

    def __init__(self, module: str) -> None:
        code = f"from endtask.executors.processes import serve_jobs; serve_jobs({module!r}, {os.getpid()})"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": import_path(), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
            start_new_session=True,  # so that Ctrl-C at the terminal reaches the starting process alone
        )

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def kill(self) -> None:
        """Kill the process; an unfinished job leaves no result."""
        self._process.kill()

    def do(self, job: Job, report: Report) -> None:
        """Send a job and wait until it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._ended() from None
        for line in self._process.stdout:
            answer = json.loads(line)
            if check_answer(answer):
                return
            report(**answer)
        raise self._ended()

    def _ended(self) -> Exception:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            hint = "out of memory? --set threads=1 needs the least; the same command resumes"
            return InputError("a process that read the corpus was killed", hint=hint)
        return RuntimeError(f"a reading process ended with code {code}")


def serve_jobs(module: str, parent: int) -> None:
    """Run jobs from standard input in a worker process, which exits with the process `parent`."""
    ignore_stop_signals()
    set_quiet(True)
    # Send other output of this process to stderr, so that it does not mix with the reports.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    exit_with_parent(parent)
    handle = handler_of(module)

    def answer(**message: object) -> None:
        print(json.dumps(message), file=answers, flush=True)

    for line in sys.stdin:
        answer(**answer_of(handle, json.loads(line), answer))
