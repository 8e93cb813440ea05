"""The queue over several GPUs, with made-up processes and with real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endtask.compare import compare
from endtask.compare.devices import (
    BROKEN_TRAINING,
    LOG,
    Job,
    Process,
    check_devices,
    last_line,
    warn_of_shared_devices,
    work_through,
)
from endtask.compare.record import read_record
from endtask.compare.workers import Worker, Workers, visible_device
from endtask.config import Budget
from endtask.errors import InputError
from endtask.pipeline.run import run
from tests.compare.stubs import Stubs, toy

TWO = {"cells": {"one": {}, "two": {"pretrain.learning_rate": 3e-3}}, "seeds": [0, 1], "baselines": []}


class Fake:
    """A process that ends after being asked so many times."""

    def __init__(self, polls: int, code: int = 0) -> None:
        self.left, self.code, self.terminated = polls, code, False

    def poll(self) -> int | None:
        self.left -= 1
        return self.code if self.left <= 0 else None

    def terminate(self) -> None:
        self.terminated = True

    def wait(self) -> int:
        return self.code


def job(key: str, *stages: str) -> Job:
    return Job(key, Path(key), "evaluate", frozenset(stages or (key,)))


def test_the_first_free_device_takes_the_next_job() -> None:
    lengths = {"a": 5, "b": 1, "c": 1, "d": 1}
    told: list[str] = []
    work_through(
        [job(key) for key in lengths],
        ["0", "1"],
        start=lambda each, device: Fake(lengths[each.key]),
        before=lambda each, device: told.append(f"{each.key} on {device}"),
        after=lambda each, code: told.append(f"{each.key} ended {code}"),
        callback=0,
    )
    assert [line for line in told if "on" in line] == ["a on 0", "b on 1", "c on 1", "d on 1"]
    assert sorted(line for line in told if "ended" in line) == [f"{key} ended 0" for key in lengths]


def test_a_device_named_twice_takes_two_jobs_at_a_time() -> None:
    told: list[str] = []
    work_through(
        [job(key) for key in "abc"],
        ["0", "0"],
        start=lambda each, device: Fake({"a": 5}.get(each.key, 1)),
        before=lambda each, device: told.append(f"{each.key} on {device}"),
        after=lambda each, code: told.append(f"{each.key} ended"),
        callback=0,
    )
    assert told == ["a on 0", "b on 0", "b ended", "c on 0", "c ended", "a ended"]


@pytest.mark.parametrize(
    ("devices", "budgets", "warned"),
    [
        (["0", "0"], ["100steps", "10min"], True),
        (["0", "1", "0"], ["10min"], True),
        (["0", "0"], ["100steps", "5Mtok"], False),
        (["0", "1"], ["10min"], False),
        ([], ["10min"], False),
    ],
)
def test_runs_that_take_seconds_from_each_other_are_told(
    devices: list[str], budgets: list[str], warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_shared_devices(devices, map(Budget.parse, budgets))
    said = "runs share GPU 0, so the budget of 10min is fewer steps than for a run alone" in capsys.readouterr().err
    assert said == warned


def at_once(jobs: list[Job], **options: Any) -> tuple[list[str], int]:
    """The order in which jobs start on three devices, and how many run at once at most."""
    order: list[str] = []
    running = most = 0

    def before(each: Job, device: str) -> None:
        nonlocal running, most
        order.append(each.key)
        running += 1
        most = max(most, running)

    def after(each: Job, code: int) -> None:
        nonlocal running
        running -= 1

    work_through(
        jobs,
        ["0", "1", "2"],
        start=lambda each, device: Fake(3, options.get("code", 0)),
        before=before,
        after=after,
        done=options.get("done", frozenset()),
        callback=0,
    )
    return order, most


def test_jobs_that_share_a_stage_wait_until_it_is_done() -> None:
    shared = [job("a", "x", "a"), job("b", "x", "b"), job("c", "x", "c")]
    assert at_once([*shared, job("d", "y")]) == (["a", "d", "b", "c"], 2)  # then b and c go at the same time
    assert at_once(shared, done=frozenset("x")) == (["a", "b", "c"], 3)
    assert at_once(shared, code=BROKEN_TRAINING) == (["a", "b", "c"], 1)  # what broke is not there to share


def test_whatever_stops_the_queue_stops_the_runs() -> None:
    started: list[Fake] = []

    def start(each: Job, device: str) -> Fake:
        if each.key == "c":
            raise KeyboardInterrupt
        started.append(Fake(100))
        return started[-1]

    with pytest.raises(KeyboardInterrupt):
        work_through(
            [job("a"), job("b"), job("c")],
            ["0", "1", "2"],
            start=start,
            before=lambda each, device: None,
            after=lambda each, code: None,
            callback=0,
        )
    assert [fake.terminated for fake in started] == [True, True]


def in_this_process(each: Job, device: str) -> Fake:
    """A launcher that does the run at once."""
    run(each.folder, until=each.until)
    return Fake(1)


def test_devices_come_to_the_same_table(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    alone = compare(toy(toy_files, tmp_path / "alone", device="cpu"), TWO)
    calls, stubs.calls = stubs.calls, []
    tree = {**TWO, "grid": {"finetune.epochs": [2, 3]}}  # the first is `one` under another name
    spread = compare(toy(toy_files, tmp_path / "spread", device="cpu"), tree, devices=["0", "1"], start=in_this_process)
    for name in ("one", "two"):
        assert spread.row(name).score.mean == alone.row(name).score.mean  # type: ignore[union-attr]
    assert stubs.of("pretrain") == [call.split(" ")[0] for call in calls if call.endswith("pretrain")]
    assert len(stubs.of("finetune")) == 6  # of equal runs one is done


def test_failures_on_devices(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    codes = {"one/seed-1": BROKEN_TRAINING, "two/seed-0": 2}

    def start(each: Job, device: str) -> Fake:
        if each.key not in codes:
            return in_this_process(each, device)
        (each.folder / LOG).write_text(f"pretrain: started\nendtask: trouble of {each.key}\n\n")
        return Fake(1, codes[each.key])

    settings = toy(toy_files, tmp_path / "out", device="cpu")
    with pytest.raises(InputError, match=r"two/seed-0: trouble of two/seed-0 \(1 run stopped; the same command tries"):
        compare(settings, TWO, devices=["0"], start=start)
    assert read_record(tmp_path / "out").failures == {"one/seed-1": "trouble of one/seed-1"}
    assert len(stubs.of("evaluate")) == 2  # the others went on
    outcome = compare(settings, TWO)
    assert [row.runs for row in outcome.rows] == [2, 4]  # broken training is not tried again, other trouble is


def exit_code(process: Process) -> int:
    """Of a job that is done by a process."""
    while (code := process.poll()) is None:
        time.sleep(0.05)
    return code


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(at_once=2)
    yield made
    made.end()


@pytest.mark.slow
def test_a_process_does_runs_one_after_the_other(toy_files: Path, tmp_path: Path, workers: Workers) -> None:
    folders = [run(toy(toy_files, tmp_path / name, device="cpu"), until="read").folder for name in ("one", "two")]
    first = workers(Job("one", folders[0], "retrieve", frozenset()), "3")
    assert exit_code(first) == 0
    second = workers(Job("two", folders[1], "retrieve", frozenset()), "3")
    assert second is first
    assert exit_code(second) == 0
    for folder in folders:
        assert (folder / "retrieve" / "manifest.json").exists()
        assert (folder / LOG).read_text().count("retrieve: started") == 1
    assert workers(Job("one", folders[0], "retrieve", frozenset()), "4") is not first, "another GPU, another process"
    failed = workers(Job("one", folders[0], "nonsense", frozenset()), "3")
    assert exit_code(failed) == 2
    assert last_line(folders[0]).startswith("unknown stage 'nonsense' (known: ")
    assert workers(Job("two", folders[1], "retrieve", frozenset()), "3") is not failed


@pytest.mark.slow
def test_a_process_that_crashes_is_an_exit_code(toy_files: Path, tmp_path: Path, workers: Workers) -> None:
    folder = run(toy(toy_files, tmp_path / "run", device="cpu"), until="read").folder
    job = Job("run", folder, "retrieve", frozenset())
    crashed = workers(job, "0")
    assert isinstance(crashed, Worker)
    crashed.terminate()
    assert exit_code(crashed) not in (0, 2, BROKEN_TRAINING)
    assert workers(job, "0") is not crashed


@pytest.mark.slow
def test_a_run_ends_with_the_comparison_that_started_it(toy_files: Path, tmp_path: Path) -> None:
    """A killed comparison leaves no process behind that would keep folders locked."""
    code = f"import time\nfrom endtask.io.exit_with_parent import end_with\nend_with({os.getpid()} + 1)\ntime.sleep(60)"
    ended = subprocess.run([sys.executable, "-c", code], timeout=50, check=False)  # its parent is another one
    assert ended.returncode == 1


def test_the_last_line_of_a_log(tmp_path: Path) -> None:
    assert last_line(tmp_path) == "it said nothing"
    (tmp_path / LOG).write_bytes(b"endtask: caf\xe9 is closed\n  \n")
    assert last_line(tmp_path) == "caf� is closed"


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check_devices(["0", "1"], "auto")
    check_devices(["7"], "cpu")
    check_devices([], "auto")
    check_devices(["1", "1", "0"], "auto")
    for devices, said in (
        (["0", "2"], r"there is no GPU 2 \(there are 2, counted from 0\)"),
        (["cuda"], "'cuda' is not the number of a GPU"),
        ([""], "is not the number of a GPU"),
    ):
        with pytest.raises(InputError, match=said):
            check_devices(devices, "auto")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(InputError, match="PyTorch sees none"):
        check_devices(["0"], "auto")


def test_hidden_gpus_are_counted_among_those_left() -> None:
    assert visible_device("0", {"CUDA_VISIBLE_DEVICES": "GPU-abc,5"}) == "GPU-abc"
    assert visible_device("3", {"CUDA_VISIBLE_DEVICES": "4,5"}) == "3"


def test_finished_runs_are_not_started(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "out", device="cpu")
    compare(settings, TWO)
    started: list[str] = []

    def start(each: Job, device: str) -> Fake:
        started.append(each.key)
        return in_this_process(each, device)

    compare(settings, {**TWO, "seeds": [0, 1, 2]}, devices=["0"], start=start)
    assert started == ["one/seed-2", "two/seed-2"]
