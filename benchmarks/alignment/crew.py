"""The processes that work at a bundle side by side, and the rows that come from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TextIO

import torch
import torch.multiprocessing as multiprocessing

from benchmarks.alignment.bodies import BodyWork, Place
from benchmarks.alignment.cells import BODIES, Job
from benchmarks.alignment.todo import CASES, PRETRAIN, Item, Todo
from endtask.progress import set_quiet

Tree = dict[str, Any]
PROCESSES = multiprocessing.get_context("spawn")
QUIET = 0.2
"""Seconds without a row after which nobody seems to be about to send one."""


def work_at(item: Item, place: Place) -> Iterator[Tree]:
    """The rows of an item as they come."""
    work = BodyWork(place, BODIES[item.encoder])
    if isinstance(item.what, Job):
        yield from work.job(item.what)
    elif item.what == PRETRAIN:
        yield work.pretrain()
    else:
        yield from work.cases() if item.what == CASES else work.held_out()


def worker(pipe: Connection[Any, Item], place: Place, threads: int) -> None:
    """Do what is given until the process is ended; after each item say that it is done."""
    set_quiet(True)
    torch.set_num_threads(threads)
    is_well = True
    while is_well:
        item = pipe.recv()
        try:
            for row in work_at(item, place):
                pipe.send(row)
            pipe.send({"kind": "done", "item": item.name})
        except Exception as error:
            is_well = not is_cuda_error(error)
            said = f"{type(error).__name__}: {error}"[:500]
            pipe.send({"kind": "error", "item": item.name, "error": said, "worker_ends": not is_well})


def is_cuda_error(error: Exception) -> bool:
    """Whether the GPU gave up, after which a process can do nothing more with it."""
    return isinstance(error, RuntimeError) and "CUDA" in str(error)  # torch.AcceleratorError is one


class Crew:
    """Processes at work, each with a pipe of its own, so that one that is killed holds up no other."""

    def __init__(self, place: Place, *, workers: int, threads: int) -> None:
        self._place, self._threads = place, threads
        self._processes: dict[Connection[Item, Tree], BaseProcess] = {}
        self._busy: dict[Connection[Item, Tree], Item] = {}
        for _ in range(workers):
            self._start()

    def _start(self) -> None:
        here, there = PROCESSES.Pipe()
        # Daemons: whatever ends this process ends them.
        process = PROCESSES.Process(target=worker, args=(there, self._place, self._threads), daemon=True)
        process.start()
        there.close()  # so that the pipe ends with the process
        self._processes[here] = process

    @property
    def is_alive(self) -> bool:
        """Whether anybody is left to work."""
        return bool(self._processes)

    def hand_out(self, todo: Todo) -> None:
        """Give an item to each that has none, as long as there are any."""
        for pipe in (one for one in self._processes if one not in self._busy):
            if (item := todo.take()) is not None:
                self._busy[pipe] = item
                with suppress(OSError):  # it died just now, which is met when it is listened to
                    pipe.send(item)

    def listen(self, todo: Todo, file: TextIO) -> bool:
        """Keep the rows that come, one of each process; whether there were any."""
        pipes: list[Any] = wait(list(self._processes), timeout=QUIET)
        for pipe in pipes:
            row = self._received(pipe)
            if row is not None:
                write(row, file)
                if row["kind"] in ("done", "error"):
                    todo.finished(self._busy.pop(pipe), well=row["kind"] == "done")
                if row.get("worker_ends"):
                    self._end(pipe)
                    self._start()
        return bool(pipes)

    def _received(self, pipe: Connection[Item, Tree]) -> Tree | None:
        """The next row; of a process that died, the failure of its item, and nobody takes its place."""
        try:
            return pipe.recv()
        except (EOFError, OSError):
            self._end(pipe)
            if pipe not in self._busy:
                return None
            return {"kind": "error", "item": self._busy[pipe].name, "error": "the process died"}

    def _end(self, pipe: Connection[Item, Tree]) -> None:
        self._processes.pop(pipe).terminate()
        pipe.close()

    def end(self) -> None:
        """End all processes."""
        for pipe in list(self._processes):
            self._end(pipe)


def write(row: Tree, file: TextIO) -> None:
    """Keep a row, and show it without what is long."""
    print(json.dumps(row, ensure_ascii=False), file=file)
    if row["kind"] != "result":
        short = {key: value for key, value in row.items() if key not in ("truth", "groups", "scored")}
        print(json.dumps(short), flush=True)
