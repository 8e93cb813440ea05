"""The pages of the scale benchmark: what was measured and predicted, and simulated costs of larger corpora."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.results_file import Results
from benchmarks.scale.job import BATCHES, LISTING, MERGING, PLAIN, RAY, SIDE_BY_SIDE, TRAINING
from endtask.planning.limits import CHANGES, slowest
from endtask.planning.measured import MeasuredRetrieval, Rates, Retrieval, fit_rates
from endtask.planning.prices import example_prices
from endtask.planning.simulator import Machines, PassCost, driver_bytes, rounds_of, simulate, total_seconds
from endtask.reporting.format import duration, share, size
from endtask.retrieval.queries import papers_top_k

Row = dict[str, Any]

CORPORA = {"16 GB": 16e9, "160 GB": 160e9, "1 TB": 1e12, "15 TB": 15e12}
QUERIES = (1_000, 10_000, 100_000, 1_000_000)
MACHINES, CORES = 4, 16
_STATED = ("160 GB", 1_000)
"""Corpus and number of queries of `hours_160gb_64_cores`."""


def measured_retrievals(rows: list[Row], kind: str = PLAIN) -> dict[int, MeasuredRetrieval]:
    """Return the fastest retrieval of a kind for each number of gigabytes, in ascending order.

    What else a shared machine does only adds to the time.
    """
    names = ("cores", "seconds", "retrieved", "scratch_bytes")
    found = {}
    for gigabytes in sorted({row["gigabytes"] for row in rows if row["kind"] == kind}):
        repeats = [row for row in rows if row["kind"] == kind and row["gigabytes"] == gigabytes]
        row = min(repeats, key=lambda row: float(row["total"]))
        found[int(gigabytes)] = MeasuredRetrieval(Retrieval(**row["size"]), **{name: row[name] for name in names})
    return found


def summarize(rows: list[Row]) -> dict[str, Any]:
    """Return the headline statistics."""
    plain, ray = measured_retrievals(rows), measured_retrievals(rows, RAY)
    (compared,) = ray
    largest = plain[max(plain)]
    peak = max(row["driver_peak_bytes"] for row in rows if row["kind"] == RAY)
    stated = _costs(rows, *_STATED)
    errors = {f"prediction_error_{size}gb": round(_error(plain, size), 4) + 0.0 for size in sorted(plain)[2:]}
    return {
        "retrieval_mb_per_core_second": round(largest.size.text_bytes / 1e6 / largest.total / largest.cores, 2),
        "ray_overhead_percent": round(100 * (ray[compared].total / plain[compared].total - 1), 1),
        **_efficiencies(rows),
        **errors,
        "hours_160gb_64_cores": round(total_seconds(stated) / 3600, 2),
        "driver_peak_gb_20_shards": round(peak / 1e9, 3),
        **{
            f"{row['kind']}_nanoseconds_of_entry": round(1e9 * row["seconds_of_entry"], 2)
            for row in rows
            if row["kind"] in (MERGING, LISTING)
        },
    }


def _efficiencies(rows: list[Row]) -> dict[str, float]:
    """Return the speed of two processes as a share of twice that of one: with the same batch, and without any exchange."""
    steps = {
        (row["kind"], row["batch"], row["processes"]): row["step_seconds"] for row in rows if "step_seconds" in row
    }
    found = {}
    for batch in BATCHES:
        alone, end = steps[TRAINING, batch, 1] / 2, "" if batch == BATCHES[0] else f"_of_{batch}_texts"
        found[f"two_process_efficiency{end}"] = round(alone / steps[TRAINING, batch, 2], 3)
        found[f"side_by_side_efficiency{end}"] = round(alone / steps[SIDE_BY_SIDE, batch // 2, 2], 3)
    return found


def predicted(plain: dict[int, MeasuredRetrieval], gigabytes: int) -> float:
    """Return the seconds that the simulator predicts for a size from the two smallest ones."""
    first, second = (plain[name] for name in sorted(plain)[:2])
    target = plain[gigabytes]
    retrieval = first.size.scaled(target.size.text_bytes)
    return total_seconds(simulate(retrieval, fit_rates([first, second]), Machines(cores=target.cores)))


def _error(plain: dict[int, MeasuredRetrieval], gigabytes: int) -> float:
    return round(predicted(plain, gigabytes) / plain[gigabytes].total - 1, 9) + 0.0


def scale_table(results: Results) -> str:
    """Return the table of measured and predicted seconds, and the statistics as a list."""
    rows, summary = list(results.rows), results.summary
    plain = measured_retrievals(rows)
    table = [
        "| text | passages | seconds | predicted | statistics | ranking | fetching | driver |",
        "|---:|" + "---:|" * 7,
    ]
    for number, (gigabytes, one) in enumerate(plain.items()):
        error = "" if number < 2 else f"{predicted(plain, gigabytes):.0f} ({_error(plain, gigabytes):+.0%})"
        passes = " | ".join(f"{one.seconds[name]:.0f}" for name in ("statistics", "ranking", "fetching", "driver"))
        table.append(
            f"| {size(one.size.text_bytes)} | {one.size.passages:,.0f} | {one.total:.0f} | {error} | {passes} |"
        )
    first, ray = next(iter(plain.values())), size(next(iter(measured_retrievals(rows, RAY).values())).size.text_bytes)
    where = f"{results.machine.cores} cores ({results.machine.cpu}), {results.date}"
    trial = "**A trial with small corpora, not a measurement.** " if "--gigabyte" in results.command else ""
    how = f"{trial}Generated text, {first.size.queries:,.0f} queries, K = {first.size.top_k}; {_repeats(rows)}"
    facts = [
        f"- {summary['retrieval_mb_per_core_second']} MB of text for each core and second, from start to end at the largest size.",
        f"- Ray on one machine of the same cores against plain processes, {ray} in 20 shards: "
        f"{summary['ray_overhead_percent']}% more time{_totals(rows)}; the start of the cluster does not count. The driver's memory was "
        f"at most {summary['driver_peak_gb_20_shards']} GB.",
        f"- Training by two processes of one core each against one process of one core, the same global batch: "
        f"{summary['two_process_efficiency']} of twice the speed with {BATCHES[0]} texts in a batch, "
        f"{summary[f'two_process_efficiency_of_{BATCHES[1]}_texts']} with {BATCHES[1]}. Two processes that exchange nothing, each with "
        f"half of the batch: {summary['side_by_side_efficiency']} and "
        f"{summary[f'side_by_side_efficiency_of_{BATCHES[1]}_texts']}.",
    ]
    return "\n".join([*table, "", f"{how}. Measured by `{results.command}` on {where}.", "", *facts, ""])


def _repeats(rows: list[Row]) -> str:
    most = max(
        sum(row["gigabytes"] == size for row in rows if row["kind"] == PLAIN) for size in measured_retrievals(rows)
    )
    return "one run each" if most == 1 else f"one run each, the fastest of {most} where Ray is compared"


def _totals(rows: list[Row]) -> str:
    """Return the seconds of the repeated runs, sorted, if there are several."""
    (compared,) = measured_retrievals(rows, RAY)
    seconds = {
        kind: sorted(row["total"] for row in rows if row["kind"] == kind and row["gigabytes"] == compared)
        for kind in (RAY, PLAIN)
    }
    ray, plain = (", ".join(f"{one:.0f}" for one in seconds[kind]) for kind in (RAY, PLAIN))
    return f" ({ray} s against {plain} s)" if len(seconds[RAY]) > 1 else ""


def simulated_table(results: Results) -> str:
    """Return the table of hours and money for each corpus and number of queries."""
    rows, prices = list(results.rows), example_prices()
    heads = " | ".join(f"{queries:,} queries, K = {papers_top_k(queries):,}" for queries in QUERIES)
    table = [f"| corpus | {heads} |", "|---|" + "---:|" * len(QUERIES)]
    for name in CORPORA:
        cells = []
        for queries in QUERIES:
            costs = _costs(rows, name, queries)
            money = sum(prices.cost(cost, CORES) for cost in costs)
            cells.append(f"{duration(total_seconds(costs))}, {money:,.0f} {prices.currency}")
        table.append(f"| {name} | {' | '.join(cells)} |")
    where = f"{MACHINES} machines of {CORES} such cores, each reads {size(prices.bytes_per_second)}/s from the shared folder"
    note = f"Simulated: {where}. Prices of {prices.date}: {prices.source}."
    return "\n".join([*table, "", note, ""])


def limits_table(results: Results) -> str:
    """Return the table of what limits each size, and what would have to change."""
    rows = list(results.rows)
    table = [
        "| corpus, queries | longest stage | driver's memory | network | what changes it |",
        "|---|---|---:|---:|---|",
    ]
    for name, queries in _cases():
        costs, retrieval = _costs(rows, name, queries), _retrieval(rows, name, queries)
        longest = slowest(costs)
        part = share(longest.seconds / total_seconds(costs))
        reads = rounds_of(retrieval, _machines())
        times = f", reads the statistics {reads} times" if longest.name == "ranking" and reads > 1 else ""
        moved = size(sum(cost.transferred for cost in costs))
        change = CHANGES[longest.name, longest.limit]
        what = f"{longest.name}, {part} ({longest.limit}){times}"
        table.append(f"| {name}, {queries:,} | {what} | {size(driver_bytes(retrieval))} | {moved} | {change} |")
    return "\n".join([*table, ""])


def _cases() -> Iterator[tuple[str, int]]:
    for name in CORPORA:
        yield name, QUERIES[0]
        yield name, QUERIES[-1]


def _machines() -> Machines:
    return Machines(MACHINES, CORES, bytes_per_second=example_prices().bytes_per_second)


def _retrieval(rows: list[Row], corpus: str, queries: int) -> Retrieval:
    largest = list(measured_retrievals(rows).values())[-1].size
    scaled = largest.scaled(CORPORA[corpus], queries)
    return Retrieval(scaled.text_bytes, scaled.passages, queries, papers_top_k(queries), scaled.stored_bytes)


def _rates(rows: list[Row]) -> Rates:
    return fit_rates(list(measured_retrievals(rows).values()))


def _costs(rows: list[Row], corpus: str, queries: int) -> list[PassCost]:
    return simulate(_retrieval(rows, corpus, queries), _rates(rows), _machines())
