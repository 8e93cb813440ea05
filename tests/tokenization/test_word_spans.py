"""From characters to tokens and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.tokenization.word_spans import TokenSpans
from tests.aligned_toy import KINDS, make_tokenizer

TEXTS = st.text(alphabet="river stone\u00e9\ufb01\u3000 ,.[]", min_size=1, max_size=60)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), text=TEXTS)
def test_an_exact_range_of_tokens_stands_for_just_its_characters(kind: str, data: st.DataObject, text: str) -> None:
    encoding = make_tokenizer(kind).backend_tokenizer.encode(text, add_special_tokens=False)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    (first, last, exact) = TokenSpans(text, encoding.offsets).token_ranges([(start, end)])[0]
    covered = [text[a:b].strip() for a, b in encoding.offsets]
    for token, (a, b) in enumerate(encoding.offsets):
        inside = bool(covered[token]) and a < end and b > start and bool(text[max(a, start) : min(b, end)].strip())
        assert not inside or first <= token < last
    if exact:
        seen = sorted({place for a, b in encoding.offsets[first:last] for place in range(a, b)})
        assert "".join("".join(text[place] for place in seen).split()) == "".join(text[start:end].split())
        assert text[start:end] == text[start:end].strip()


def test_spans_inside_a_token_are_not_exact() -> None:
    places = TokenSpans("stones", [(0, 5), (5, 6)])
    assert places.token_ranges([(0, 5), (0, 6), (0, 3), (1, 6)]).tolist() == [
        [0, 1, 1],
        [0, 2, 1],
        [0, 1, 0],
        [0, 2, 0],
    ]


def test_spans_without_tokens_are_empty() -> None:
    assert TokenSpans("a  b", [(0, 1), (3, 4)]).token_ranges([(1, 3)])[:, :2].tolist() == [[0, 0]]
    assert TokenSpans("", []).token_ranges([(0, 0)]).tolist() == [[0, 0, 0]]


def test_first_tokens_skip_white_space() -> None:
    places = TokenSpans("one  two", [(0, 3), (3, 5), (5, 8)])
    assert places.first_tokens([0, 4, 8]).tolist() == [0, 2, 3]
