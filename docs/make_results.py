"""Put figures from benchmarks/results into the pages that show them, so that no number is copied by hand.

A page marks the place with `<!-- results: NAME -->` and `<!-- end -->`; what stands between is written here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.alignment.page import PAGE as ALIGNMENT_PAGE  # noqa: E402
from benchmarks.alignment.page import alignment_summary_table, alignment_tables  # noqa: E402
from benchmarks.few_examples.summary import few_examples_table  # noqa: E402
from benchmarks.influence.page import influence_table  # noqa: E402
from benchmarks.mix import mix_table  # noqa: E402
from benchmarks.recipe.page import recipe_summary_table, recipe_table, screens_table  # noqa: E402
from benchmarks.replay import replay_table  # noqa: E402
from benchmarks.results_file import RESULTS, Results, read_results  # noqa: E402
from benchmarks.retrieval.picture import COLUMNS, COMPARED, retrieval_picture  # noqa: E402
from benchmarks.selection.page import selection_table  # noqa: E402
from benchmarks.tartan.page import tartan_table  # noqa: E402
from benchmarks.tartan.picture import tartan_picture  # noqa: E402
from benchmarks.training.page import training_picture, training_table  # noqa: E402
from benchmarks.weighting.page import weighting_table  # noqa: E402
from endtask.reporting.plots import BarGroup, bar_chart, picture  # noqa: E402
from examples.digits.figures import digits_table  # noqa: E402

PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("retrieval", "training", "gradients", "weighting", "influence", "few-shot", "recipe")
    ),
    ROOT / "examples" / "digits" / "README.md",
    *([ALIGNMENT_PAGE] if ALIGNMENT_PAGE.exists() else []),  # made whole by its benchmark
)
_PLACE = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def demo_table(results: Results) -> str:
    """The demo's three rows."""
    figure = results.summary
    machine = results.machine
    rows = [
        ("TF-IDF + logistic regression", f"{_percent(figure['tfidf'])}", "", ""),
        _arm(results, "the same model, task texts only", "without_corpus", kept=""),
        _arm(results, "the model with the retrieved corpus", "with_corpus", kept=_megabytes(results)),
    ]
    table = ["| | test accuracy | seconds | corpus text |", "|---|---:|---:|---:|"]
    table += [f"| {' | '.join(row)} |" for row in rows]
    where = f"{machine.cores} cores ({machine.cpu}), {results.date}"
    chance = f"paired permutation test over {figure['test_rows']} test rows, p = {_number(figure['p_value']):.4f}"
    note = f"Mean ± spread over 3 fine-tuning seeds; {chance}. Measured by `{results.command}` on {where}."
    return "\n".join([*table, "", note, ""])


def demo_picture(results: Results) -> str:
    """The same as bars, for people who would rather look."""
    scores = {
        "TF-IDF + logistic regression": _number(results.summary["tfidf"]),
        "task texts only": _number(results.summary["without_corpus_mean"]),
        "with the retrieved corpus": _number(results.summary["with_corpus_mean"]),
    }
    groups = [BarGroup(name, (value,), (_percent(value),)) for name, value in scores.items()]
    title = "Demo: test accuracy with and without the retrieved corpus"
    return picture(title, [bar_chart(groups, ("accuracy",), title="Test accuracy")])


def retrieval_table(results: Results) -> str:
    """Seconds and peak memory of every engine over the full corpus."""
    tasks = [task for task in COLUMNS if task != "generated"]
    names = [COLUMNS[task] for task in tasks]
    table = [f"| seconds, peak memory | {' | '.join(names)} |", f"|---|{'---:|' * len(tasks)}"]
    for engine in COMPARED:
        cells = [_cost(results, engine, task) for task in tasks]
        table.append(f"| {engine} | {' | '.join(cells)} |")
    machine = results.machine
    where = f"{machine.cores} cores ({machine.cpu}), {results.date}"
    how = "Each run in its own process, K = 1,000; median of 3 for endtask and bm25s-numba, one run for the others"
    return "\n".join(
        [*table, "", f"{how}. Measured by `{results.command}` on {where}.", "", *_retrieval_facts(results), ""]
    )


