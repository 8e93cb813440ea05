"""Kill retrieval with SIGKILL at every critical moment and restart it; print a JSON line about each.

The moments are every rename that retrieval does, and those amid work that renames nothing: reading, ranking and
fetching. Run in the repository's root as: python -m tests.pipeline.kill_retrieval SETTINGS FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from endtask.executors.processes import LocalExecutor
from endtask.pipeline.run import run
from tests.pipeline.kill_driver import in_child, watch_renames

Kill = Callable[[Path], None]
"""Arranges for the process to be killed later on, given the run's folder."""


def retrieve(settings: str, output: Path) -> int:
    from endtask.progress import set_quiet

    set_quiet(True)
    run({**json.loads(Path(settings).read_text()), "output_dir": str(output)}, until="select")
    return 0


def at_rename(number: int, done: bool) -> Kill:
    def arrange(output: Path) -> None:
        count = 0

        def seen(target: str, now_done: bool) -> None:
            nonlocal count
            if count == number and now_done == done:
                os.kill(os.getpid(), signal.SIGKILL)
            count += now_done

        watch_renames(output, seen)

    return arrange


def at_call(owner: Any, name: str, number: int) -> Kill:
    """Before the call of that number, from 0, of a function or method."""

    def arrange(output: Path) -> None:
        function = getattr(owner, name)
        count = 0

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return function(*arguments, **named)

        setattr(owner, name, call)

    return arrange


def beside_another_process(kill: Kill) -> Kill:
    """The same, while a second process reads too."""

    run = LocalExecutor.run

    def run_in_two(_: LocalExecutor, *arguments: Any, **named: Any) -> None:
        run(LocalExecutor(2), *arguments, **{**named, "small": False})

    def arrange(output: Path) -> None:
        LocalExecutor.run = run_in_two  # type: ignore[method-assign]
        kill(output)

    return arrange


def moments(targets: list[str]) -> dict[str, Kill]:
    from endtask.retrieval import matched_queries as fetch
    from endtask.retrieval.bm25 import score, statistics_pass

    first = next(number for number, target in enumerate(targets) if "/scratch/" in target)
    last = max(number for number, target in enumerate(targets) if target.endswith("/retrieve"))
    chosen: dict[str, Kill] = {}
    for number in range(first, last + 1):
        done = number % 2 == 1  # after one rename and before the next is the same moment on disk
        place = targets[number].partition("/unbroken/")[2]
        chosen[f"{'after' if done else 'before'} rename {number} to {place}"] = at_rename(number, done)
    chosen["while the second shard is read"] = at_call(statistics_pass.ShardWriter, "add", 1)
    second = at_call(statistics_pass.ShardWriter, "finish", 1)
    chosen["while another process reads too"] = beside_another_process(second)
    chosen["while passages are ranked"] = at_call(score.QueryBlock, "score", 1)
    chosen["while the second shard's texts are fetched"] = at_call(fetch, "_rows", 1)
    chosen["while the table is written"] = at_call(fetch, "_with_matches", 1)
    return chosen


def shards(output: Path) -> dict[str, list[int]]:
    """The shards that stand finished: their inodes and times of writing."""
    heads = (output / "scratch" / "shards").glob("*/shard.json")
    whole = {head.parent.name: head.stat() for head in heads if not head.parent.name.endswith(".partial")}
    return {name: [found.st_ino, found.st_mtime_ns] for name, found in whole.items()}


def drive(settings: str, folder: Path) -> None:
    targets: list[str] = []
    rename = os.replace
    watch_renames(folder / "unbroken", lambda target, done: targets.append(target) if done else None)
    retrieve(settings, folder / "unbroken")
    os.replace = rename
    for place, (name, arrange) in enumerate(moments(targets).items()):
        output = folder / f"killed-{place}"

        def killed() -> int:
            arrange(output)  # noqa: B023
            return retrieve(settings, output)  # noqa: B023

        answer = {"name": name, "folder": str(output), "killed": in_child(killed), "before": shards(output)}
        again = in_child(lambda: retrieve(settings, output))  # noqa: B023
        print(json.dumps({**answer, "again": again, "after": shards(output)}), flush=True)


if __name__ == "__main__":
    drive(sys.argv[1], Path(sys.argv[2]))
