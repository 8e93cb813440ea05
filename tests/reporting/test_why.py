"""Which passages are shown, and what is marked in them."""

from __future__ import annotations

from endtask.records import Document, Selected
from endtask.reporting.selection import SHOWN, Piece, count_kept, explain


def passage(
    place: int, *, rank: int = 1, score: float = 1.0, asked: tuple[str, ...] = ("e0",), text: str = "x"
) -> Selected:
    """A kept passage."""
    return Selected(Document(f"d{place}", text, "books"), place, rank, score, len(asked), asked, "best_rank")


def test_what_was_kept_is_counted_in_bytes() -> None:
    kept = count_kept([passage(0, text="né"), passage(1, text="abc")])
    assert (kept.passages["books"], kept.bytes["books"]) == (2, 6)


def test_each_asking_example_is_shown_once_by_its_best_passage() -> None:
    kept = count_kept(
        [
            passage(0, rank=2, score=9.0, asked=("e1",)),
            passage(1, rank=1, score=3.0, asked=("e1", "e0")),
            passage(2, rank=1, score=5.0, asked=("e0",)),
        ]
    )
    assert [item.document.id for item in kept.best] == ["d2", "d1"]


def test_equal_ranks_and_scores_go_by_position_and_few_are_shown() -> None:
    many = [passage(place, asked=(f"e{place}",)) for place in reversed(range(20))]
    assert [item.position for item in count_kept(many).best] == list(range(SHOWN))


def test_shared_words_are_marked_unless_common() -> None:
    others = [{"id": f"o{number}", "text": "the parser", "label": "x"} for number in range(30)]
    asking = {"id": "e0", "text": "the Hakka parser", "label": "Uses"}
    (answer,) = explain([passage(0, text="The hakka corpus")], [*others, asking])
    assert answer.passage == [Piece("The ", False), Piece("hakka", True), Piece(" corpus", False)]
    assert answer.example == [Piece("the ", False), Piece("Hakka", True), Piece(" parser", False)]
    assert (answer.example_id, answer.label) == ("e0", "Uses")


def test_pieces_put_together_are_the_text() -> None:
    asking = {"id": "e0", "text": "one two", "text_pair": "three four", "label": "x"}
    (answer,) = explain([passage(0, text="three, one; and FOUR!")], [asking])
    assert "".join(piece.text for piece in answer.passage) == "three, one; and FOUR!"
    assert "".join(piece.text for piece in answer.example) == "one two three four"


def test_an_example_that_is_not_there_leaves_its_text_empty() -> None:
    (answer,) = explain([passage(0, text="abc")], [])
    assert (answer.example_id, answer.example, answer.label) == ("e0", [], "")


def test_the_stretch_with_most_shared_words_is_shown() -> None:
    asking = {"id": "e0", "text": "Hakka accents of Taiwan", "label": "x"}
    (answer,) = explain([passage(0, text="nothing here " * 100 + "Hakka accents of Taiwan")], [asking])
    shown = "".join(piece.text for piece in answer.passage)
    assert shown.startswith("… ")
    assert shown.endswith("Hakka accents of Taiwan")
    assert [piece.text for piece in answer.passage if piece.marked] == ["Hakka", "accents", "of", "Taiwan"]


def test_words_are_those_of_retrieval() -> None:
    asking = {"id": "e0", "text": "東京 ΛΟΓΟΣ snake_case", "label": "x"}
    (answer,) = explain([passage(0, text="大東 λόγος λογοσ snake")], [asking])
    assert [piece.text for piece in answer.passage if piece.marked] == ["東", "λογοσ", "snake"]
    assert [piece.text for piece in answer.example if piece.marked] == ["東", "ΛΟΓΟΣ", "snake"]
