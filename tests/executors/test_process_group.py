"""Jobs divided among the processes of torchrun, whose exchanges are those of threads here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from endtask.errors import InputError
from endtask.executors import process_group
from endtask.executors.base import Job
from endtask.executors.process_group import ProcessGroupExecutor, take_part

MODULE = "tests.executors.written_jobs"
COUNT = 3


class ThreadProcesses:
    """A process that exchanges values with those of other threads."""

    def __init__(self, rank: int, values: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.count = rank, COUNT
        self._values, self._barrier = values, barrier

    def gathered(self, value: Any) -> list[Any]:
        self._values[self.rank] = value
        self._barrier.wait(10)
        found = list(self._values)
        self._barrier.wait(10)
        return found

    def shared(self, value: Any) -> Any:
        return self.gathered(value)[0]


@contextmanager
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this thread be the first process, and run the others, which take part in one call."""
    barrier, values, local = threading.Barrier(COUNT), [None] * COUNT, threading.local()
    monkeypatch.setattr(process_group, "current_processes", lambda: local.me)

    def follow(rank: int) -> None:
        local.me = ThreadProcesses(rank, values, barrier)
        take_part(local.me.shared(None))

    threads = [threading.Thread(target=follow, args=(rank,)) for rank in range(1, COUNT)]
    for thread in threads:
        thread.start()
    local.me = ThreadProcesses(0, values, barrier)
    yield
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_every_job_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    jobs: list[Job] = [{"file": str(tmp_path / f"{number}"), "text": f"{number}"} for number in range(count)]
    reports: list[int] = []
    with others(monkeypatch):
        ProcessGroupExecutor().run(MODULE, jobs, lambda written: reports.append(written), model=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {f"{n}": f"{n}" for n in range(count)}
    assert sum(reports) == count


def test_the_first_error_is_raised_after_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = [{"file": str(tmp_path / f"{number}"), "text": "x"} for number in range(7)]
    jobs[1], jobs[5] = {"fails": "one is wrong"}, {"fails": "five is wrong"}
    with others(monkeypatch), pytest.raises(InputError, match="one is wrong"):
        ProcessGroupExecutor().run(MODULE, jobs, lambda **_: None)
    assert len(list(tmp_path.iterdir())) == 5
