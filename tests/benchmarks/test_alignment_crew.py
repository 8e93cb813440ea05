"""The work for the alignment evidence, handed out to processes of which some fail: nothing is lost, nothing hangs."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.alignment import crew
from benchmarks.alignment import train as command
from benchmarks.alignment.bodies import Place
from benchmarks.alignment.cells import ALIGNED, PLAIN
from benchmarks.alignment.rows_file import ROWS, mend_end, read_rows
from benchmarks.alignment.todo import PRETRAIN, Item, Todo, is_slow, items_after
from endtask.errors import InputError

Tree = dict[str, Any]
BODY, FIRST, SECOND = Item("256x1", PRETRAIN).name, *[item.name for item in items_after("256x1")[:2]]
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start at once, with what the test put in place of the work."""
    if sys.platform != "linux":
        pytest.skip("processes with loaded libraries can be forked safely on Linux alone")
    monkeypatch.setattr(crew, "PROCESSES", multiprocessing.get_context("fork"))


def test_headlines_go_before_what_is_slow_and_nothing_stands_on_a_body_that_failed() -> None:
    todo = Todo([ALIGNED.name, "512x3", PLAIN.name], set(), at_once=1)
    first = todo.take()
    assert first == Item(ALIGNED.name, PRETRAIN)
    assert todo.take() is None  # one body at a time, and nothing stands on it yet
    todo.finished(first, well=True)
    second = todo.take()
    assert second == Item("512x3", PRETRAIN)
    todo.finished(second, well=False)
    assert todo.take() == Item(PLAIN.name, PRETRAIN)
    found = []
    while (item := todo.take()) is not None:
        found.append(item)
        todo.finished(item, well=True)
    assert sorted(map(str, found)) == sorted(map(str, items_after(ALIGNED.name)))
    slow = [is_slow(item) for item in found]
    assert slow == sorted(slow)
    assert Counter(slow) == {False: 4, True: 12}
    assert not todo.is_empty  # the last body is still under way


def test_what_fails_is_put_back_once() -> None:
    todo = Todo(["256x1"], set(), at_once=1)
    encoder = Item("256x1", PRETRAIN)
    assert todo.take() == encoder
    todo.finished(encoder, well=False)
    assert todo.failed == {encoder}
    assert todo.take() == encoder
    todo.finished(encoder, well=True)
    assert todo.failed == set()
    first = todo.take()
    assert first is not None
    todo.finished(first, well=False)
    rest = []
    while (item := todo.take()) is not None:
        rest.append(item)
        todo.finished(item, well=item != first)
    assert rest.index(first) == len(rest) - 1  # last, and once
    assert (todo.is_empty, todo.failed) == (True, {first})


@pytest.mark.parametrize(
    "end", ['{"kind": "res', '{"kind": "case", "text": "\u201c', "{", '{"kind": "done", "item": "b"}']
)
def test_what_a_kill_cut_off_is_no_row_and_others_can_follow(tmp_path: Path, end: str) -> None:
    path = tmp_path / ROWS
    first, whole = {"kind": "done", "item": "a"}, end.endswith("}")
    path.write_bytes(f"{json.dumps(first)}\n{end}".encode()[: None if whole else -1])
    expected = [(1, first), (2, {"kind": "done", "item": "b"})] if whole else [(1, first)]
    assert list(read_rows(path)) == expected
    mend_end(path)
    with path.open("a", encoding="utf-8") as file:
        crew.write({"kind": "done", "item": "c"}, file)
    assert list(read_rows(path)) == [*expected, (len(expected) + 1, {"kind": "done", "item": "c"})]
    mend_end(tmp_path / "nothing.jsonl")
    assert not (tmp_path / "nothing.jsonl").exists()


