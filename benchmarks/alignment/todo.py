"""What is left to do: bodies to train, and what stands on those that are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.alignment.cells import ALIGNED, LARGEST, Job, jobs
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec

PRETRAIN, CASES, HELD_OUT = "pretrain", "cases", "held_out"


@dataclass(frozen=True)
class Item:
    """A piece of work: a job on a body, or something else that is done with it."""

    encoder: str
    what: str | Job

    @property
    def name(self) -> str:
        """What rows say is done when it is."""
        return f"{self.encoder} {self.what}"


def items_after(encoder: str) -> list[Item]:
    """What can be done once a body is trained."""
    found: list[Item] = [Item(encoder, job) for job in jobs(encoder)]
    found += [Item(encoder, HELD_OUT)] if encoder.startswith(LARGEST) else []
    return found + ([Item(encoder, CASES)] if encoder == ALIGNED.name else [])


def is_slow(item: Item) -> bool:
    """Whether an item takes long and no headline waits for it: low rates, and bodies that learn too."""
    job = item.what
    return not isinstance(job, Job) or job.train != "head" or job.rate < FewShotSpec().learning_rates_of("head")[0]


class Todo:
    """What is left: so many bodies at once as `at_once` says, and beside them what stands on trained ones.

    What fails is put back once; `failed` is all whose last try failed.
    """

    def __init__(self, bodies: Iterable[str], done: set[str], at_once: int) -> None:
        self._done, self._at_once, self._training, self.under_way = done, at_once, 0, 0
        self._ready: list[Item] = []
        self._bodies: list[Item] = []
        self.failed: set[Item] = set()
        for item in (Item(encoder, PRETRAIN) for encoder in bodies):
            if item.name in done:
                self._add_those_on(item.encoder)
            else:
                self._bodies.append(item)

    def _add_those_on(self, encoder: str) -> None:
        self._ready += [item for item in items_after(encoder) if item.name not in self._done]
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
        is_body = item.what == PRETRAIN
        self._training -= is_body
        if well:
            self.failed.discard(item)
            if is_body:
                self._add_those_on(item.encoder)
        elif item not in self.failed:
            self.failed.add(item)
            (self._bodies if is_body else self._ready).append(item)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do."""
        return not (self._bodies or self._ready or self.under_way)
