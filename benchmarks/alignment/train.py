"""Train the bodies of a bundle on one GPU and learn from few labels on top of each.

    python3 -m benchmarks.alignment.train runs/alignment/alignment.tar.zst --out rows --seconds 560

Every row is written to `rows/alignment.jsonl` as it comes, so that a machine that is taken away takes nothing with it;
given again, the command goes on, on another machine after training the bodies anew on which something is left to do.
What fails is tried once more; the last line counts what failed then too, or was not come to again, and the exit code is
1 if there is any. Small models leave a GPU idle most of the time, so several processes work at once, some of them at
pre-training, the rest on bodies that are finished; the headlines come first.
`--bodies` trains some alone. The page takes the rows of several calls together.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.alignment.bodies import BodyWork, Place
from benchmarks.alignment.cells import BODIES, TASKS, USUAL, Effort
from benchmarks.alignment.crew import Crew, write
from benchmarks.alignment.rows_file import ROWS, mend_end, not_a_row, read_rows, refuse_mixed
from benchmarks.alignment.todo import PRETRAIN, Item, Todo, items_after
from endtask.bundle import unbundle
from endtask.config.overrides import read_list, split_entry
from endtask.errors import InputError, did_you_mean

Tree = dict[str, Any]
LAST_ROWS = 5.0
"""Seconds for rows that are on their way when the time is up."""


def train(place: Place, todo: Todo, file: TextIO, *, workers: int, threads: int, deadline: float) -> None:
    """Hand out the work until all is done, the time is up or nobody is left; then keep what is on its way."""
    crew = Crew(place, workers=workers, threads=threads)
    try:
        while not todo.is_empty and crew.is_alive and time.monotonic() < deadline:
            crew.hand_out(todo)
            crew.listen(todo, file)
        until = time.monotonic() + LAST_ROWS
        while crew.listen(todo, file) and time.monotonic() < until:
            pass
    finally:
        crew.end()


def done_before(path: Path, place: Place) -> set[str]:
    """The items that earlier calls finished; bodies that are not on this machine count if nothing is left on them."""
    done = set()
    for number, row in read_rows(path):
        try:
            refuse_mixed(row, place.made)
            done |= {row["item"]} if row["kind"] == "done" else set()
        except KeyError:
            raise not_a_row(path, number) from None
        except InputError as error:
            raise InputError(str(error), path=path, row=number, hint="choose another --out") from None
    left = {item.encoder for encoder in BODIES for item in items_after(encoder) if item.name not in done}
    trained = [item for item in (Item(encoder, PRETRAIN) for encoder in left) if item.name in done]
    return done - {item.name for item in trained if not BodyWork(place, BODIES[item.encoder]).is_trained}


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
    sides = (split_entry(entry, "--set", "pretrain.learning_rate=5e-4") for entry in entries)
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
    parser.add_argument("--steps", type=int, help="of pre-training, instead of the bundle's")
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
        todo = Todo(bodies, done_before(path, place), given.pretrain_at_once)
        mend_end(path)
        with open(path, "a", encoding="utf-8", buffering=1) as file:
            for task in TASKS:
                write(place.truth(task), file)
            deadline = start + given.seconds
            train(place, todo, file, workers=given.workers, threads=given.threads, deadline=deadline)
    except InputError as error:
        parser.error(str(error))
    finished, seconds = todo.is_empty and not todo.failed, round(time.monotonic() - start, 1)
    print(json.dumps({"finished": finished, "errors": len(todo.failed), "seconds": seconds}))
    sys.exit(1 if todo.failed else 0)


if __name__ == "__main__":
    main()
