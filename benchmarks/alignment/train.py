"""Train the bodies of a bundle on one GPU and learn from few labels on top of each.

    python3 -m benchmarks.alignment.train runs/alignment/alignment.tar.zst --out rows --seconds 560

Every row is written to `rows/alignment.jsonl` as it comes, so that a machine that is taken away takes nothing with it;
given again on the same machine, the command goes on. Small models leave a GPU idle most of the time, so several
processes work at once, some of them at pre-training, the rest on bodies that are finished; the headlines come first.
`--bodies` trains some alone. The page takes the rows of several calls together.
"""

from __future__ import annotations

import argparse
import json
import queue
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.multiprocessing as multiprocessing

from benchmarks.alignment.bodies import BodyWork, Place
from benchmarks.alignment.cells import ALIGNED, BODIES, LARGEST, TASKS, USUAL, Effort, Job, jobs
from endtask.bundle import unbundle
from endtask.errors import InputError, did_you_mean
from endtask.few_examples import Plan
from endtask.progress import set_quiet
from endtask.settings.values import read_list, split_entry

Tree = dict[str, Any]
ROWS = "alignment.jsonl"
PRETRAIN, CASES, HELD_OUT = "pretrain", "cases", "held_out"


@dataclass(frozen=True)
class Item:
    """A piece of work: a job on a body, or something else that is done with it."""

    body: str
    what: str | Job

    @property
    def name(self) -> str:
        """What rows say is done when it is."""
        return f"{self.body} {self.what}"


def items_after(body: str) -> list[Item]:
    """What can be done once a body is trained."""
    found: list[Item] = [Item(body, job) for job in jobs(body)]
    found += [Item(body, HELD_OUT)] if body.startswith(LARGEST) else []
    return found + ([Item(body, CASES)] if body == ALIGNED.name else [])


def work_at(item: Item, place: Place) -> Iterator[Tree]:
    """The rows of an item as they come."""
    work = BodyWork(place, BODIES[item.body])
    if isinstance(item.what, Job):
        yield from work.job(item.what)
    elif item.what == PRETRAIN:
        yield work.pretrain()
    else:
        yield from work.cases() if item.what == CASES else work.held_out()


def worker(number: int, items: Any, rows: Any, place: Place, threads: int) -> None:
    """Do what is given until the process is ended; after each item say that it is done."""
    set_quiet(True)
    torch.set_num_threads(threads)
    while True:
        item = items.get()
        try:
            for row in work_at(item, place):
                rows.put((number, row))
            rows.put((number, {"kind": "done", "item": item.name}))
        except Exception as error:
            rows.put((number, {"kind": "error", "item": item.name, "error": f"{type(error).__name__}: {error}"[:500]}))


def is_slow(item: Item) -> bool:
    """Whether an item takes long and no headline waits for it: low rates, and bodies that learn too."""
    job = item.what
    return not isinstance(job, Job) or job.train != "head" or job.rate < Plan().rates("head")[0]


class Todo:
    """What is left: so many bodies at once as `at_once` says, and beside them what stands on trained ones."""

    def __init__(self, bodies: Iterable[str], done: set[str], at_once: int) -> None:
        self._done, self._at_once, self._training, self.under_way = done, at_once, 0, 0
        self._ready: list[Item] = []
        self._bodies: list[Item] = []
        for item in (Item(body, PRETRAIN) for body in bodies):
            if item.name in done:
                self._add_those_on(item.body)
            else:
                self._bodies.append(item)

    def _add_those_on(self, body: str) -> None:
        self._ready += [item for item in items_after(body) if item.name not in self._done]
        self._ready.sort(key=is_slow)

    def take(self) -> Item | None:
        """The next item for a worker that is free."""
        item = None
        if self._bodies and self._training < self._at_once:
            item = self._bodies.pop(0)
            self._training += 1
        elif self._ready:
            item = self._ready.pop(0)
        self.under_way += item is not None
        return item

    def finished(self, item: Item, *, well: bool) -> None:
        """An item is over; on a trained body others follow."""
        self.under_way -= 1
        if item.what == PRETRAIN:
            self._training -= 1
            if well:
                self._add_those_on(item.body)

    @property
    def is_empty(self) -> bool:
        """Whether all is done."""
        return not (self._bodies or self._ready or self.under_way)


