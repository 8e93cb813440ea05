"""Packed texts that are joined are those that would have been written at once."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from endtask.tokenization.packed_texts import join_packed, write_packed

TEXTS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), max_size=6)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from([100, 1 << 17]))
def test_joined_parts_have_the_bytes_of_the_whole(
    tmp_path_factory: object, parts: list[list[list[int]]], vocabulary: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("packed")  # type: ignore[attr-defined]
    names = [folder / f"part-{number}" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        write_packed(((ids, len(ids)) for ids in part), vocabulary, name)
    write_packed(((ids, len(ids)) for part in parts for ids in part), vocabulary, folder / "whole")
    join_packed(names, folder / "joined")
    whole, joined = (
        {file.name: file.read_bytes() for file in (folder / name).iterdir()} for name in ("whole", "joined")
    )
    assert joined == whole
