"""The page of the load benchmark."""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import Results, fact_lines

Row = dict[str, Any]
SENTENCES = {
    "requests_per_second": "{:,.0f} requests per second, one text each.",
    "p50_ms": "Half of the answers came within {:,.0f} ms,",
    "p99_ms": "99% within {:,.0f} ms.",
    "failed_requests": "Failed requests: {}.",
    "memory_growth_percent": "Resident memory at the end against that after 10 seconds: {:+.1f}%.",
    "misuse_failed": "Wrong requests and slow clients without an answer between 400 and 499: {}.",
    "schema_cases_failed": "Random requests by schemathesis with a status of 500 or more: {}.",
}


def summarize(rows: list[Row]) -> Row:
    """Return the headline statistics of the three parts."""
    load = next(row for row in rows if row["part"] == "load")
    schema = next(row for row in rows if row["part"] == "schema")
    misuse = [row for row in rows if row["part"] == "misuse"]
    return {
        "failed_requests": load["failed"],
        "requests": load["requests"],
        "clients": load["clients"],
        "seconds": load["seconds"],
        "requests_per_second": load["requests_per_second"],
        "p50_ms": load["p50_ms"],
        "p99_ms": load["p99_ms"],
        "memory_growth_percent": load["memory_growth_percent"],
        "misuse_cases": len(misuse),
        "misuse_failed": sum(not row["is_clean"] for row in misuse),
        "schema_cases": schema["cases"],
        "schema_cases_failed": schema["failed"],
    }


def serve_section(results: Results) -> str:
    """Return the statistics as a list, and how they were measured."""
    summary: Row = results.summary
    load = next(row for row in results.rows if row["part"] == "load")
    shape = f"{load['hidden_size']} x {load['layers']}, vocabulary {load['vocabulary']:,}"
    how = (
        f"{summary['clients']} clients for {summary['seconds']:.0f} s, each with one request at a time, on the same "
        f"{load['cores']} cores as the server ({results.machine.cpu}); a model of {shape}. {summary['misuse_cases']} kinds of "
        f"wrong requests, {summary['schema_cases']:,} random ones. Measured by `{results.command}` on {results.date}."
    )
    return "\n".join([*fact_lines(results, SENTENCES), "", how, ""])