def test_what_is_cut_off_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ROWS
    path.write_text('{"kind": "res\n{"kind": "done", "item": "a"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"alignment\.jsonl, row 1: not a row"):
        list(read_rows(path))


class Stubs:
    """What processes do in place of the work: some items give trouble, `once` if their first try alone does."""

    def __init__(self, folder: Path, trouble: dict[str, str]) -> None:
        self._folder, self._trouble = folder, trouble

    def work_at(self, item: Item, place: Place) -> Iterator[Tree]:
        yield {"kind": "try", "item": item.name, "process": os.getpid()}
        kind, _, often = self._trouble.get(item.name, "").partition(" ")
        tried = self._folder / f"tried-{item.name}"[:200]
        if often == "once" and tried.exists():
            return
        tried.touch()
        if kind == "killed":
            os._exit(9)
        if kind == "cuda":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if kind == "wrong":
            raise ValueError("wrong")
        if kind == "slow":
            yield from ({"kind": "more"}, {"kind": "more"})
            time.sleep(600)


def rows_of_crew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, trouble: dict[str, str], *, workers: int
) -> tuple[Todo, list[Tree]]:
    """What is left, and the rows that came."""
    monkeypatch.setattr(crew, "work_at", Stubs(folder, trouble).work_at)
    todo, file = Todo(["256x1"], set(), at_once=1), io.StringIO()
    command.train(Place(folder, {}), todo, file, workers=workers, threads=1, deadline=time.monotonic() + 60)
    return todo, [json.loads(line) for line in file.getvalue().splitlines()]


def names_of(rows: list[Tree], kind: str) -> list[str]:
    return [row["item"] for row in rows if row["kind"] == kind]


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("trouble", ["wrong once", "cuda once", "killed once"])
@pytest.mark.parametrize("item", [BODY, FIRST])
def test_what_fails_once_is_done_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, item: str
) -> None:
    todo, rows = rows_of_crew(tmp_path, monkeypatch, {item: trouble}, workers=2)
    assert (todo.is_empty, todo.failed) == (True, set())
    assert sorted(names_of(rows, "done")) == sorted([BODY, *(one.name for one in items_after("256x1"))])
    assert names_of(rows, "error") == [item]
    tries = [(row["item"], row["process"]) for row in rows if row["kind"] == "try"]
    first, second = (place for place, (name, _) in enumerate(tries) if name == item)
    assert second > first
    if trouble != "wrong once":  # whoever met an error of the GPU does nothing more
        assert tries[first][1] not in [process for _, process in tries[first + 1 :]]


@pytest.mark.usefixtures("forked")
def test_what_fails_twice_stays_and_the_rest_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo, rows = rows_of_crew(tmp_path, monkeypatch, {FIRST: "wrong"}, workers=1)
    assert (todo.is_empty, {item.name for item in todo.failed}) == (True, {FIRST})
    assert names_of(rows, "error") == [FIRST, FIRST]
    assert FIRST not in names_of(rows, "done")
    assert SECOND in names_of(rows, "done")


@pytest.mark.usefixtures("forked")
def test_the_call_ends_when_nobody_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo, rows = rows_of_crew(tmp_path, monkeypatch, {FIRST: "killed"}, workers=1)
    assert (todo.is_empty, {item.name for item in todo.failed}) == (False, {FIRST})
    assert rows[-1] == {"kind": "error", "item": FIRST, "error": "the process died"}


@pytest.mark.usefixtures("forked")
def test_rows_on_their_way_are_kept_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_out, clock = crew.Crew.hand_out, time.monotonic

    def and_wait(self: crew.Crew, todo: Todo) -> None:
        """The time is up before anybody listens."""
        handed_out(self, todo)
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 1e6)

    monkeypatch.setattr(crew.Crew, "hand_out", and_wait)
    monkeypatch.setattr(crew, "QUIET", 1.5)
    todo, rows = rows_of_crew(tmp_path, monkeypatch, {BODY: "slow"}, workers=1)
    assert [row["kind"] for row in rows] == ["try", "more", "more"]
    assert not todo.is_empty


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("trouble", "code"), [("", 0), ("wrong", 1)])
def test_the_last_line_counts_errors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trouble: str,
    code: int,
) -> None:
    monkeypatch.setattr(crew, "work_at", Stubs(tmp_path, {SECOND: trouble}).work_at)
    monkeypatch.setattr(Place, "truth", lambda self, task: {"kind": "task", "task": task})
    monkeypatch.setattr(command, "unbundle", lambda bundle, folder: tmp_path)
    given = ["x.tar.zst", "--out", str(tmp_path / "rows"), "--bodies", "256x1", "--workers", "1", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["train", *given])
    with pytest.raises(SystemExit) as ended:
        command.main()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (ended.value.code, last["finished"], last["errors"]) == (code, code == 0, code)


def test_errors_of_the_gpu_are_told_from_others() -> None:
    assert crew.is_cuda_error(RuntimeError("CUDA error: device-side assert triggered"))
    assert not crew.is_cuda_error(RuntimeError("shapes do not fit"))
    assert not crew.is_cuda_error(ValueError("no CUDA here"))
