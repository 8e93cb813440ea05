"""Jobs in worker processes: all are done, errors come back unchanged, and the death of a worker is reported."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from endtask.errors import InputError
from endtask.executors.processes import run_jobs

HANDLER = '''
import os, sys, time
from pathlib import Path
from endtask.errors import InputError

print("a line while importing")


def handle(job, report):
    """What to do is named for the process that started it all ("here") and for the others ("there")."""
    folder = Path(job["folder"])
    where = "here" if os.getpid() == job["parent"] else "there"
    task = job.get(where, "write")
    # Whoever is early waits for a sign from the other, so that both have something to do.
    end = time.monotonic() + 60
    while "wait" in job.get(f"{where}_first", "") and not any(folder.glob("there-*")):
        assert time.monotonic() < end, "the other process never came"
        time.sleep(0.01)
    (folder / f"{where}-{job['number']}").write_text(job.get("text", ""))
    print("a line from the job", flush=True)
    os.write(1, b"not JSON either\\n")
    report(done_so_far=job["number"])
    if task == "complain":
        raise InputError("not good", path=f"file-{job['number']}", row=3)
    if task == "disk":
        raise OSError(28, "No space left on device", "somewhere")
    if task == "die":
        os._exit(7)
    if task == "interrupted":
        raise KeyboardInterrupt
    if task == "long":
        time.sleep(60)
        (folder / f"there-{100 + job['number']}").touch()
    if task == "crash":
        raise KeyError("a mistake of our own")
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a handler, found by this process and by the others."""
    name = f"handler_{tmp_path.name}".replace("-", "_")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(HANDLER)
    monkeypatch.syspath_prepend(tmp_path / "code")
    paths = [str(tmp_path / "code"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return name


def jobs_for(folder: Path, count: int, **more: Any) -> list[dict[str, Any]]:
    folder.mkdir()
    return [{"number": n, "folder": str(folder), "parent": os.getpid(), **more} for n in range(count)]


def done(folder: Path, where: str = "*") -> list[int]:
    return sorted(int(path.name.partition("-")[2]) for path in folder.glob(f"{where}-*"))


def test_one_process_does_all_jobs_in_order(module: str, tmp_path: Path) -> None:
    reports: list[int] = []
    run_jobs(module, jobs_for(tmp_path / "out", 4), 1, lambda done_so_far: reports.append(done_so_far))
    assert reports == [0, 1, 2, 3]
    assert done(tmp_path / "out", "here") == [0, 1, 2, 3]


def test_two_processes_share_the_jobs_and_may_print(module: str, tmp_path: Path) -> None:
    reports: list[int] = []
    jobs = jobs_for(tmp_path / "out", 6, here_first="wait")
    for job in jobs:
        job["text"] = "Zürich 東京"
    run_jobs(module, jobs, 2, lambda done_so_far: reports.append(done_so_far))
    assert sorted(reports) == done(tmp_path / "out") == [0, 1, 2, 3, 4, 5]
    assert done(tmp_path / "out", "there"), "the other process had something to do"
    assert {path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()} == {"Zürich 東京"}


def test_no_jobs(module: str) -> None:
    reports: list[object] = []
    run_jobs(module, [], 3, lambda **told: reports.append(told))
    assert reports == []


@pytest.mark.parametrize("count", [1, 2])
def test_one_bad_job_does_not_stop_the_others(module: str, tmp_path: Path, count: int) -> None:
    jobs = jobs_for(tmp_path / "out", 5, here_first="wait" if count > 1 else "")
    for number in (1, 3):
        jobs[number].update(here="complain", there="complain")
    with pytest.raises(InputError) as caught:
        run_jobs(module, jobs, count, lambda **_: None)
    assert str(caught.value) == "file-1, row 3: not good", "the first of the two, in the order of the jobs"
    assert done(tmp_path / "out") == [0, 1, 2, 3, 4]


def test_a_full_disk_stops_all(module: str, tmp_path: Path) -> None:
    jobs = jobs_for(tmp_path / "out", 5)
    jobs[1].update(here="disk")
    with pytest.raises(OSError, match="No space left on device: 'somewhere'"):
        run_jobs(module, jobs, 1, lambda **_: None)
    assert done(tmp_path / "out") == [0, 1]


def test_a_full_disk_met_elsewhere_is_told_as_such(module: str, tmp_path: Path) -> None:
    jobs = jobs_for(tmp_path / "out", 2, here_first="wait", there="disk")
    with pytest.raises(OSError, match="No space left on device: 'somewhere'") as caught:
        run_jobs(module, jobs, 2, lambda **_: None)
    assert caught.value.errno == 28


@pytest.mark.parametrize(("there", "code"), [("die", 7), ("crash", 1)])
def test_a_process_that_dies_is_an_error_and_not_a_wait(module: str, tmp_path: Path, there: str, code: int) -> None:
    jobs = jobs_for(tmp_path / "out", 2, here_first="wait", there=there)
    with pytest.raises(RuntimeError, match=f"a reading process ended with code {code}$"):
        run_jobs(module, jobs, 2, lambda **_: None)


def test_a_mistake_here_ends_the_others(module: str, tmp_path: Path) -> None:
    jobs = jobs_for(tmp_path / "out", 200, here_first="wait", here="crash")
    with pytest.raises(KeyError, match="a mistake of our own"):
        run_jobs(module, jobs, 2, lambda done_so_far: time.sleep(0.05))
    assert len(done(tmp_path / "out")) < 200


def test_an_interrupt_does_not_wait_for_a_long_job(module: str, tmp_path: Path) -> None:
    jobs = jobs_for(tmp_path / "out", 2, here_first="wait", here="interrupted", there="long")
    with pytest.raises(KeyboardInterrupt):
        run_jobs(module, jobs, 2, lambda **_: None)
    assert done(tmp_path / "out") == [0, 1], "begun by both and ended by neither"
