"""Does one measurement: files and queries made ready, the engine started and watched, its figures collected."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.generate_corpus import QUERIES
from benchmarks.retrieval import inputs
from benchmarks.retrieval.engines import THREADS
from benchmarks.retrieval.job import Job
from benchmarks.retrieval.plan import (
    GENERATED_SIZES,
    GENERATED_TASK,
    REAL_SIZES,
    SMALL,
    Measurement,
    Row,
)
from benchmarks.retrieval.watch import Watched, watch
from endtask.io.tables import read_rows


class EngineFailed(Exception):
    """An engine did not come to its end."""


@dataclass(frozen=True)
class Bench:
    """Where the sample data lies and where there is room to work."""

    data: Path
    scratch: Path

    def measure(self, measurement: Measurement) -> Row:
        """Run the engine in a fresh process and give its figures."""
        pile = self.pile(measurement.size)
        with self._empty_folder() as folder:
            job = Job(
                engine=measurement.engine,
                paths=pile.paths,
                queries=str(self.queries(measurement.task)),
                top_k=measurement.top_k,
                cold=measurement.cold,
                scratch=str(folder),
                outcome=str(self.scratch / "outcome.json"),
                rankings=str(self.rankings(measurement)),
            )
            watched = self._start(job, folder)
        outcome = json.loads(Path(job.outcome).read_text(encoding="utf-8"))
        return {
            **outcome,
            "passages": pile.passages,
            "text_bytes": pile.text_bytes,
            "mb_per_second": round(pile.text_bytes / 1e6 / outcome["seconds"], 2),
            "peak_memory_bytes": watched.peak_bytes,
            "peak_scratch_bytes": watched.peak_disk_bytes,
            "process_seconds": round(watched.seconds, 3),
        }

    @cache  # noqa: B019  # one bench lives as long as the process
    def pile(self, size: str) -> inputs.Pile:
        """The files of a size, made where they are missing."""
        if size in GENERATED_SIZES:
            return inputs.generated_corpus(self.scratch, GENERATED_SIZES[size], max(GENERATED_SIZES.values()))
        text_bytes = {**SMALL, **REAL_SIZES}[size]
        corpus = self.data / "corpus"
        if text_bytes is None:
            return inputs.whole_corpus(corpus, self.scratch)
        return inputs.cut_corpus(corpus, self.scratch, text_bytes)

    def queries(self, task: str) -> Path:
        """The file of a task's queries, made where it is missing."""
        path = self.scratch / "queries" / f"{_as_name(task)}.jsonl"
        if not path.exists():
            inputs.write_queries(path, self._texts(task))
        return path

    def rankings(self, measurement: Measurement) -> Path:
        """Where the sample of a measurement's rankings is kept."""
        folder = self.scratch / "rankings"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{_as_name(str(measurement))}.npz"

    def _texts(self, task: str) -> list[str]:
        if task == GENERATED_TASK:
            self.pile(next(iter(GENERATED_SIZES)))
            whole = self.scratch / f"generated-{max(GENERATED_SIZES.values())}"
            return [row["text"] for _, row in read_rows(whole / QUERIES)]
        name, _, first = task.partition(" first ")
        texts = inputs.task_queries(self.data / "tasks" / name / "train.jsonl.zst")
        return texts[: int(first)] if first else texts

    def _start(self, job: Job, folder: Path) -> Watched:
        Path(job.outcome).unlink(missing_ok=True)
        caches = folder / "cache" if job.cold else self.scratch / "cache"
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(THREADS))
        environment = {**os.environ, **threads, "XDG_CACHE_HOME": str(caches), "NUMBA_CACHE_DIR": str(caches / "numba")}
        command = [sys.executable, "-m", "benchmarks.retrieval.job", job.to_json()]
        watched = watch(command, folder / "measured", environment)
        if watched.code != 0:
            raise EngineFailed(f"exit status {watched.code}")
        return watched

    @contextmanager
    def _empty_folder(self) -> Iterator[Path]:
        folder = self.scratch / "engine"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _as_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
