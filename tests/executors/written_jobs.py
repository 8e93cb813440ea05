"""Jobs that write a file each, or fail."""

from __future__ import annotations

from pathlib import Path

from endtask.errors import InputError
from endtask.executors.base import Job, Report


def handle(job: Job, report: Report) -> None:
    if "fails" in job:
        raise InputError(job["fails"])
    Path(job["file"]).write_text(job["text"])
    report(written=1)
