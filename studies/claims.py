"""The fifteen claims of the four papers that small runs can check, decided from the results files.

    python -m studies.claims       # writes benchmarks/results/claims.json; then `make docs`

A claim names comparisons. Each is the mean score of a variant less that of another one, with a 95% interval: the one
stored with the results (over rows and seeds), else Welch's over pre-trainings. The comparisons of a claim are averaged.
The claim holds if the interval of this mean is above 0, it does not hold if it is below 0, else it is undecided. A
claim that was not measured, or not measured as the paper says, has a reason and is undecided, whatever the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from benchmarks.results_file import read_results, write_results
from studies.tables import select

Tree = dict[str, Any]
Verdict = Literal["holds", "does not hold", "undecided"]
COMMAND = "python -m studies.claims"
_NORMAL = 1.96
_UNINFORMED = "the scoring model was a constant predictor; to be run again by `studies/influence-informed.yaml`"
_ONE_PRETRAINING = "one pre-training an arm; to be run again by `studies/alignment-fair.yaml`"


@dataclass(frozen=True)
class Comparison:
    """Two variants of a results file on a task; `where` are further values of their rows."""

    file: str
    task: str
    better: str
    worse: str
    where: tuple[tuple[str, str], ...] = ()
    scale: str = "test"
    counts: bool = True
    """Whether it is part of the mean that decides the claim; else it is only shown."""

    @property
    def name(self) -> str:
        """The task in words."""
        return _TASKS[self.task]


@dataclass(frozen=True)
class Claim:
    """A claim, the paper's number, what was compared here, and why it cannot be decided yet."""

    number: int
    text: str
    paper: str
    comparisons: tuple[Comparison, ...] = ()
    reason: str = ""


_TASKS = {"chemprot": "ChemProt", "sciie": "SciERC", "citation_intent": "ACL-ARC", "ct": "tagging", "ad": "acronyms"}
_FINAL, _CURVES = (("table", "final"),), (("kind", "curve"), ("body", "checkpoint"))


def _tartan(better: str, worse: str) -> tuple[Comparison, ...]:
    body = (("body", "checkpoint"),)
    return tuple(Comparison("tartan", task, better, worse, body) for task in ("citation_intent", "sciie", "chemprot"))


def _mix(better: str, worse: str) -> tuple[Comparison, ...]:
    return tuple(Comparison("mix", task, better, worse, (("part", "bm25"),)) for task in ("chemprot", "sciie"))


def _influence(better: str, worse: str, *tasks: str) -> tuple[Comparison, ...]:
    return tuple(Comparison("influence", task, better, worse) for task in tasks or ("chemprot", "sciie"))


CLAIMS = (
    Claim(
        1,
        "BM25's text is better than random text, and random text than none",
        "+2.3, +32 (SciERC); +3.0, +26 (ChemProt), dev",
        (
            Comparison("recipe", "chemprot", "recipe", "random", _FINAL),
            Comparison("recipe", "chemprot", "random", "no_corpus", _FINAL, counts=False),
            *_influence("best_rank-20", "random-20"),
        ),
    ),
    Claim(
        2,
        "More passages a row help tasks with few rows",
        "+8.5 (SciERC, 50 to 5000)",
        (),
        "`studies/tlm-passages.yaml`",
    ),
    Claim(3, "Masked LM on the task's text helps (rho2 > 0)", "+0.2 to +2.8", (), "`studies/tlm-rho2.yaml`"),
    Claim(
        4,
        "Small tasks want few task batches (rho1 of 99 over 3)",
        "+4.2 (SciERC), +3.9 (ChemProt), dev",
        _mix("rho1-99-rho2-20", "rho1-3-rho2-20"),
    ),
    Claim(
        5,
        "Task batches in pre-training beat the corpus alone",
        "+0.4 (SciERC), +1.1 (ChemProt)",
        _mix("rho1-99-rho2-20", "alone"),
    ),
    Claim(6, "A second stage of fine-tuning helps", "+14 to +19 with few rows", (), "`studies/tlm-stages.yaml`"),
    Claim(
        7,
        "A fifth by influence beats the best-ranked fifth",
        "+0.9 (ChemProt), +1.7 (SciERC)",
        _influence("influence-20", "best_rank-20"),
        _UNINFORMED,
    ),
    Claim(
        8,
        "A fifth by influence beats four fifths by influence",
        "+1.0 (ChemProt), +2.0 (SciERC), dev",
        _influence("influence-20", "influence-80", "chemprot"),
        _UNINFORMED,
    ),
    Claim(
        9,
        "The last layer selects better than the first quarter",
        "a figure",
        _influence("layer_last-20", "layer_quarter-20", "chemprot"),
        _UNINFORMED,
    ),
    Claim(
        10,
        "Words of the labels are more frequent in what influence selects than in what rank selects",
        "+20% (median of 12 words)",
        tuple(
            Comparison("influence", task, "influence-20", "best_rank-20", (("kind", "chosen"),), "label_words")
            for task in ("chemprot", "sciie")
        ),
        _UNINFORMED,
    ),
    Claim(
        11,
        "The task inside pre-training beats masked LM before it (MT over TAPT)",
        "+2.7 (ACL-ARC), +1.3 (SciERC), +2.1 (ChemProt)",
        _tartan("mt-tapt", "tapt"),
    ),
    Claim(
        12,
        "Through the task's own head, the learned weight of the task goes to 1",
        "a figure",
        (Comparison("tartan", "sciie", "meta-same-head", "meta-tapt", _CURVES, "task weight"),),
        "in 300 steps no weight moves far; `studies/meta-gap.yaml`",
    ),
    Claim(
        13,
        "Aligned objectives help with 200 labels",
        "+3.3 (tagging), +9.9 (acronyms)",
        tuple(
            Comparison("alignment", task, "all four objectives", "masked LM and next sentences", (("table", "5"),))
            for task in ("ct", "ad")
        ),
        _ONE_PRETRAINING,
    ),
    Claim(
        14,
        "The aligned head, kept, helps tagging",
        "+1.5 (tagging), 0 (acronyms)",
        (Comparison("alignment", "ct", "768x3, kept head", "768x3, new head", (("table", "2"),)),),
        _ONE_PRETRAINING,
    ),
    Claim(15, "TLM has more positional and fewer vertical attention heads", "a figure", (), "`endtask analyze`"),
)


