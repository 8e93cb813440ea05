"""The table of docs/results/robustness.md."""

from __future__ import annotations

from benchmarks.results_file import Results, fact_lines

_FACTS = {
    "kills_total": "{:,} commands killed at a random moment and repeated",
    "kills_lost": "{:,} of them lost something or ended in other bits",
    "fuzz_inputs": "{:,} damaged inputs and run folders",
    "fuzz_failures": "{:,} of them ended in a traceback, a hang or a wrong result without a word",
    "guided_inputs": "{:,} inputs that atheris mutated by the lines that they reach in the readers",
    "guided_failures": "{:,} of them ended in anything but one line",
    "environments_tried": "{:,} odd environments",
    "environments_failed": "{:,} of them did not end in the same bits, or in one line",
    "peak_gb_5gb_run": "{:.2f} GB of memory at most for a corpus of 5 GB: check, retrieve, select, pack",
    "peak_gb_million_rows": "{:.2f} GB of memory at most for a task with a million rows: the same steps",
}


def robustness_table(results: Results) -> str:
    """Return the numbers, and the cases that failed."""
    lines = fact_lines(results, _FACTS)
    missing = [name for name in _FACTS if name not in results.summary]
    if missing:
        lines.append(f"- not measured yet: {', '.join(f'`{name}`' for name in missing)}")
    tried = [row for row in results.rows if row["part"] == "environments"]
    if tried:
        lines += ["", "| environment | ended |", "|---|---|"]
        lines += [f"| {row['case']} | {row['problem'] or 'as it must'} |" for row in tried]
    cores = f"{results.machine.cores} cores, {results.machine.memory_gb:.0f} GB"
    others = sorted({str(row["machine"]) for row in results.rows if "machine" in row})
    also = f"; rows of other machines: {'; '.join(others)}" if others else ""
    return "\n".join([*lines, "", f"Measured by `{results.command}` on {cores}, {results.date}{also}.", ""])
