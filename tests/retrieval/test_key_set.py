"""The compiled set of keys against Python's sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from endtask.retrieval.bm25.join import KeySet, final_keys
from endtask.retrieval.bm25.scan import string_keys

KEYS = st.lists(st.integers(0, 5) | st.integers(0, 2**64 - 1), max_size=40)


@given(st.lists(KEYS, max_size=5))
def test_keys_are_new_once(batches: list[list[int]]) -> None:
    seen: set[int] = set()
    keys = KeySet()
    for batch in batches:
        expected = []
        for key in batch:
            expected.append((key or 1) not in seen)  # 0 is taken for 1
            seen.add(key or 1)
        assert keys.add(np.asarray(batch, dtype=np.uint64)).tolist() == expected
        assert len(keys) == len(seen)


def test_it_grows_and_forgets_nothing() -> None:
    random = np.random.default_rng(0)
    many = random.integers(0, 2**64, 20_000, dtype=np.uint64)
    near = np.arange(1, 5_001, dtype=np.uint64)  # neighbors, which must not crowd one stretch of the table
    keys = KeySet()
    assert all(keys.add(part).all() for part in (many[:700], many[700:], near))
    assert len(keys) == 25_000
    assert not keys.add(np.concatenate([near, many])).any()
    assert len(keys) == 25_000


NAMES = st.lists(
    st.tuples(st.sampled_from(["x", "y", "x~1", "x~1~", "y~2", ""]), st.sampled_from(["1", "2", "1~"])), max_size=30
)


@given(NAMES, st.integers(0, 30))
def test_names_that_are_taken_get_another(entries: list[tuple[str, str]], border: int) -> None:
    taken: set[str] = set()
    names = []
    for wanted, place in entries:
        name = wanted
        while name in taken:
            name = f"{wanted}~{place}" if name == wanted else f"{name}~"
        taken.add(name)
        names.append(name)
    keys = string_keys([wanted for wanted, _ in entries])
    fallbacks = string_keys([f"{wanted}~{place}" for wanted, place in entries])
    held = KeySet()
    parts = [held.add_names(keys[part], fallbacks[part]) for part in (slice(border), slice(border, None))]
    renames = np.concatenate(parts)
    given_names = [
        f"{wanted}~{place}{'~' * (times - 1)}" if times else wanted
        for (wanted, place), times in zip(entries, renames.tolist(), strict=True)
    ]
    assert given_names == names
    assert final_keys(keys, fallbacks, renames).tolist() == string_keys(names).tolist()
    assert len(held) == len(names)
