"""Which texts make up the units of candidates, and how much each counts, against a loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.select.influence.candidates import Candidates, CandidateUnits
from endtask.text.packed import PackedTexts, write_packed


@given(
    pieces=st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=4), min_size=1, max_size=12),
    size=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_texts_of_units_are_those_of_a_loop(
    pieces: list[list[int]], size: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lengths = [length for some in pieces for length in some]
    folder = tmp_path_factory.mktemp("candidates")
    write_packed((([1] * length, length) for length in lengths), 10, folder)
    starts = np.cumsum([0, *map(len, pieces)])
    random = np.random.default_rng(seed)
    order = random.permutation(len(pieces))[: random.integers(1, len(pieces) + 1)]
    units = CandidateUnits(Candidates(PackedTexts(folder), starts), order, size)
    which = random.permutation(units.count)[: random.integers(1, units.count + 1)]
    found = units.texts_of(which)
    wanted = []
    for place, unit in enumerate(which):
        members = order[unit * size : (unit + 1) * size]
        for member in members:
            opened = [max(length - 2, 1e-9) for length in pieces[member]]
            wanted += [
                (starts[member] + piece, place, one / sum(opened) / len(members)) for piece, one in enumerate(opened)
            ]
    numbers, owners, shares = zip(*wanted, strict=True)
    assert found.numbers.tolist() == list(numbers)
    assert found.owners.tolist() == list(owners)
    assert np.allclose(found.shares, shares, rtol=1e-12)
