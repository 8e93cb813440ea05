"""Spans of tags against a slow version of the CoNLL rules, and against spans written as tags."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.evaluation.metrics.spans import Span, scheme_of, spans_of

TAGS = ["O", *(f"{place}-{kind}" for place in "BIES" for kind in ("x", "y"))]


def parts(tag: str) -> tuple[str, str]:
    return ("O", "") if tag == "O" else (tag[0], tag[2:])


def ends(before: str, now: str) -> bool:
    """The table of `end_of_chunk` in conlleval."""
    (p, old), (q, new) = parts(before), parts(now)
    table = {("B", "B"), ("B", "S"), ("B", "O"), ("I", "B"), ("I", "S"), ("I", "O")}
    return p in "ES" or (p, q) in table or (p != "O" and old != new)


def begins(before: str, now: str) -> bool:
    """The table of `start_of_chunk` in conlleval."""
    (p, old), (q, new) = parts(before), parts(now)
    table = {("E", "E"), ("E", "I"), ("S", "E"), ("S", "I"), ("O", "E"), ("O", "I")}
    return q in "BS" or (p, q) in table or (q != "O" and old != new)


def slow_spans(tags: Sequence[str]) -> list[Span]:
    found, start = [], 0
    before = "O"
    for place, tag in enumerate([*tags, "O"]):
        if before != "O" and ends(before, tag):
            found.append((parts(before)[1], start, place))
        if tag != "O" and begins(before, tag):
            start = place
        before = tag
    return found


@given(tags=st.lists(st.sampled_from(TAGS), max_size=12))
@settings(max_examples=300, deadline=None)
def test_spans_are_those_of_the_conll_evaluation(tags: list[str]) -> None:
    assert spans_of(tags, "bio") == slow_spans(tags)


@st.composite
def apart(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Spans that do not overlap, and the number of words."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from("xy")), max_size=4))
    spans, place = [], 0
    for gap, size, kind in sizes:
        spans.append((kind, place + gap, place + gap + size))
        place += gap + size
    return spans, place + draw(st.integers(0, 2))


@given(case=apart())
@settings(max_examples=100, deadline=None)
def test_spans_written_as_tags_are_read_back(case: tuple[list[Span], int]) -> None:
    spans, words = case
    bio, bioes, marked = (["O"] * words for _ in range(3))
    marked = ["none"] * words
    for kind, start, end in spans:
        bio[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
        single = end == start + 1
        bioes[start:end] = [f"S-{kind}"] if single else [f"B-{kind}", *[f"I-{kind}"] * (end - start - 2), f"E-{kind}"]
        marked[start] = "both" if single else "start"
        marked[end - 1] = "both" if single else "end"
    assert spans_of(bio, "bio") == spans
    assert spans_of(bioes, "bio") == spans
    assert spans_of(marked, "ends") == [("", start, end) for _, start, end in spans]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        (["start", "start", "end"], [("", 1, 3)]),
        (["end", "none", "end"], []),
        (["start", "both", "end"], [("", 1, 2)]),
        (["Start", "NONE", "End"], [("", 0, 3)]),
    ],
)
def test_ends_that_do_not_meet(tags: list[str], spans: list[Span]) -> None:
    assert spans_of(tags, "ends") == spans


def test_the_scheme_is_told_by_the_names() -> None:
    assert scheme_of(["B", "I", "O"]) == "bio"
    assert scheme_of(["B-a-b", "I-a-b"]) == "bio"
    assert scheme_of(["O"]) == "none"
    assert scheme_of(["O", "B-x", "place"]) == "none"
    assert scheme_of(["start", "end"]) == "none", "nothing is left for the other words"
    assert scheme_of(["both", "none"]) == "ends"
    assert spans_of(["NOUN"], "none") == []