def train(place: Place, todo: Todo, file: TextIO, *, workers: int, threads: int, deadline: float) -> None:
    """Hand out the work until all is done or the time is up."""
    context = multiprocessing.get_context("spawn")
    rows: Any = context.Queue()
    queues: list[Any] = [context.Queue() for _ in range(workers)]
    # Daemons: whatever ends this process ends them.
    processes = [
        context.Process(target=worker, args=(number, own, rows, place, threads), daemon=True)
        for number, own in enumerate(queues)
    ]
    for process in processes:
        process.start()
    busy: dict[int, Item] = {}
    try:
        while not todo.is_empty and time.monotonic() < deadline and all(one.is_alive() for one in processes):
            for number in (n for n in range(workers) if n not in busy):
                if (item := todo.take()) is not None:
                    busy[number] = item
                    queues[number].put(item)
            with suppress(queue.Empty):
                number, row = rows.get(timeout=0.2)
                write(row, file)
                if row["kind"] in ("done", "error"):
                    todo.finished(busy.pop(number), well=row["kind"] == "done")
    finally:
        for process in processes:
            process.terminate()


def write(row: Tree, file: TextIO) -> None:
    """Keep a row, and show it without what is long."""
    print(json.dumps(row, ensure_ascii=False), file=file)
    if row["kind"] != "result":
        print(json.dumps({key: value for key, value in row.items() if key not in ("truth", "scored")}), flush=True)


def done_before(path: Path) -> set[str]:
    """The items that an earlier call finished."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = []
    for line in lines:
        with suppress(ValueError):  # a line that a kill cut off
            rows.append(json.loads(line))
    return {row["item"] for row in rows if row["kind"] == "done"}


def chosen(names: Sequence[str]) -> list[str]:
    """The bodies that the command line names, or all."""
    for name in names:
        if name not in BODIES:
            raise InputError(f"no body is named {name!r}", key="--bodies", hint=did_you_mean(name, BODIES))
    return list(names) or list(BODIES)


def changes(entries: Iterable[str], steps: int | None) -> Tree:
    """In what all bodies differ from the bundle's settings.

    >>> changes(["model.dropout=0.2"], 40)
    {'model.dropout': 0.2, 'budget': '40steps'}
    """
    sides = (split_entry(entry, "--set", "train.learning_rate=5e-4") for entry in entries)
    values = {key: read_list(text, "--set", key)[0] for key, text in sides}
    return values if steps is None else {**values, "budget": f"{steps}steps"}


def main() -> None:
    """Train what the command line asks for."""
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="where the rows go")
    parser.add_argument("--seconds", type=float, default=560.0, help="stop after so long")
    parser.add_argument("--bodies", nargs="*", default=[], help="some of the bodies; all")
    parser.add_argument("--steps", type=int, help="of stage 1, instead of the bundle's")
    parser.add_argument("--workers", type=int, default=6, help="processes at once")
    parser.add_argument("--pretrain-at-once", type=int, default=3, help="how many of them may train bodies")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument(
        "--seeds", type=int, default=len(USUAL.seeds), help="of each draw or fold, five of which there are"
    )
    parser.add_argument("--epochs", type=int, default=USUAL.epochs, help="at most, of heads")
    parser.add_argument("--folder", type=Path, help="room to work [the bundle without its endings]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of all bodies")
    given = parser.parse_args()
    try:
        values = changes(given.set, given.steps)
        bodies = chosen(given.bodies)
        folder = given.folder or given.bundle.with_name(given.bundle.name.removesuffix(".tar.zst"))
        place = Place(unbundle(given.bundle, folder), values, Effort(tuple(range(given.seeds)), given.epochs))
        given.out.mkdir(parents=True, exist_ok=True)
        path = given.out / ROWS
        todo = Todo(bodies, done_before(path), given.pretrain_at_once)
        with open(path, "a", encoding="utf-8", buffering=1) as file:
            for task in TASKS:
                write(place.truth(task), file)
            deadline = start + given.seconds
            train(place, todo, file, workers=given.workers, threads=given.threads, deadline=deadline)
    except InputError as error:
        parser.error(str(error))
    print(json.dumps({"finished": todo.is_empty, "seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
