"""The format of benchmark results, `benchmarks/results/<name>.json`, from which pages and plots are made."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.stage_folder import versions

RESULTS = Path(__file__).resolve().parent / "results"
_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


class Machine(BaseModel):
    """The machine of the measurements."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu: str = Field(min_length=1)
    cores: int = Field(gt=0)
    memory_gb: float = Field(gt=0)
    gpu: str | None


class Results(BaseModel):
    """Raw measurements, one row each, and the headline statistics computed from them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    command: str = Field(min_length=1)
    machine: Machine
    versions: dict[str, str] = Field(min_length=1)
    date: date
    rows: list[dict[str, JsonValue]] = Field(min_length=1)
    summary: dict[str, JsonValue] = Field(min_length=1)


def write_results(
    name: str,
    command: str,
    rows: list[dict[str, Any]],
    summary: dict[str, Any],
    folder: Path = RESULTS,
) -> Path:
    """Check measurements and write them as `<folder>/<name>.json`, with this machine and today's date."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a results file", hint="small letters, digits and single _")
    path = folder / f"{name}.json"
    content = {
        "command": command,
        "machine": this_machine().model_dump(),
        "versions": versions(),
        "date": date.today().isoformat(),
        "rows": rows,
        "summary": summary,
    }
    results = _check(content, path)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, results.model_dump(mode="json"))
    return path


def read_results(name: str, folder: Path = RESULTS) -> Results:
    """Return the checked content of `<folder>/<name>.json`."""
    path = folder / f"{name}.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = ", ".join(sorted(other.stem for other in folder.glob("*.json")))
        raise InputError("no such results", path=path, hint=f"there are: {known or 'none'}") from None
    try:
        return Results.model_validate_json(text)
    except ValidationError as error:
        raise _explain(error, path) from None


def fact_lines(results: Results, sentences: Mapping[str, str]) -> list[str]:
    """Return the sentences of a page as a list, filled with the numbers of the summary; skip those without a number."""
    values = ((sentence, results.summary.get(name)) for name, sentence in sentences.items())
    return [f"- {sentence.format(value)}" for sentence, value in values if isinstance(value, int | float)]


def this_machine() -> Machine:
    """Return the description of the machine of this process."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(cpu=_cpu_model(), cores=usable, memory_gb=round(memory / 1e9, 1), gpu=_gpu_name())


def _cpu_model() -> str:
    """Return the processor's name by `lscpu`, since /proc/cpuinfo has only part numbers on ARM."""
    try:
        answer = subprocess.run(
            ["lscpu"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
        )
        found = re.search(r"^Model name:\s*(\S.*)$", answer.stdout, re.MULTILINE)
    except (OSError, subprocess.CalledProcessError):
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def _check(content: dict[str, Any], path: Path) -> Results:
    try:
        return Results.model_validate(content)
    except ValidationError as error:
        raise _explain(error, path) from None


def _explain(error: ValidationError, path: Path) -> InputError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or None
    return InputError(f"not a results file: {first['msg']}", path=path, key=key)
