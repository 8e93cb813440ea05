"""Packed texts give back the ids that went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.models.batch import gather_texts
from endtask.text.packed import PackedTexts, pack_examples, pack_passages
from tests.tiny import WORDS, make_tokenizer

TEXT = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=15).map(" ".join))
LENGTH = st.integers(min_value=8, max_value=24)
QUICK = settings(max_examples=40, deadline=None)


class NumberTokenizer:
    """Its texts are numbers, which are their own ids."""

    cls_token_id, sep_token_id = 0, 1

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __call__(self, texts: list[str], **options: object) -> dict[str, list[list[int]]]:
        return {"input_ids": [[int(word) for word in text.split()] for text in texts]}


@given(texts=st.lists(TEXT, max_size=6), max_length=LENGTH)
@QUICK
def test_passages_are_cut_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], max_length: int
) -> None:
    tokenizer = make_tokenizer()
    packed = pack_passages(texts, tokenizer, max_length, tmp_path_factory.mktemp("passages"))
    pieces = [packed[position].tolist() for position in range(len(packed))]
    assert all(piece[0] == tokenizer.cls_token_id and piece[-1] == tokenizer.sep_token_id for piece in pieces)
    assert all(3 <= len(piece) <= max_length for piece in pieces)
    inside = [token for piece in pieces for token in piece[1:-1]]
    assert inside == [token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert packed.lengths.tolist() == [len(piece) for piece in pieces]
    assert packed.second.tolist() == packed.lengths.tolist()


def test_a_long_passage_gives_full_pieces_and_a_rest(tmp_path: Path) -> None:
    packed = pack_passages([" ".join(map(str, range(2, 22)))], NumberTokenizer(50), 10, tmp_path)  # type: ignore[arg-type]
    assert packed.lengths.tolist() == [10, 10, 6]
    assert packed[2].tolist() == [0, 18, 19, 20, 21, 1]


def _as_any_user(texts: list[tuple[str, str | None]], max_length: int, **options: Any) -> Any:
    # As lists: for a lone pair whose second text is empty, the library forgets the second [SEP].
    firsts, seconds = [text for text, _ in texts], [pair for _, pair in texts if pair is not None]
    return make_tokenizer()(firsts, seconds or None, truncation=True, max_length=max_length, **options)


@given(
    texts=st.one_of(
        st.lists(st.tuples(TEXT, st.none()), min_size=1, max_size=6),
        st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6),
    ),
    max_length=LENGTH,
)
@QUICK
def test_examples_are_what_the_tokenizer_gives_to_any_user(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str | None]], max_length: int
) -> None:
    tokenizer = make_tokenizer()
    packed = pack_examples(texts, tokenizer, max_length, tmp_path_factory.mktemp("examples"))
    expected = _as_any_user(texts, max_length, padding=False)["input_ids"]
    assert [packed[position].tolist() for position in range(len(packed))] == expected
    assert packed.lengths.tolist() == [len(ids) for ids in expected]
    batch = gather_texts(packed, np.arange(len(texts)), tokenizer.pad_token_id)
    padded = _as_any_user(texts, max_length, padding=True, return_tensors="pt")
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert getattr(batch, name).equal(padded[name]), name


def test_packed_texts_open_again_from_their_folder(tmp_path: Path) -> None:
    written = pack_examples([("river stone", "cloud"), ("green", "apple")], make_tokenizer(), 16, tmp_path)
    again = PackedTexts(tmp_path)
    assert [again[0].tolist(), again[1].tolist()] == [written[0].tolist(), written[1].tolist()]
    assert again.second.tolist() == written.second.tolist()
    assert again[0].dtype == np.int64


def test_more_texts_than_one_call_of_the_tokenizer_keep_their_order(tmp_path: Path) -> None:
    texts = [str(number) for number in range(2, 4503)]
    packed = pack_passages(texts, NumberTokenizer(5000), 8, tmp_path)  # type: ignore[arg-type]
    assert [packed[position][1] for position in (0, 1999, 2000, 4500)] == [2, 2001, 2002, 4502]


def test_an_empty_selection_packs_to_nothing(tmp_path: Path) -> None:
    packed = pack_passages([], make_tokenizer(), 16, tmp_path / "none")
    assert len(packed) == 0
    assert packed.lengths.tolist() == []
    blank = pack_passages(["", "  "], make_tokenizer(), 16, tmp_path / "blank")
    assert len(blank) == 0


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
def test_the_smallest_whole_numbers_that_hold_the_vocabulary(tmp_path: Path, size: int, dtype: str) -> None:
    packed = pack_passages([f"2 {size - 1}"], NumberTokenizer(size), 8, tmp_path)  # type: ignore[arg-type]
    assert packed[0].tolist() == [0, 2, size - 1, 1]
    assert (tmp_path / "tokens.bin").stat().st_size == 4 * np.dtype(dtype).itemsize