def _retrieval_facts(results: Results) -> list[str]:
    """The headline figures as sentences; over several tasks, the worst of them."""
    figure = {name: _number(value) for name, value in results.summary.items() if isinstance(value, int | float)}
    return [
        f"- Against the faster backend of bm25s: {figure['speedup_vs_bm25s_full']:.1f} times as fast in "
        f"{100 * figure['memory_ratio_vs_bm25s_full']:.0f}% of its memory; against tantivy "
        f"{figure['speedup_vs_tantivy_full']:.1f} times as fast (the least of the three tasks each).",
        f"- A generated corpus of 5 GB, 4,000 queries, K = 1,000: {figure['seconds_5gb_corpus']:.0f} s, "
        f"{figure['peak_gb_5gb_corpus']:.2f} GB of memory, {figure['scratch_gb_5gb_corpus']:.2f} GB of scratch files; "
        f"K = 10,000: {figure['seconds_5gb_corpus_k_10000']:.0f} s and "
        f"{figure['peak_gb_5gb_corpus_k_10000']:.2f} GB. Each further GB takes {figure['slope_seconds_per_gb']:.0f} s.",
        f"- First run after installing, kernels compiled on the way: {figure['first_run_seconds_full_endtask']:.0f} s "
        f"(bm25s with Numba: {figure['first_run_seconds_full_bm25s']:.0f} s).",
        f"- On a 3 MB cut with 50 queries: {figure['speedup_vs_rank_bm25_3mb']:.0f} times as fast as rank-bm25 (plain "
        "Python).",
        f"- Largest relative difference of a score from bm25s: {figure['largest_score_difference_vs_bm25s']:.1e}.",
    ]


def optimizers_table(results: Results) -> str:
    """AdamW and Muon side by side, as measured before Muon was removed."""
    figure: dict[str, Any] = results.summary
    lines = ["| | rate | tokens | loss on held-out text | dev |", "|---|---:|---:|---:|---:|"]
    for name in ("adamw", "muon"):
        loss = f"{figure[f'{name}_held_out_loss']:.3f} ± {figure[f'{name}_held_out_loss_std']:.3f}"
        dev = f"{100 * figure[f'{name}_dev_score']:.1f} ± {100 * figure[f'{name}_dev_score_std']:.1f}"
        tokens = f"{figure[f'{name}_tokens'] / 1e6:.0f} M"
        lines.append(f"| {name} | {figure[f'{name}_rate']:g} | {tokens} | {loss} | {dev} |")
    seeds = len({row["seed"] for row in results.rows if row["kind"] == "full run"})
    size = f"{figure['parameters'] / 1e6:.0f} M parameters, {seeds} seeds"
    return "\n".join([*lines, "", f"{size}, {results.machine.gpu}, {results.date}; `{results.command}`.", ""])


SECTIONS: dict[str, Callable[[Results], str]] = {
    "demo": demo_table,
    "retrieval": retrieval_table,
    "training": training_table,
    "selection": selection_table,
    "weighting": weighting_table,
    "few_examples": few_examples_table,
    "influence": influence_table,
    "tartan": tartan_table,
    "alignment": alignment_tables,
    "alignment_summary": alignment_summary_table,
    "optimizers": optimizers_table,
    "replay": replay_table,
    "mix": mix_table,
    "recipe": recipe_table,
    "recipe_summary": recipe_summary_table,
    "recipe_screens": screens_table,
    "digits": digits_table,
}
FILES = {"recipe_summary": "recipe", "alignment_summary": "alignment"}
"""The results of sections that are not named after them."""
PICTURES: dict[str, Callable[[Results], str]] = {
    "demo": demo_picture,
    "retrieval": retrieval_picture,
    "training": training_picture,
    "tartan": tartan_picture,
}


def filled(text: str) -> str:
    """A page with every marked place written anew; where nothing was measured yet, it stays as it is."""

    def fill(match: re.Match[str]) -> str:
        name = FILES.get(match[2], match[2])
        if not (RESULTS / f"{name}.json").exists():
            return match[0]
        return match[1] + SECTIONS[match[2]](read_results(name)) + match[3]

    return _PLACE.sub(fill, text)


def pictures() -> dict[Path, str]:
    """Every picture, by the file it belongs in."""
    return {ROOT / "docs" / f"{name}.svg": draw(read_results(name)) for name, draw in PICTURES.items()}


def main() -> None:
    """Rewrite the pages and the pictures."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    for path, content in pictures().items():
        path.write_text(content, encoding="utf-8")


def _arm(results: Results, name: str, key: str, *, kept: str) -> tuple[str, str, str, str]:
    figure = results.summary
    score = f"{_percent(figure[f'{key}_mean'])} ± {100 * _number(figure[f'{key}_std']):.1f}"
    return name, score, f"{_number(figure[f'{key}_seconds']):.0f}", kept


def _cost(results: Results, engine: str, task: str) -> str:
    rows: list[dict[str, Any]] = [
        row
        for row in results.rows
        if (row["engine"], row["task"], row["size"], row["cold"]) == (engine, task, "full", False) and "seconds" in row
    ]
    seconds, memory = (median(row[name] for row in rows) for name in ("seconds", "peak_memory_bytes"))
    return f"{seconds:.0f} s, {memory / 1e9:.1f} GB"


def _megabytes(results: Results) -> str:
    return f"{_number(results.summary['corpus_megabytes_kept']):.1f} MB"


def _percent(value: object) -> str:
    return f"{100 * _number(value):.1f}"


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


if __name__ == "__main__":
    main()
