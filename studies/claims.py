"""The fifteen claims of the four papers that small runs can check, decided from the results files.

    python -m studies.claims       # writes benchmarks/results/claims.json; then `make docs`

A claim names comparisons (`studies.claim_list`). Their differences are averaged over the tasks that were measured. The
claim holds if the interval of this mean is above 0, it does not hold if it is below 0, else it is undecided. A claim
whose study has no results file yet is undecided, whatever earlier numbers say; it is decided as soon as the file is
there. A claim of several parts, such as more of one kind and fewer of another, holds if all do; its weakest part stands
for it.
"""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import write_results
from studies.claim_list import CLAIMS, Claim
from studies.estimates import UNITS, Comparison, Estimate, estimate, pooled, verdict, weakest
from studies.tables import TASKS

Tree = dict[str, Any]
Measured = list[tuple[Comparison, Estimate]]
COMMAND = "python -m studies.claims"


def measured(comparisons: tuple[Comparison, ...]) -> Measured:
    """Return the comparisons that have results, with their differences."""
    found = ((comparison, estimate(comparison)) for comparison in comparisons)
    return [(comparison, one) for comparison, one in found if one is not None]


def evidence(claim: Claim) -> tuple[Measured, str]:
    """Return what was measured for a claim, and why that does not decide it; empty if it does."""
    if decisive := measured(claim.comparisons):
        return decisive, decisive[0][0].undecided_because
    study = f"`studies/{claim.study}.yaml`" if claim.study else ""
    if former := measured(claim.former):
        return former, f"{claim.flaw}; to be run again by {study}"
    return [], claim.flaw or f"not run: {study}"


def combined(found: Measured) -> Estimate | None:
    """Return the mean difference; of differences on several scales, which are parts of a claim, the weakest one."""
    parts: dict[str, list[Estimate]] = {}
    for comparison, one in found:
        if comparison.counts:
            parts.setdefault(comparison.scale, []).append(one)
    return weakest(map(pooled, parts.values()))


def row_of(claim: Claim) -> Tree:
    """Return the row of a claim in claims.json."""
    found, reason = evidence(claim)
    mean = combined(found)
    parts = [
        {
            "file": comparison.file,
            "task": TASKS[comparison.task],
            "better": comparison.better,
            "worse": comparison.worse,
            "unit": UNITS[comparison.scale],
            "counts": comparison.counts,
            **_rounded(one),
        }
        for comparison, one in found
    ]
    return {
        "claim": claim.number,
        "text": claim.text,
        "paper": claim.paper,
        "comparisons": parts,
        "pooled": None if mean is None else _rounded(mean),
        "verdict": verdict(mean, reason),
        "reason": reason,
    }


def _rounded(found: Estimate) -> Tree:
    values = {"difference": found.mean, "low": found.low, "high": found.high, "p": found.p_value}
    return {name: None if value is None else round(value, 4) for name, value in values.items()}


def claim_rows() -> list[Tree]:
    """Return the rows of all claims."""
    return [row_of(claim) for claim in CLAIMS]


def summary_of(rows: list[Tree]) -> Tree:
    """Return how many claims are decided, and how many of them hold."""
    verdicts = [row["verdict"] for row in rows]
    return {
        "claims": len(rows),
        "claims_decided": len(rows) - verdicts.count("undecided"),
        "claims_hold": verdicts.count("holds"),
    }


def main() -> None:
    """Write benchmarks/results/claims.json."""
    rows = claim_rows()
    print(write_results("claims", COMMAND, rows, summary_of(rows)))


if __name__ == "__main__":
    main()
