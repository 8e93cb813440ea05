"""What limits a plan: the slowest stage and the memory of the driver, and what would have to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from endtask.planning.measured import Retrieval
from endtask.planning.simulator import CORES, DRIVER, STORAGE, Machines, PassCost, rounds_of
from endtask.reporting.format import share, size

CHANGES: dict[tuple[str, str], str] = {
    ("statistics", CORES): "more machines divide it",
    ("statistics", STORAGE): "storage that reads faster, or files compressed by zstd",
    ("join", DRIVER): "tables of keys divided among machines by hash (not built)",
    ("ranking", CORES): "more machines divide it; fewer or shorter queries (`retrieve.query: rake`); two-level "
    "thresholds or an approximate first pass (not built) would score fewer passages",
    ("ranking", STORAGE): "blocks of queries on different machines, so that each reads the statistics less often "
    "(query sharding, not built), or local copies of them",
    ("merging", CORES): "more machines divide it",
    ("merging", STORAGE): "a smaller `retrieve.top_k`",
    ("fetching", CORES): "more machines divide it",
    ("fetching", STORAGE): "storage that reads faster",
    ("writing", DRIVER): "a job for each range of passages in place of the driver (not built), or a smaller "
    "`retrieve.top_k`",
}
"""By stage and its limit: what shortens it."""


def slowest(costs: Sequence[PassCost]) -> PassCost:
    """Return the stage that takes longest."""
    return max(costs, key=lambda cost: cost.seconds)


def advice(retrieval: Retrieval, stages: Sequence[PassCost], machines: Machines, memory_bytes: float) -> Iterator[str]:
    """Yield sentences about the stage that takes longest and about memory that is missing."""
    longest, total = slowest(stages), sum(stage.seconds for stage in stages)
    part = share(longest.seconds / max(1e-9, total))
    change = CHANGES.get((longest.name, longest.limit))
    if change is not None:
        yield f"longest: {longest.name}, {part} of the time, limited by {_limit(longest)}: {change}"
    else:
        yield f"longest: {longest.name}, {part} of the time; it runs on one machine"
    if (rounds := rounds_of(retrieval, machines)) > 1:
        yield f"ranking reads the statistics of the corpus {rounds} times, once for each round of blocks of queries"
    for stage in stages:
        if stage.memory_bytes > memory_bytes:
            needed = f"{stage.name} needs {size(stage.memory_bytes)} of memory"
            yield f"warning: {needed} on one machine, and this one has {size(memory_bytes)}"


def _limit(cost: PassCost) -> str:
    return "the one process that drives the run" if cost.limit == DRIVER else cost.limit
