"""Random requests made from the OpenAPI document by schemathesis: no answer may have a status of 500 or more."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from benchmarks.serve.model import RUN
from benchmarks.serve.server import Server

CASES = 1_000
_STARTS_PROCESSES = ("/api/runs/{run}/resume", "/api/runs/{run}/stop")
_SLOW = ("/api/compare",)
_TIMEOUT = 60.0
Row = dict[str, Any]


def schema_cases(server: Server, cases: int = CASES) -> Row:
    """Return how many random requests were sent and how many were answered with a status of 500 or more, or not."""
    schema = schemathesis.openapi.from_url(f"{server.address}/api/openapi.json")
    found: list[Any] = list(schema.get_all_operations())
    operations = [result.ok() for result in found]
    each = -(-cases // len(operations))
    statuses: Counter[str] = Counter()
    failed: list[str] = []
    for operation in operations:
        for mode, count in (
            (schemathesis.GenerationMode.POSITIVE, each - each // 3),
            (schemathesis.GenerationMode.NEGATIVE, each // 3),
        ):
            _send(server, operation, mode, count, statuses, failed)
    return {
        "part": "schema",
        "operations": len(operations),
        "cases": sum(statuses.values()),
        "failed": len(failed),
        "failures": failed[:10],
        "statuses": dict(sorted(statuses.items())),
    }


def _send(server: Server, operation: Any, mode: Any, count: int, statuses: Counter[str], failed: list[str]) -> None:
    """Send `count` requests of an operation; two of three name the run that is there, where that starts no process."""
    choose = random.Random(operation.label)
    session_headers = {"x-csrf-token": server.csrf}

    def check(case: Any) -> None:
        if operation.path not in _STARTS_PROCESSES and "run" in case.path_parameters and choose.random() < 2 / 3:
            case.path_parameters["run"] = RUN
        try:
            answer = case.call(base_url=server.address, headers=session_headers, timeout=_TIMEOUT)
        except OSError as error:
            statuses["none"] += 1
            failed.append(f"{operation.label}: {type(error).__name__}")
            return
        statuses[str(answer.status_code)] += 1
        if answer.status_code >= 500:
            failed.append(f"{operation.label}: {answer.status_code}")

    options = settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        options(given(case=operation.as_strategy(generation_mode=mode))(check))()
    except Exception as error:  # an operation without parameters has no negative cases
        if type(error).__name__ not in ("Unsatisfiable", "SkipTest"):
            raise
