"""The compact set behaves like Python's own; keys ignore white space."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from endtask.corpus.corpus import Seen, key_of, key_of_words

keys = st.integers(0, 2**64 - 1) | st.integers(1, 40) | st.integers(1, 40).map(lambda number: number << 32)


@given(added=st.lists(keys.filter(bool), max_size=300))
def test_against_a_python_set(added: list[int]) -> None:
    seen, reference = Seen(), set[int]()
    for key in added:
        assert seen.add(key) == (key not in reference)
        reference.add(key)
    assert len(seen) == len(reference)


def test_growing_forgets_nothing() -> None:
    seen = Seen()
    many = [key_of(str(number)) for number in range(20_000)]
    assert all(seen.add(key) for key in many)
    assert not any(seen.add(key) for key in many)
    assert len(seen) == len(many)


def test_the_key_zero() -> None:
    seen = Seen()
    assert seen.add(0)
    assert not seen.add(0)


@given(text=st.text(st.sampled_from("ab \t\n\r\v\f\x1c\x1f\x85\xa0\u2003é"), max_size=30))
def test_white_space_counts_as_one_blank(text: str) -> None:
    assert key_of_words(text) == key_of(" ".join(text.split()))


def test_words_apart_differ_from_words_together() -> None:
    assert key_of_words("now here") != key_of_words("nowhere")
