"""The sentence on a selection's figures."""

from __future__ import annotations

from endtask.reporting.selection import quality_sentence


def test_all_figures_in_one_sentence() -> None:
    words = {"words": 40, "found": 38, "share": 0.0312, "share_retrieved": 0.02}
    overlap = {"best_rank": {"share": 0.4, "jaccard": 0.25}}
    quality = {"kl": 1.5, "kl_random": 2.0, "kl_reduction": 0.5, "label_words": words, "overlap": overlap}
    assert quality_sentence({"quality": quality}) == (
        "KL divergence from the task's n-grams 1.500, 0.500 less than of a random draw of that size from "
        "what was retrieved; "
        "3.12% of its words tell a class (2.00% of what was retrieved), 38 of 40 such words are in it; "
        "40% also kept by best_rank (Jaccard 0.25)."
    )


def test_a_worse_selection_is_called_so() -> None:
    assert "0.250 more than of a random draw" in quality_sentence({"quality": {"kl": 1.0, "kl_reduction": -0.25}})


def test_fused_selectors_are_compared() -> None:
    counts = {"quality": {"kl": 1.0}, "fused": {"best_rank, dsir": {"share": 0.4, "jaccard": 0.25}}}
    said = quality_sentence(counts)
    assert said.endswith("; best_rank and dsir alone would agree by a Jaccard index of 0.25.")


def test_nothing_is_said_without_figures() -> None:
    assert quality_sentence({"passages": 3}) == ""
