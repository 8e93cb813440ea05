"""The texts of each unit of candidates, and their shares, against a loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.selectors.influence.scorer import CandidateUnits
from endtask.tokenization.packed_texts import PackedTexts, write_packed
from tests.selectors.influence.small import make_candidates, make_runner, small_settings, write_table


@given(lengths=st.lists(st.integers(2, 9), min_size=1, max_size=12), size=st.integers(1, 5), seed=st.integers(0, 99))
def test_texts_of_units_are_those_of_a_loop(
    lengths: list[int], size: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("candidates")
    write_packed((([1] * length, length) for length in lengths), 10, folder)
    random = np.random.default_rng(seed)
    order = random.permutation(len(lengths))[: random.integers(1, len(lengths) + 1)]
    units = CandidateUnits(PackedTexts(folder), order, size)
    which = random.permutation(units.count)[: random.integers(1, units.count + 1)]
    found = units.texts_of(which)
    wanted = []
    for place, unit in enumerate(which):
        members = order[unit * size : (unit + 1) * size]
        wanted += [(member, place, 1 / len(members)) for member in members]
        assert units.tokens[unit] == sum(lengths[member] for member in members)
    numbers, owners, shares = zip(*wanted, strict=True)
    assert found.numbers.tolist() == list(numbers)
    assert found.owners.tolist() == list(owners)
    assert np.allclose(found.shares, shares, rtol=1e-12)


def test_every_candidate_is_read_from_its_beginning_to_the_length_of_training(tmp_path: Path) -> None:
    long, empty, *others = make_candidates()
    long, empty = (replace(one, document=replace(one.document, text=text)) for one, text in
                   ((long, "planets " * 40), (empty, " ")))  # fmt: skip
    write_table(tmp_path, [long, empty, *others])
    work = make_runner(tmp_path, small_settings())
    assert len(work.folds) == 2  # which learn the tokenizer
    lengths = work.candidates.lengths
    assert len(lengths) == len(others) + 2
    assert (int(lengths[0]), int(lengths[1])) == (work.run.pretrain.max_length, 2)
