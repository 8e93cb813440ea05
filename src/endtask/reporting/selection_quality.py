"""What a selection is worth before training, in a sentence."""

from __future__ import annotations

from typing import Any

from endtask.reporting import format as shown


def quality_sentence(counts: dict[str, Any]) -> str:
    """The figures of the select stage that need no training; empty where it found none.

    >>> quality_sentence({"quality": {"kl": 1.25, "overlap": {"best_rank": {"share": 0.5, "jaccard": 0.25}}}})
    "KL divergence from the task's n-grams 1.250; 50% also kept by best_rank (Jaccard 0.25)."
    """
    quality = counts.get("quality")
    if not quality:
        return ""
    parts = [f"KL divergence from the task's n-grams {quality['kl']:.3f}"]
    if "kl_reduction" in quality:
        parts[0] += f", {_less(quality['kl_reduction'])} than of a random draw of that size from what was retrieved"
    if "label_words" in quality:
        parts.append(_label_words(quality["label_words"]))
    for name, overlap in quality.get("overlap", {}).items():
        parts.append(f"{shown.share(overlap['share'])} also kept by {name} (Jaccard {overlap['jaccard']:.2f})")
    for pair, overlap in counts.get("fused", {}).items():
        parts.append(f"{pair.replace(', ', ' and ')} alone would agree by a Jaccard index of {overlap['jaccard']:.2f}")
    return f"{'; '.join(parts)}."


def _less(reduction: float) -> str:
    return f"{abs(reduction):.3f} {'less' if reduction >= 0 else 'more'}"


def _label_words(statistics: dict[str, Any]) -> str:
    of_all = f" ({statistics['share_retrieved']:.2%} of what was retrieved)" if "share_retrieved" in statistics else ""
    return (
        f"{statistics['share']:.2%} of its words tell a class{of_all}, "
        f"{statistics['found']:,} of {statistics['words']:,} such words are in it"
    )
