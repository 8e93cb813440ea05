"""Random streams from a seed and a path of names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from endtask.seeds import derive, generator


def test_a_place_has_the_same_seed_in_every_release() -> None:
    assert derive(0, "mask", 7) == 1562872298418293887


@given(seed=st.integers(min_value=0), path=st.lists(st.one_of(st.text(max_size=5), st.integers()), max_size=4))
def test_seeds_fit_where_they_are_used(seed: int, path: list[str | int]) -> None:
    value = derive(seed, *path)
    assert 0 <= value < 2**63
    assert generator(seed, *path).random(3).tolist() == generator(seed, *path).random(3).tolist()


def test_places_have_different_seeds() -> None:
    places = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 11), (0, "a", 1, 1)]
    assert len({derive(*place) for place in places}) == len(places)