@dataclass(frozen=True)
class Estimate:
    """A difference with its 95% interval, in points; without spread over pre-trainings the ends are missing."""

    mean: float
    low: float | None
    high: float | None
    p_value: float | None

    @property
    def has_interval(self) -> bool:
        """Whether the difference has an interval."""
        return self.low is not None and self.high is not None


def estimate(comparison: Comparison) -> Estimate:
    """Return the difference of a comparison, by the results file that it names."""
    rows = select(read_results(comparison.file).rows, task=comparison.task, **dict(comparison.where))
    if comparison.scale == "label_words":
        better, worse = (select(rows, cell=name)[0]["label_words"] for name in (comparison.better, comparison.worse))
        return Estimate(100 * (better - worse) / worse, None, None, None)
    if comparison.file == "alignment":
        better, worse = (select(rows, kind="cell", title=name, labels=200)[0] for name in _names(comparison))
        return Estimate(100 * (better["accuracy"]["mean"] - worse["accuracy"]["mean"]), None, None, None)
    if comparison.scale == "task weight":
        weights = ([row["weights"]["task"] for row in select(rows, cell=name)] for name in _names(comparison))
        return welch(*weights)
    stored = _stored(rows, comparison)
    return stored or welch(*(_run_scores(rows, name) for name in _names(comparison)))


def _names(comparison: Comparison) -> tuple[str, str]:
    return comparison.better, comparison.worse


def _run_scores(rows: Iterable[Tree], cell: str) -> list[float]:
    """Return the mean test score of each pre-training."""
    runs = {row["seed"]: fmean(row["test"]) for row in select(rows, kind="run", cell=cell)}
    return list(runs.values())


def _stored(rows: Iterable[Tree], comparison: Comparison) -> Estimate | None:
    """Return a difference whose interval over rows and seeds is in the file."""
    rows = list(rows)
    pairs = select(rows, kind="pair", cell=comparison.better, over=comparison.worse)
    tables = [row for row in select(rows, kind="cell", cell=comparison.better) if row.get("table") == comparison.worse]
    for row in (*pairs, *tables):
        if "interval" in row:
            low, high = row["interval"]
            return Estimate(100 * row["lead"], 100 * low, 100 * high, row["p"])
    return None


def welch(better: Iterable[float], worse: Iterable[float]) -> Estimate:
    """Return the difference of two means in points, with Welch's interval and p-value over pre-trainings.

    >>> found = welch([0.5, 0.52, 0.54], [0.4, 0.42, 0.41])
    >>> round(found.mean, 1), found.low is not None and found.low > 0
    (11.0, True)
    """
    from scipy import stats

    first, second = list(better), list(worse)
    mean = 100 * (fmean(first) - fmean(second))
    if min(len(first), len(second)) < 2:
        return Estimate(mean, None, None, None)
    found = stats.ttest_ind(first, second, equal_var=False)
    interval = found.confidence_interval(0.95)
    return Estimate(mean, 100 * float(interval.low), 100 * float(interval.high), float(found.pvalue))


def pooled(estimates: list[Estimate]) -> Estimate | None:
    """Return the mean of independent differences with its interval; None where one has no interval."""
    if not estimates or not all(one.has_interval for one in estimates):
        return None
    mean = fmean(one.mean for one in estimates)
    squares = sum(((one.high or 0.0) - (one.low or 0.0)) ** 2 for one in estimates)
    half = math.sqrt(squares) / 2 / len(estimates)
    deviations = abs(mean) / (half / _NORMAL) if half else math.inf
    return Estimate(mean, mean - half, mean + half, math.erfc(deviations / math.sqrt(2)))


def verdict(found: Estimate | None, reason: str) -> Verdict:
    """Return whether a claim holds, by the interval of the mean difference.

    >>> verdict(Estimate(1.0, 0.2, 1.8, 0.01), ""), verdict(Estimate(1.0, -0.2, 2.2, 0.1), ""), verdict(None, "not run")
    ('holds', 'undecided', 'undecided')
    """
    if reason or found is None or found.low is None or found.high is None:
        return "undecided"
    return "holds" if found.low > 0 else "does not hold" if found.high < 0 else "undecided"


def row_of(claim: Claim) -> Tree:
    """Return the row of a claim in claims.json."""
    estimates = [estimate(comparison) for comparison in claim.comparisons]
    counted = [one for one, comparison in zip(estimates, claim.comparisons, strict=True) if comparison.counts]
    mean = pooled(counted)
    parts = [
        {
            "file": comparison.file,
            "task": comparison.name,
            "better": comparison.better,
            "worse": comparison.worse,
            "unit": {"test": "points", "label_words": "%", "task weight": "points of weight"}[comparison.scale],
            "counts": comparison.counts,
            **_rounded(found),
        }
        for comparison, found in zip(claim.comparisons, estimates, strict=True)
    ]
    return {
        "claim": claim.number,
        "text": claim.text,
        "paper": claim.paper,
        "comparisons": parts,
        "pooled": None if mean is None else _rounded(mean),
        "verdict": verdict(mean, claim.reason),
        "reason": claim.reason,
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
