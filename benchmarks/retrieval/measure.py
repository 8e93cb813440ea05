"""Prepare the inputs of a measurement, run the engine in a process and monitor its memory and disk use."""

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
from benchmarks.retrieval.monitor import Usage, monitor
from benchmarks.retrieval.plan import (
    GENERATED_SIZES,
    GENERATED_TASK,
    REAL_SIZES,
    SMALL,
    Measurement,
    Row,
)
from endtask.io.tables import read_rows


class EngineFailed(Exception):
    """The process of an engine failed."""


@dataclass(frozen=True)
class Runner:
    """Runs measurements; `data` is the folder of the sample data."""

    data: Path
    scratch: Path

    def measure(self, measurement: Measurement) -> Row:
        """Run the engine in a new process and return its results."""
        corpus = self.corpus(measurement.size)
        with self._empty_folder() as folder:
            job = Job(
                engine=measurement.engine,
                paths=corpus.paths,
                queries=str(self.queries(measurement.task)),
                top_k=measurement.top_k,
                cold=measurement.cold,
                scratch=str(folder),
                outcome=str(self.scratch / "outcome.json"),
                rankings=str(self.rankings(measurement)),
            )
            usage = self._start(job, folder)
        outcome = json.loads(Path(job.outcome).read_text(encoding="utf-8"))
        return {
            **outcome,
            "passages": corpus.passages,
            "text_bytes": corpus.text_bytes,
            "mb_per_second": round(corpus.text_bytes / 1e6 / outcome["seconds"], 2),
            "peak_memory_bytes": usage.peak_bytes,
            "peak_scratch_bytes": usage.peak_disk_bytes,
            "process_seconds": round(usage.seconds, 3),
        }

    @cache  # noqa: B019  # the runner lives as long as the process
    def corpus(self, size: str) -> inputs.CorpusFiles:
        """Return the files of a corpus size; make missing files."""
        if size in GENERATED_SIZES:
            return inputs.generated_corpus(self.scratch, GENERATED_SIZES[size], max(GENERATED_SIZES.values()))
        text_bytes = {**SMALL, **REAL_SIZES}[size]
        corpus = self.data / "corpus"
        if text_bytes is None:
            return inputs.whole_corpus(corpus, self.scratch)
        return inputs.cut_corpus(corpus, self.scratch, text_bytes)

    def queries(self, task: str) -> Path:
        """Return the file of a task's queries; make it if it is missing."""
        path = self.scratch / "queries" / f"{_as_name(task)}.jsonl"
        if not path.exists():
            inputs.write_queries(path, self._texts(task))
        return path

    def rankings(self, measurement: Measurement) -> Path:
        """Return the file of a measurement's sample of rankings."""
        folder = self.scratch / "rankings"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{_as_name(str(measurement))}.npz"

    def _texts(self, task: str) -> list[str]:
        if task == GENERATED_TASK:
            self.corpus(next(iter(GENERATED_SIZES)))
            whole = self.scratch / f"generated-{max(GENERATED_SIZES.values())}"
            return [row["text"] for _, row in read_rows(whole / QUERIES)]
        name, _, first = task.partition(" first ")
        texts = inputs.task_queries(self.data / "tasks" / name / "train.jsonl.zst")
        return texts[: int(first)] if first else texts

    def _start(self, job: Job, folder: Path) -> Usage:
        Path(job.outcome).unlink(missing_ok=True)
        caches = folder / "cache" if job.cold else self.scratch / "cache"
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(THREADS))
        environment = {**os.environ, **threads, "XDG_CACHE_HOME": str(caches), "NUMBA_CACHE_DIR": str(caches / "numba")}
        command = [sys.executable, "-m", "benchmarks.retrieval.job", job.to_json()]
        usage = monitor(command, folder / "measured", environment)
        if usage.code != 0:
            raise EngineFailed(f"exit status {usage.code}")
        return usage

    @contextmanager
    def _empty_folder(self) -> Iterator[Path]:
        folder = self.scratch / "engine"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _as_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
