"""Pass 1: every shard of the corpus is read once, side by side; shards that were read before are taken over."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from endtask.corpus import Corpus
from endtask.progress import Advance, bar
from endtask.retrieval.join import Joined, join
from endtask.retrieval.matched_passages import Asked
from endtask.retrieval.read_shard import ShardReader
from endtask.retrieval.shard_files import ShardFolder
from endtask.retrieval.shards import Shard, shards_of
from endtask.retrieval.workers import Job, Report, run_jobs

WORTH_A_PROCESS = 8_000_000
"""Bytes on disk; reading fewer takes no longer than starting interpreters."""
_REPORT_SECONDS = 0.2
_SHARD_NAME = re.compile(r"[0-9a-f]{24}(\.\d+\.partial)?")


def read_corpus(
    corpus: Corpus,
    asked: Asked,
    folder: Path,
    *,
    workers: int,
    near_duplicates: float | None = None,
) -> Joined:
    """Read the corpus into `folder`, but for the shards that stand there already."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = shards_of(corpus)
    places = [folder / shard.key(asked.key) for shard in shards]
    missing = [(shard, place) for shard, place in zip(shards, places, strict=True) if ShardFolder.open(place) is None]
    _remove_others(folder, {place.name for place in places})
    if missing:
        _read(missing, asked, folder, workers)
    opened = []
    for shard, place in zip(shards, places, strict=True):
        found = ShardFolder.open(place)
        if found is None:
            raise RuntimeError(f"{place} vanished while the corpus was read")
        opened.append((shard, found))
    return join(corpus, opened, near_duplicates=near_duplicates)


def _remove_others(folder: Path, wanted: set[str]) -> None:
    """Delete the shards of other corpora or queries, and what killed processes left; nothing that is not ours."""
    for path in folder.iterdir():
        if _SHARD_NAME.fullmatch(path.name) and path.name not in wanted:
            shutil.rmtree(path, ignore_errors=True)


def _read(missing: Sequence[tuple[Shard, Path]], asked: Asked, folder: Path, workers: int) -> None:
    setup = folder / "asked.npz"
    asked.save(setup)
    total = sum(shard.size() for shard, _ in missing)
    # The largest first, so that none is left over at the end.
    ordered = sorted(missing, key=lambda pair: -pair[0].size())
    jobs = [
        {"shard": shard.to_json(), "folder": str(place), "setup": [str(setup), asked.key]} for shard, place in ordered
    ]
    with bar("read corpus", total or None, unit="bytes") as advance:
        run_jobs(__name__, jobs, workers if total >= WORTH_A_PROCESS else 1, _Speedometer(advance))


class _Speedometer:
    """Adds up what all workers tell, for one bar."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._started = time.monotonic()
        self._text = self._passages = 0

    def __call__(self, *, read: int, text: int, passages: int) -> None:
        self._text += text
        self._passages += passages
        speed = self._text / 1e6 / max(1e-3, time.monotonic() - self._started)
        self._advance(read, note=f"{speed:.0f} MB/s, {self._passages:,} passages")


def handle(job: Job, report: Report) -> None:
    """One job of a worker: a shard."""
    told = {"read": 0, "text": 0, "passages": 0}
    last = time.monotonic()

    def progress(**more: int) -> None:
        nonlocal last
        for name, amount in more.items():
            told[name] += amount
        if "passages" in more and time.monotonic() - last > _REPORT_SECONDS:
            last = time.monotonic()
            _tell(told, report)

    _reader(*job["setup"]).read(Shard.from_json(job["shard"]), Path(job["folder"]), progress)
    _tell(told, report)


def _tell(told: dict[str, int], report: Report) -> None:
    message = dict(told)
    for name, amount in message.items():
        told[name] -= amount
    report(**message)


@lru_cache(maxsize=1)
def _reader(setup: str, key: str) -> ShardReader:
    """Made ready once per process; `key` tells apart what stood in one place at different times."""
    return ShardReader(Asked.load(Path(setup)))
