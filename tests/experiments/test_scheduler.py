"""The scheduler over several GPUs, with stub workers and with real workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from endtask.config import Budget
from endtask.errors import InputError, TrainingError
from endtask.experiments import compare
from endtask.experiments.compare import compare_tasks
from endtask.experiments.record import read_record
from endtask.experiments.scheduler import (
    LOG,
    Job,
    JobEnd,
    check_devices,
    last_line,
    run_job,
    run_jobs,
    visible_device,
    warn_about_shared_devices,
)
from endtask.experiments.task_comparison import Comparison
from endtask.pipeline.stage import RunData
from tests.experiments.compare_stubs import Stubs, toy

TWO = {"variants": {"one": {}, "two": {"pretrain.learning_rate": 3e-3}}, "seeds": [0, 1], "baselines": []}


class HereWorker:
    """A worker that runs each job at once in this process, without a log."""

    def __init__(self, device: str, threads: int) -> None:
        self.device, self.is_stopped = device, False

    def submit(self, function: Callable[..., JobEnd], *arguments: Any) -> Future[JobEnd]:
        _, call, call_arguments = arguments
        future: Future[JobEnd] = Future()
        future.set_result(run_job(call, call_arguments))
        return future

    def stop(self) -> None:
        self.is_stopped = True


class Clock:
    """Workers whose jobs end in the order of their lengths, one each time that the scheduler waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lengths: dict[str, int], end: str = "finished") -> None:
        self.lengths, self.end, self.now = lengths, end, 0
        self.ends: dict[Future[JobEnd], int] = {}
        self.stopped: list[str] = []
        monkeypatch.setattr("endtask.experiments.scheduler.wait", self._wait)

    def _wait(self, futures: Iterable[Future[JobEnd]], return_when: str) -> Any:
        first = min(futures, key=lambda future: self.ends[future])
        self.now = self.ends[first]
        first.set_result(JobEnd(self.end))  # type: ignore[arg-type]
        return SimpleNamespace(done={first})

    def start(self, device: str, threads: int) -> Any:
        def submit(function: object, log: Path, call: object, arguments: tuple[str]) -> Future[JobEnd]:
            future: Future[JobEnd] = Future()
            self.ends[future] = self.now + self.lengths.get(arguments[0], 1)
            return future

        return SimpleNamespace(submit=submit, stop=lambda: self.stopped.append(device))


def job(key: str, *produces: str) -> Job:
    return Job(key, print, (key,), Path(key), frozenset(produces or (key,)))


def test_the_first_free_device_takes_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = {"a": 5, "b": 1, "c": 1, "d": 1}
    log: list[str] = []
    clock = Clock(monkeypatch, lengths)
    run_jobs(
        [job(key) for key in lengths],
        ["0", "1"],
        before=lambda each, device: log.append(f"{each.key} on {device}"),
        after=lambda each, end: log.append(f"{each.key} {end.status}"),
        start_worker=clock.start,
    )
    assert [line for line in log if "on" in line] == ["a on 0", "b on 1", "c on 1", "d on 1"]
    assert sorted(line for line in log if "finished" in line) == [f"{key} finished" for key in lengths]
    assert clock.stopped == ["0", "1"]  # one process for each device, at the end


def test_a_device_named_twice_takes_two_jobs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    run_jobs(
        [job(key) for key in "abc"],
        ["0", "0"],
        before=lambda each, device: log.append(f"{each.key} on {device}"),
        after=lambda each, end: log.append(f"{each.key} ended"),
        start_worker=Clock(monkeypatch, {"a": 5}).start,
    )
    assert log == ["a on 0", "b on 0", "b ended", "c on 0", "c ended", "a ended"]


