"""Items in worker processes: in order, and with few of them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.corpus.parallel import ordered_map


class Threads(ThreadPoolExecutor):
    """Threads behind the interface of the process pool."""

    def __init__(self, processes: int, **_: Any) -> None:
        super().__init__(processes)

    def shutdown(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
        super().shutdown()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.lists(st.integers(), max_size=40), processes=st.integers(1, 4))
def test_results_are_in_order_and_few_items_wait(
    monkeypatch: pytest.MonkeyPatch, items: list[int], processes: int
) -> None:
    monkeypatch.setattr("joblib.externals.loky.ProcessPoolExecutor", Threads)
    taken = 0

    def counted() -> Iterator[int]:
        nonlocal taken
        for item in items:
            taken += 1
            yield item

    results = []
    for result in ordered_map(lambda item: item * 2, counted(), processes):
        results.append(result)
        assert taken - len(results) <= 3 * processes
    assert results == [item * 2 for item in items]


def test_errors_of_items_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.externals.loky.ProcessPoolExecutor", Threads)
    with pytest.raises(ZeroDivisionError):
        list(ordered_map(lambda item: 1 / item, [1] * 8 + [0], 2))
