"""Packed texts return the ids that were packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.encoders.batch import Layout, as_table, lay_out
from endtask.tokenization.packed_texts import PackedTexts, pack_examples, pack_passages, pack_windows
from tests.tiny import WORDS, make_tokenizer

TEXT = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=15).map(" ".join))
LENGTH = st.integers(min_value=8, max_value=24)
QUICK = settings(max_examples=40)


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


def test_a_truncated_passage_loses_its_tail(tmp_path: Path) -> None:
    texts = [" ".join(map(str, range(2, 22))), "", "7 8"]
    packed = pack_passages(texts, NumberTokenizer(50), 10, tmp_path, truncate=True)  # type: ignore[arg-type]
    assert [packed[place].tolist() for place in range(len(packed))] == [[0, *range(2, 10), 1], [0, 7, 8, 1]]


def test_texts_are_gathered_end_to_end(tmp_path: Path) -> None:
    packed = pack_passages(["2 3", "4", "5 6 7"], NumberTokenizer(50), 10, tmp_path)  # type: ignore[arg-type]
    tokens, lengths = packed.gather(np.array([2, 0, 2]))
    assert tokens.tolist() == [0, 5, 6, 7, 1, 0, 2, 3, 1, 0, 5, 6, 7, 1]
    assert lengths.tolist() == [5, 4, 5]
    assert packed.token_counts(9).tolist() == [3, 3, 1, 1, 1, 1, 1, 1, 0]


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
    batch = lay_out(packed, np.arange(len(texts)), Layout(tokenizer.pad_token_id, max_length))
    table = as_table(batch, tokenizer.pad_token_id)
    padded = _as_any_user(texts, max_length, padding=True, return_tensors="pt")
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert table[name].equal(padded[name]), name


@given(texts=st.lists(TEXT, min_size=1, max_size=6), max_length=LENGTH, data=st.data())
@QUICK
def test_windows_hold_every_token_in_order_and_overlap_as_asked(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], max_length: int, data: st.DataObject
) -> None:
    tokenizer, room = make_tokenizer(), max_length - 2
    stride = data.draw(st.integers(1, room))
    packed = pack_windows(texts, tokenizer, max_length, stride, tmp_path_factory.mktemp("windows"))
    assert np.unique(packed.examples).tolist() == list(range(len(texts))), "none without a window"
    assert (np.diff(packed.examples) >= 0).all()
    assert packed.windows.tolist() == [int((packed.examples == example).sum()) for example in range(len(texts))]
    assert packed.second.tolist() == packed.lengths.tolist()
    for example, text in enumerate(texts):
        tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        windows = [packed[place].tolist() for place in np.flatnonzero(packed.examples == example)]
        assert all((one[0], one[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id) for one in windows)
        inside = [one[1:-1] for one in windows]
        assert inside == [tokens[start : start + room] for start in range(0, stride * len(inside), stride)]
        assert inside[0] + [token for one in inside[1:] for token in one[room - stride :]] == tokens
        assert len(inside) == 1 or stride * (len(inside) - 2) + room < len(tokens), "no window more than needed"


def test_windows_of_texts_that_fit_are_the_texts_themselves(tmp_path: Path) -> None:
    texts = ["river stone", "cloud", ""]
    windows = pack_windows(texts, make_tokenizer(), 16, 5, tmp_path / "windows")
    plain = pack_examples([(text, None) for text in texts], make_tokenizer(), 16, tmp_path / "plain")
    assert [windows[place].tolist() for place in range(3)] == [plain[place].tolist() for place in range(3)]
    assert windows.examples.tolist() == plain.examples.tolist() == [0, 1, 2]


def test_windows_of_more_texts_than_one_call_of_the_tokenizer(tmp_path: Path) -> None:
    texts = ["river stone cloud green apple candle window silver" if n % 1000 == 7 else "river" for n in range(4500)]
    packed = pack_windows(texts, make_tokenizer(), 8, 3, tmp_path)
    assert packed.examples[-1] == 4499
    assert np.flatnonzero(packed.windows > 1).tolist() == [7, 1007, 2007, 3007, 4007]


def test_which_example_a_window_belongs_to_is_written_with_windows_only(tmp_path: Path) -> None:
    long = "river stone cloud green apple candle window silver garden"
    assert len(pack_windows([long, "river"], make_tokenizer(), 8, 3, tmp_path)) > 2
    assert PackedTexts(tmp_path).examples[-1] == 1
    assert (tmp_path / "examples.npy").exists()
    again = pack_examples([(long, None), ("river", None)], make_tokenizer(), 8, tmp_path)
    assert (again.examples.tolist(), again.windows.tolist()) == ([0, 1], [1, 1])
    assert not (tmp_path / "examples.npy").exists()


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


def test_a_long_passage_is_several_texts_or_loses_its_tail(tmp_path: Path) -> None:
    texts = ["2 3", "", " ".join(map(str, range(2, 20))), "4"]
    packed = pack_passages(texts, NumberTokenizer(50), 10, tmp_path)  # type: ignore[arg-type]
    assert packed.lengths.tolist() == [4, 10, 10, 4, 3]
    cut = pack_passages(texts, NumberTokenizer(50), 10, tmp_path, truncate=True)  # type: ignore[arg-type]
    assert cut.lengths.tolist() == [4, 10, 3]


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