def test_later_jobs_are_prepared_while_the_devices_work(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def more() -> Iterator[list[Job]]:
        for keys in ("bcd", "", "e"):
            log.append(f"prepare {keys}")
            yield [job(key) for key in keys]

    run_jobs(
        [job("a")],
        ["0", "1"],
        before=lambda each, device: log.append(f"{each.key} on {device}"),
        after=lambda each, end: log.append(f"{each.key} ended"),
        start_worker=Clock(monkeypatch, {"a": 5}).start,
        more=more(),
    )
    assert log == [
        *("a on 0", "prepare bcd", "b on 1", "b ended", "c on 1", "c ended"),
        *("d on 1", "prepare ", "prepare e", "d ended", "e on 1", "e ended", "a ended"),
    ]


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
def test_runs_that_take_seconds_from_each_other(
    devices: list[str], budgets: list[str], warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_about_shared_devices(devices, map(Budget.parse, budgets))
    said = "runs share GPU 0, so a budget of 10min means fewer steps than for a run alone" in capsys.readouterr().err
    assert said == warned


def at_once(monkeypatch: pytest.MonkeyPatch, jobs: list[Job], **options: Any) -> tuple[list[str], int]:
    """Return the order in which jobs start on three devices, and how many run at once at most."""
    order: list[str] = []
    running = most = 0

    def before(each: Job, device: str) -> None:
        nonlocal running, most
        order.append(each.key)
        running += 1
        most = max(most, running)

    def after(each: Job, end: JobEnd) -> None:
        nonlocal running
        running -= 1

    clock = Clock(monkeypatch, {}, options.get("end", "finished"))
    done = options.get("done", frozenset())
    run_jobs(jobs, ["0", "1", "2"], before=before, after=after, done=done, start_worker=clock.start)
    return order, most


def test_jobs_that_produce_the_same_wait_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = [job("a", "x", "a"), job("b", "x", "b"), job("c", "x", "c")]
    assert at_once(monkeypatch, [*shared, job("d", "y")]) == (["a", "d", "b", "c"], 3)  # b and c at the same time
    assert at_once(monkeypatch, shared, done=frozenset("x")) == (["a", "b", "c"], 3)
    assert at_once(monkeypatch, shared, end="failed") == (["a", "b", "c"], 1)  # what failed is not there to reuse


def test_whatever_stops_the_scheduler_stops_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {})

    def before(each: Job, device: str) -> None:
        if each.key == "c":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(
            [job("a"), job("b"), job("c")],
            ["0", "1", "2"],
            before=before,
            after=lambda each, end: None,
            start_worker=clock.start,
        )
    assert clock.stopped == ["0", "1"]


def test_devices_come_to_the_same_table(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    alone = compare(toy(toy_files, tmp_path / "alone", device="cpu"), TWO)
    calls, stubs.calls = stubs.calls, []
    tree = {**TWO, "grid": {"finetune.epochs": [2, 3]}}  # the first is `one` under another name
    settings = toy(toy_files, tmp_path / "spread", device="cpu")
    spread = compare(settings, tree, devices=["0", "1"], start_worker=HereWorker)
    for name in ("one", "two"):
        assert spread.row(name).score.mean == alone.row(name).score.mean  # type: ignore[union-attr]
    assert stubs.of("pretrain") == [call.split(" ")[0] for call in calls if call.endswith("pretrain")]
    assert len(stubs.of("finetune")) == 6  # of equal runs one is done


def test_failures_on_devices(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["one/seed-1 pretrain"] = TrainingError("too hot")
    stubs.trouble["two/seed-0 pretrain"] = InputError("the disk is full")
    settings = toy(toy_files, tmp_path / "out", device="cpu")
    with pytest.raises(InputError, match=r"two/seed-0: the disk is full \(1 run stopped; the same command tries"):
        compare(settings, TWO, devices=["0"], start_worker=HereWorker)
    assert read_record(tmp_path / "out", "compare").trials == {"one/seed-1": {"failure": "too hot"}}
    assert len(stubs.of("evaluate")) == 2  # the others went on
    outcome = compare(settings, TWO)
    assert [row.models for row in outcome.rows] == [2, 4]  # failed training is not tried again, other trouble is


def process(file: Path, end: str) -> None:
    """Write the number of this process and what it sees, then end as requested; runs in a worker."""
    seen = [os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"]]
    file.write_text(json.dumps([os.getpid(), *seen]))
    print(f"{end}: started", flush=True)
    if end == "fail":
        raise TrainingError("too hot")
    if end == "crash":
        os._exit(9)


@pytest.mark.long
def test_a_process_runs_jobs_one_after_the_other_until_one_does_not_finish(tmp_path: Path) -> None:
    names = ["one", "two", "fail", "crash"]
    jobs = [Job(name, process, (tmp_path / name, name), tmp_path / f"{name}.log") for name in names]
    ends: dict[str, JobEnd] = {}
    with pytest.raises(InputError, match=r"crash: started\) \(1 run stopped; the same command tries again"):
        run_jobs(jobs, ["3"], before=lambda *_: None, after=lambda job, end: ends.update({job.key: end}))
    numbers = {name: json.loads((tmp_path / name).read_text())[0] for name in names}
    assert numbers["one"] == numbers["two"] == numbers["fail"] != os.getpid()
    assert numbers["crash"] != numbers["fail"]
    assert [ends[name].status for name in names] == ["finished", "finished", "failed", "stopped"]
    assert ends["fail"].message == "too hot"
    assert json.loads((tmp_path / "one").read_text())[1] == "3"
    for name in names:
        assert (tmp_path / f"{name}.log").read_text().count(f"{name}: started") == 1


def test_how_a_job_ends() -> None:
    def raises(error: Exception) -> None:
        raise error

    assert run_job(print, ()) == JobEnd("finished")
    assert run_job(raises, (TrainingError("too hot"),)) == JobEnd("failed", "too hot")
    assert run_job(raises, (InputError("no such stage"),)) == JobEnd("stopped", "no such stage")
    assert run_job(raises, (OSError("the disk is full"),)) == JobEnd("stopped", "OSError: the disk is full")


@pytest.mark.slow
def test_a_worker_ends_with_the_process_that_started_it(toy_files: Path, tmp_path: Path) -> None:
    """A killed comparison leaves no process behind that would keep folders locked."""
    code = f"import time\nfrom endtask.io.processes import exit_with_parent\nexit_with_parent({os.getpid()} + 1)\ntime.sleep(60)"
    ended = subprocess.run([sys.executable, "-c", code], timeout=50, check=False, capture_output=True)  # another parent
    assert ended.stderr == b""
    assert ended.returncode == 1


def test_the_last_line_of_a_log(tmp_path: Path) -> None:
    assert last_line(tmp_path / LOG) == "no output"
    (tmp_path / LOG).write_bytes(b"endtask: caf\xe9 is closed\n  \n")
    assert last_line(tmp_path / LOG) == "caf� is closed"


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
    stubs.calls.clear()
    compare(settings, {**TWO, "seeds": [0, 1, 2]}, devices=["0"], start_worker=HereWorker)
    assert stubs.of("pretrain") == ["one/seed-2", "two/seed-2"]


def test_selections_by_models_are_left_to_the_devices_unless_they_are_shared(
    toy_files: Path, tmp_path: Path, stubs: Stubs
) -> None:
    own = {"select": {"name": "influence", "scoring_seed": "pretrain"}}
    tree = {"variants": {"rank": {}, "own": own, "shared": {"select.name": "influence"}}, "seeds": [0, 1]}
    settings = toy(toy_files, tmp_path / "out", device="cpu")
    here = compare(settings, {**tree, "baselines": []}, devices=["0"], start_worker=HereWorker)
    first = next(number for number, call in enumerate(stubs.calls) if call.endswith(" pretrain"))
    before, after = (
        [call for call in part if call.endswith(" select")] for part in (stubs.calls[:first], stubs.calls[first:])
    )
    assert before == ["rank/seed-0 select", "shared/seed-0 select"]
    assert after == ["own/seed-0 select", "own/seed-1 select"]
    assert [row.models for row in here.rows] == [4, 4, 4]


def test_tasks_share_devices(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    def comparisons(folder: str) -> dict[str, Comparison]:
        variants = {"first": TWO, "second": {**TWO, "seeds": [5]}}
        folders = {name: tmp_path / folder / name for name in variants}
        return {
            name: Comparison(toy(toy_files, folders[name], device="cpu"), study) for name, study in variants.items()
        }

    together = compare_tasks(comparisons("together"), ["0", "0"], HereWorker)
    in_turn = compare_tasks(comparisons("in-turn"))
    for name in ("first", "second"):
        assert [row.score for row in together[name].rows] == [row.score for row in in_turn[name].rows]
        assert (tmp_path / "together" / name / "compare.html").is_file()
    assert together["first"].rows[0].score != together["second"].rows[0].score
    stubs.calls.clear()
    again = compare_tasks(comparisons("together"), ["0"], HereWorker)
    assert [row.score for row in again["second"].rows] == [row.score for row in together["second"].rows]
    assert stubs.of("pretrain") == []


def test_a_stopped_run_leaves_the_other_task_finished(
    toy_files: Path, tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = stubs._evaluate

    def full_disk(data: RunData, folder: Path) -> dict[str, Any]:
        if data.settings.seed == 7 and folder.parent.name == "seed-1":
            raise OSError("the disk is full")
        return evaluate(data, folder)

    monkeypatch.setattr(stubs, "_evaluate", full_disk)
    folders = {name: tmp_path / name for name in ("first", "second")}
    settings = [toy(toy_files, folders["first"], device="cpu"), toy(toy_files, folders["second"], device="cpu", seed=7)]
    comparisons = {name: Comparison(each, TWO) for name, each in zip(folders, settings, strict=True)}
    with pytest.raises(InputError, match=r"the disk is full.*2 runs stopped; the same command tries again"):
        compare_tasks(comparisons, ["0"], HereWorker)
    assert read_record(folders["first"], "compare").outcome is not None
    assert read_record(folders["second"], "compare").outcome is None


def test_an_error_of_one_task_is_raised_after_the_others(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    for place in ("one/seed-0", "one/seed-1", "two/seed-0", "two/seed-1"):
        stubs.trouble[f"{place} pretrain"] = TrainingError("too hot")
    studies = {"first": TWO, "second": {**TWO, "seeds": [5]}}
    comparisons = {
        name: Comparison(toy(toy_files, tmp_path / name, device="cpu"), study) for name, study in studies.items()
    }
    with pytest.raises(InputError, match=r"no run trained to its end; the first: .*too hot"):
        compare_tasks(comparisons, ["0"], HereWorker)
    assert read_record(tmp_path / "second", "compare").outcome is not None
