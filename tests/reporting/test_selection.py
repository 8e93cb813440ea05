"""The passages in the report, and the words marked in them."""

from __future__ import annotations

from endtask.records import Document, Selected
from endtask.reporting.selection import SHOWN, TextSpan, explain, quality_sentence, summarize_selection


def passage(
    place: int, *, rank: int = 1, score: float = 1.0, asked: tuple[str, ...] = ("e0",), text: str = "x"
) -> Selected:
    """A kept passage."""
    return Selected(Document(f"d{place}", text, "books"), place, rank, score, len(asked), asked, "best_rank")


def test_what_was_kept_is_counted_in_bytes() -> None:
    kept = summarize_selection([passage(0, text="né"), passage(1, text="abc")])
    assert (kept.passages["books"], kept.bytes["books"]) == (2, 6)


def test_each_asking_example_is_shown_once_by_its_best_passage() -> None:
    kept = summarize_selection(
        [
            passage(0, rank=2, score=9.0, asked=("e1",)),
            passage(1, rank=1, score=3.0, asked=("e1", "e0")),
            passage(2, rank=1, score=5.0, asked=("e0",)),
        ]
    )
    assert [item.document.id for item in kept.best] == ["d2", "d1"]


def test_equal_ranks_and_scores_go_by_position_and_few_are_shown() -> None:
    many = [passage(place, asked=(f"e{place}",)) for place in reversed(range(SHOWN + 20))]
    assert [item.position for item in summarize_selection(many).best] == list(range(SHOWN))


def test_shared_words_are_marked_unless_common() -> None:
    others = [{"id": f"o{number}", "text": "the parser", "label": "x"} for number in range(30)]
    asking = {"id": "e0", "text": "the Hakka parser", "label": "Uses"}
    (answer,) = explain([passage(0, text="The hakka corpus")], [*others, asking])
    assert answer.passage == [TextSpan("The ", False), TextSpan("hakka", True), TextSpan(" corpus", False)]
    assert answer.example == [TextSpan("the ", False), TextSpan("Hakka", True), TextSpan(" parser", False)]
    assert (answer.example_id, answer.label) == ("e0", "Uses")


def test_pieces_put_together_are_the_text() -> None:
    asking = {"id": "e0", "text": "one two", "text_pair": "three four", "label": "x"}
    (answer,) = explain([passage(0, text="three, one; and FOUR!")], [asking])
    assert "".join(span.text for span in answer.passage) == "three, one; and FOUR!"
    assert "".join(span.text for span in answer.example) == "one two three four"


def test_an_example_that_is_not_there_leaves_its_text_empty() -> None:
    (answer,) = explain([passage(0, text="abc")], [])
    assert (answer.example_id, answer.example, answer.label) == ("e0", [], "")


def test_the_stretch_with_most_shared_words_is_shown() -> None:
    asking = {"id": "e0", "text": "Hakka accents of Taiwan", "label": "x"}
    (answer,) = explain([passage(0, text="nothing here " * 100 + "Hakka accents of Taiwan")], [asking])
    shown = "".join(span.text for span in answer.passage)
    assert shown.startswith("… ")
    assert shown.endswith("Hakka accents of Taiwan")
    assert [span.text for span in answer.passage if span.highlighted] == ["Hakka accents of Taiwan"]


def test_words_are_those_of_retrieval() -> None:
    asking = {"id": "e0", "text": "東京 ΛΟΓΟΣ snake_case", "label": "x"}
    (answer,) = explain([passage(0, text="大東 λόγος λογοσ snake")], [asking])
    assert [span.text for span in answer.passage if span.highlighted] == ["東", "λογοσ snake"]
    assert [span.text for span in answer.example if span.highlighted] == ["東", "ΛΟΓΟΣ snake"]


def test_all_figures_in_one_sentence() -> None:
    words = {"words": 40, "found": 38, "share": 0.0312, "share_retrieved": 0.02}
    overlap = {"best_rank": {"share": 0.4, "jaccard": 0.25}}
    quality = {"kl": 1.5, "kl_random": 2.0, "kl_reduction": 0.5, "label_words": words, "overlap": overlap}
    assert quality_sentence({"quality": quality}) == (
        "KL divergence from the task's n-grams 1.500, 0.500 less than a random draw of that size from "
        "the retrieved passages; "
        "3.12% of its words indicate a class (2.00% of what was retrieved), 38 of 40 such words occur in it; "
        "40% also selected by best_rank (Jaccard 0.25)."
    )


def test_a_worse_selection_is_called_so() -> None:
    assert "0.250 more than a random draw" in quality_sentence({"quality": {"kl": 1.0, "kl_reduction": -0.25}})


def test_fused_selectors_are_compared() -> None:
    counts = {"quality": {"kl": 1.0}, "fused": {"best_rank, dsir": {"share": 0.4, "jaccard": 0.25}}}
    said = quality_sentence(counts)
    assert said.endswith("; best_rank and dsir agree with a Jaccard index of 0.25.")


def test_nothing_is_said_without_figures() -> None:
    assert quality_sentence({"passages": 3}) == ""


def test_pairs_with_most_evidence_come_first_and_near_copies_last() -> None:
    examples = [
        {"id": "e0", "text": "alpha beta gamma delta epsilon", "label": "x"},
        {"id": "e1", "text": "the zeta of the eta", "label": "y"},
        {"id": "e2", "text": "theta", "label": "y"},
    ]
    copy = passage(0, text="alpha beta gamma delta epsilon", asked=("e0", "e1", "e2"))
    pairs = explain(
        [passage(1, text="theta and more", asked=("e2",)), copy, passage(2, text="zeta eta", asked=("e1",))], examples
    )
    assert [pair.passage_id for pair in pairs] == ["d2", "d1", "d0"]
    assert [pair.is_copy for pair in pairs] == [False, False, True]
    assert pairs[2].classes == (("y", 2), ("x", 1))


def test_other_passages_are_spread_over_the_selection() -> None:
    many = [passage(place, rank=1 + place, asked=("e0",)) for place in range(10 * SHOWN)]
    found = summarize_selection(many, len(many))
    assert [item.position for item in found.best] == [0]
    assert [item.position for item in found.others] == list(range(10, 10 * SHOWN, 10))
