"""Random requests made from the OpenAPI document by schemathesis: no answer may have a status of 500 or more."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.serve.model import RUN
from benchmarks.serve.server import Server

CASES = 1_000
_STARTS_PROCESSES = ("/api/runs/{run}/resume", "/api/runs/{run}/stop")
_TIMEOUT = 60.0
_MOST_ROUNDS = 6
Row = dict[str, Any]


def schema_cases(server: Server, cases: int = CASES) -> Row:
    """Return how many random requests were sent, and how many had no answer or one with a status of 500 or more."""
    schema = schemathesis.openapi.from_url(f"{server.address}/api/openapi.json")
    found: list[Any] = list(schema.get_all_operations())
    operations = [result.ok() for result in found]
    sent = Sent(server)
    read_training_texts(server)
    for round_number in range(_MOST_ROUNDS):
        each = -(-(cases - sent.count) // len(operations))
        for operation in operations if each > 0 else ():
            for mode in schemathesis.GenerationMode:
                sent.send(operation, mode, -(-each // 2), round_number)
    return {
        "part": "schema",
        "operations": len(operations),
        "cases": sent.count,
        "failed": len(sent.failed),
        "failures": sent.failed[:10],
        "statuses": dict(sorted(sent.statuses.items())),
    }


def read_training_texts(server: Server) -> None:
    """Wait until the server has read the training texts, which the first request to explain an answer makes it do."""
    for _ in range(_MOST_ROUNDS):
        address = f"{server.address}/api/runs/{RUN}/explain"
        if requests.post(address, json={"text": "a"}, timeout=_TIMEOUT).status_code == 200:
            return


class Sent:
    """Requests to a server: the number of answers by status, and the requests that failed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.statuses: Counter[str] = Counter()
        self.failed: list[str] = []

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.statuses.values())

    def send(self, operation: Any, mode: Any, count: int, seed_number: int) -> None:
        """Send up to `count` random requests of an operation; one without parameters has fewer."""
        choose = random.Random(seed_number)

        def check(case: Any) -> None:
            # Two of three requests name the run that is there, where that starts or stops no process.
            if operation.path not in _STARTS_PROCESSES and "run" in case.path_parameters and choose.random() < 2 / 3:
                case.path_parameters["run"] = RUN
            self._call(operation.label, case)

        options = settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        try:
            seed(seed_number)(options(given(case=operation.as_strategy(generation_mode=mode))(check)))()
        except Exception as error:
            if type(error).__name__ not in ("Unsatisfiable", "SkipTest"):  # no wrong request is possible
                raise

    def _call(self, label: str, case: Any) -> None:
        headers = {"x-csrf-token": self._server.csrf}
        try:
            status = case.call(base_url=self._server.address, headers=headers, timeout=_TIMEOUT).status_code
        except OSError as error:
            self.statuses["none"] += 1
            self.failed.append(f"{label}: {type(error).__name__}")
            return
        self.statuses[str(status)] += 1
        if status >= 500:
            self.failed.append(f"{label}: {status}")
