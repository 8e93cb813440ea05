"""Simulate retrieval on machines that were not measured: seconds, memory, disk and network of each pass.

A pass takes as long as its slowest resource: cores, storage, or the one process that drives it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from endtask.planning.measured import Rates, Retrieval, entered, retrieved_passages

_GROUPS_FOR_EACH = 2
"""Groups of shards for each machine of several, as in pass 2."""
_QUERIES_OF_BLOCK = 4096
_BYTES_OF_BLOCK = 1 << 26
"""The limits of a block of queries, as in pass 2."""
_ENTRIES_AT_ONCE = 1 << 22
"""Entries of rankings that the driver holds at a time when it lists the queries of each passage."""
_BYTES_OF_ENTRY = 16
_SECONDS_OF_ENTRY = 3.4e-8
"""Of the driver for each entry that it reads while it lists the queries of passages (`benchmarks.scale`: listing)."""
_MERGE_SECONDS_OF_ENTRY = 9.1e-7
"""Of a core for each entry of a merge, which sorts (`benchmarks.scale`: merging)."""
_PROCESS_BYTES = 0.25e9
_DRIVER_BYTES = 0.4e9
_KEY_LOAD = 0.75
"""How full the driver's two tables of keys (of ids and of texts) may be before they double."""
_BYTES_OF_PASSAGE = 10
"""Memory of the driver for each passage besides its keys: state, rename, size."""

CORES, STORAGE, DRIVER = "cores", "storage", "driver"


@dataclass(frozen=True)
class Machines:
    """Equal machines that share a folder; each reads and writes it at `bytes_per_second`."""

    count: int = 1
    cores: int = 1
    memory_bytes: float = math.inf
    bytes_per_second: float = math.inf

    @property
    def all_cores(self) -> int:
        """The cores of all machines."""
        return self.count * self.cores


@dataclass(frozen=True)
class PassCost:
    """What a pass or stage costs: `memory_bytes` of its fullest machine, `transferred` bytes of the shared folder."""

    name: str
    seconds: float
    limit: str = CORES
    machines: int = 1
    memory_bytes: float = 0.0
    disk_bytes: float = 0.0
    transferred: float = 0.0


def simulate(size: Retrieval, rates: Rates, machines: Machines) -> list[PassCost]:
    """Return the costs of the passes of retrieval, in order."""
    return [
        _statistics(size, rates, machines),
        _join(size, rates),
        _ranking(size, rates, machines),
        *([_merging(size, machines)] if machines.count > 1 else []),
        _fetching(size, rates, machines),
        _writing(size, rates),
    ]


def total_seconds(costs: list[PassCost]) -> float:
    """Return the seconds of all passes."""
    return sum(cost.seconds for cost in costs)


def rounds_of(size: Retrieval, machines: Machines) -> int:
    """Return how often pass 2 reads the statistics: once for each round of blocks of queries, one block a core.

    >>> rounds_of(Retrieval(1e9, 1e6, 1e3, 1000, 1e9), Machines(cores=16))
    1
    >>> rounds_of(Retrieval(1e9, 1e6, 1e6, 1000, 1e9), Machines(cores=16))
    23
    """
    best = min(size.top_k, max(1.0, size.passages))
    limit = min(_QUERIES_OF_BLOCK, max(1, int(_BYTES_OF_BLOCK // (16 * (best + max(best // 2, 64))))))
    return max(1, math.ceil(size.queries / (limit * machines.cores)))


def driver_bytes(size: Retrieval) -> float:
    """Return the memory of the driver between the passes, which compares all passages with one another."""
    slots = 1 << max(10, math.ceil(math.log2(max(1.0, size.passages) / _KEY_LOAD)))
    return _DRIVER_BYTES + 2 * 8.0 * slots + 8.0 * slots / 2 + _BYTES_OF_PASSAGE * size.passages


def _parallel(name: str, core_seconds: float, transferred: float, machines: Machines) -> PassCost:
    """Return the cost of a pass that is divided among all cores."""
    on_cores, on_storage = core_seconds / machines.all_cores, transferred / (machines.count * machines.bytes_per_second)
    limit = CORES if on_cores >= on_storage else STORAGE
    memory = machines.cores * _PROCESS_BYTES
    seconds = max(on_cores, on_storage)
    return PassCost(name, seconds, limit, machines.count, memory_bytes=memory, transferred=transferred)


def _statistics(size: Retrieval, rates: Rates, machines: Machines) -> PassCost:
    fixed, each = rates.statistics
    scratch = rates.scratch_share * size.text_bytes
    cost = _parallel("statistics", each * size.text_bytes, size.stored_bytes + scratch, machines)
    return replace(cost, seconds=cost.seconds + fixed, disk_bytes=scratch)


def _join(size: Retrieval, rates: Rates) -> PassCost:
    return PassCost("join", rates.driver[0] * size.passages, DRIVER, memory_bytes=driver_bytes(size))


def _ranking(size: Retrieval, rates: Rates, machines: Machines) -> PassCost:
    groups = 1 if machines.count == 1 else _GROUPS_FOR_EACH * machines.count
    scored, best = rates.ranking
    seconds = scored * size.queries * size.passages + best * entered(size, groups)
    rankings = _BYTES_OF_ENTRY * size.entries * groups
    read = rounds_of(size, machines) * rates.scratch_share * size.text_bytes
    cost = _parallel("ranking", seconds, read + rankings, machines)
    memory = _PROCESS_BYTES + machines.cores * 1.5 * _BYTES_OF_BLOCK
    return replace(cost, memory_bytes=memory, disk_bytes=rankings)


def _merging(size: Retrieval, machines: Machines) -> PassCost:
    entries = size.entries * _GROUPS_FOR_EACH * machines.count * 4 / 3  # a tree of four branches
    return _parallel("merging", _MERGE_SECONDS_OF_ENTRY * entries, 2 * _BYTES_OF_ENTRY * entries, machines)


def _found_bytes(size: Retrieval, rates: Rates) -> float:
    return retrieved_passages(size, rates.overlap) * size.text_bytes / size.passages


def _fetching(size: Retrieval, rates: Rates, machines: Machines) -> PassCost:
    text, found = rates.fetching
    found_bytes = _found_bytes(size, rates)
    seconds = text * size.text_bytes + found * found_bytes
    cost = _parallel("fetching", seconds, size.stored_bytes + found_bytes, machines)
    return replace(cost, disk_bytes=found_bytes)


def _writing(size: Retrieval, rates: Rates) -> PassCost:
    """Return the cost of listing the queries of each passage and of writing the table, which the driver does alone."""
    groups = math.ceil(size.entries / _ENTRIES_AT_ONCE)
    found_bytes = _found_bytes(size, rates)
    # The fitted rate holds the listing of one group.
    seconds = rates.driver[1] * found_bytes + (groups - 1) * size.entries * _SECONDS_OF_ENTRY
    memory = _DRIVER_BYTES + _ENTRIES_AT_ONCE * 2 * _BYTES_OF_ENTRY + _BYTES_OF_PASSAGE * size.passages
    moved = groups * size.entries * _BYTES_OF_ENTRY + 2 * found_bytes
    return PassCost("writing", seconds, DRIVER, memory_bytes=memory, disk_bytes=found_bytes, transferred=moved)
