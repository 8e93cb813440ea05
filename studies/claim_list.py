"""The fifteen claims of the four papers: the paper's number, the comparisons that decide each, and their study."""

from __future__ import annotations

from dataclasses import dataclass

from studies.estimates import HEADS, Comparison

_UNINFORMED = "the scoring model was a constant predictor"
_ONE_PRETRAINING = "one pre-training an arm"


@dataclass(frozen=True)
class Claim:
    """A claim, the paper's number, and what decides it.

    `study` makes the results of `comparisons`. Until they exist, the claim is undecided, `former` is shown, and `flaw`
    says why that does not decide it.
    """

    number: int
    text: str
    paper: str
    comparisons: tuple[Comparison, ...] = ()
    study: str = ""
    former: tuple[Comparison, ...] = ()
    flaw: str = ""


_FINAL, _CURVES = (("table", "final"),), (("kind", "curve"), ("body", "checkpoint"))


def _both(file: str, better: str, worse: str) -> tuple[Comparison, ...]:
    return tuple(Comparison(file, task, better, worse) for task in ("chemprot", "sciie"))


def _tartan(better: str, worse: str) -> tuple[Comparison, ...]:
    body = (("body", "checkpoint"),)
    return tuple(Comparison("tartan", task, better, worse, body) for task in ("citation_intent", "sciie", "chemprot"))


def _mix(better: str, worse: str) -> tuple[Comparison, ...]:
    return tuple(Comparison("mix", task, better, worse, (("part", "bm25"),)) for task in ("chemprot", "sciie"))


def _label_words(file: str, better: str, worse: str, kind: str) -> tuple[Comparison, ...]:
    where = (("kind", kind),)
    return tuple(Comparison(file, task, better, worse, where, "label_words") for task in ("chemprot", "sciie"))


def _aligned(better: str, worse: str, *tasks: str) -> tuple[Comparison, ...]:
    return tuple(Comparison("alignment_fair", task, better, worse) for task in tasks)


CLAIMS = (
    Claim(
        1,
        "BM25's text is better than random text, and random text than none",
        "+2.3, +32 (SciERC); +3.0, +26 (ChemProt), dev",
        (
            Comparison("recipe", "chemprot", "recipe", "random", _FINAL),
            Comparison("recipe", "chemprot", "random", "no_corpus", _FINAL, counts=False),
            *_both("influence", "best_rank-20", "random-20"),
        ),
    ),
    Claim(
        2,
        "More passages a row help tasks with few rows",
        "+8.5 (SciERC, 50 to 5000)",
        _both("tlm_passages", "best-50MB", "top-1"),
        "tlm-passages",
    ),
    Claim(
        3,
        "Masked LM on the task's text helps (rho2 > 0)",
        "+0.2 to +2.8",
        _both("tlm_rho2", "rho2-20", "rho2-0"),
        "tlm-rho2",
    ),
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
    Claim(
        6,
        "A second stage of fine-tuning helps",
        "+14 to +19 with few rows",
        _both("tlm_stages", "two-rho1-19", "one-rho1-19"),
        "tlm-stages",
    ),
    Claim(
        7,
        "A fifth by influence beats the best-ranked fifth",
        "+0.9 (ChemProt), +1.7 (SciERC)",
        _both("influence_informed", "informed-20", "best_rank-20"),
        "influence-informed",
        _both("influence", "influence-20", "best_rank-20"),
        _UNINFORMED,
    ),
    Claim(
        8,
        "A fifth by influence beats four fifths by influence",
        "+1.0 (ChemProt), +2.0 (SciERC), dev",
        _both("influence_informed", "informed-20", "informed-80"),
        "influence-informed",
        (Comparison("influence", "chemprot", "influence-20", "influence-80"),),
        _UNINFORMED,
    ),
    Claim(
        9,
        "The last layer selects better than the first quarter",
        "a figure",
        _both("influence_informed", "informed-20", "quarter-20"),
        "influence-informed",
        (Comparison("influence", "chemprot", "layer_last-20", "layer_quarter-20"),),
        _UNINFORMED,
    ),
    Claim(
        10,
        "Words of the labels are more frequent in what influence selects than in what rank selects",
        "+20% (median of 12 words)",
        _label_words("influence_informed", "informed-20", "best_rank-20", "curve"),
        "influence-informed",
        _label_words("influence", "influence-20", "best_rank-20", "chosen"),
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
        "Through the task's own head, the learned weight of the task goes to 1 (over .95)",
        "a figure",
        tuple(
            Comparison("tartan_weights", task, "own-head", "0.95", (("kind", "curve"),), "task weight")
            for task in ("citation_intent", "sciie")
        ),
        "tartan-weights",
        (Comparison("tartan", "sciie", "meta-same-head", "0.95", _CURVES, "task weight"),),
        "in 300 steps no weight moves far",
    ),
    Claim(
        13,
        "Aligned objectives help with 200 labels",
        "+3.3 (tagging), +9.9 (acronyms)",
        _aligned("aligned", "plain", "ct", "ad"),
        "alignment-fair",
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
        _aligned("aligned-kept", "aligned", "ct"),
        "alignment-fair",
        (Comparison("alignment", "ct", "768x3, kept head", "768x3, new head", (("table", "2"),)),),
        _ONE_PRETRAINING,
    ),
    Claim(
        15,
        "TLM has more positional and fewer vertical attention heads",
        "a figure",
        tuple(
            Comparison("attention", task, "tlm", "the pretrained encoder", scale=kind)
            for task in ("sciie", "chemprot")
            for kind in HEADS
        ),
        "attention",
    ),
)
