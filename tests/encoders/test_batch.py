"""Batches of texts end to end, against a slow loop over texts."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from endtask.encoders.batch import (
    IGNORED,
    BatchShape,
    Layout,
    TextBatch,
    as_table,
    batch_shape_for,
    from_table,
    lay_out,
)
from endtask.tokenization.packed_texts import PackedTexts
from tests.tiny import make_packed

PAD = 7
LENGTHS = st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=12)
LONGEST = st.integers(min_value=9, max_value=14)


def packed_folder(folder: Path, lengths: list[int], seed: int) -> PackedTexts:
    """Packed texts of given lengths with random tokens, the second text of each starting anywhere in it."""
    random = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    random.integers(8, 1000, size=sum(lengths)).astype(np.uint16).tofile(folder / "tokens.bin")
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    np.save(folder / "second.npy", np.array([random.integers(length + 1) for length in lengths], dtype=np.int32))
    shape = {"tokens": sum(lengths), "texts": len(lengths), "dtype": "uint16"}
    (folder / "shape.json").write_text(json.dumps(shape))
    return PackedTexts(folder)


def rows_of(batch: TextBatch, values: Tensor) -> list[list[int]]:
    """The values of each text's tokens."""
    return [values[start:end].tolist() for start, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]


def check_real_texts(batch: TextBatch, texts: PackedTexts, positions: list[int]) -> None:
    count, longest = len(positions), batch.longest
    ids, places = rows_of(batch, batch.input_ids)[:count], rows_of(batch, batch.position_ids)[:count]
    types, numbers = rows_of(batch, batch.token_type_ids)[:count], rows_of(batch, batch.text_ids)[:count]
    for row, position in enumerate(positions):
        text, second = texts[position].tolist(), int(texts.second[position])
        assert ids[row] == text
        assert places[row] == list(range(len(text)))
        assert types[row] == [int(place >= second) for place in range(len(text))]
        assert numbers[row] == [row] * len(text)
        if batch.grid is not None:
            start = int(batch.offsets[row])
            there = [start + place if place < len(text) else len(batch.input_ids) for place in range(longest)]
            assert batch.grid[row].tolist() == there
    lengths = [len(texts[position]) for position in positions]
    assert (batch.texts, batch.real_tokens) == (count, sum(lengths))
    assert batch.squared_lengths == sum(length**2 for length in lengths)


def check_room(batch: TextBatch, layout: Layout) -> None:
    """Padding fills the fixed shape exactly, behind the real texts."""
    fixed_shape = layout.fixed_shape
    assert fixed_shape is not None
    tokens, texts = fixed_shape.tokens, fixed_shape.texts
    assert [len(part) for part in (batch.input_ids, batch.position_ids, batch.token_type_ids, batch.text_ids)] == (
        [tokens] * 4
    )
    assert (len(batch.offsets), int(batch.offsets[-1]), batch.longest) == (texts + 1, tokens, layout.longest)
    assert batch.input_ids[batch.real_tokens :].eq(PAD).all()
    assert batch.token_type_ids[batch.real_tokens :].eq(0).all()
    assert batch.position_ids.max() < layout.longest
    sizes = batch.offsets.diff()
    assert sizes.min() >= 0
    assert batch.text_ids.tolist() == [number for number, size in enumerate(sizes) for _ in range(size)]
    if not layout.grid:
        assert sizes.max() <= layout.longest
    elif batch.grid is not None:
        assert batch.grid.shape == (texts, layout.longest)
        assert batch.grid.max() <= tokens


@given(
    lengths=LENGTHS,
    longest=LONGEST,
    seed=st.integers(min_value=0, max_value=2**32),
    grid=st.booleans(),
    padded=st.booleans(),
    more=st.one_of(st.none(), st.integers(min_value=0, max_value=70)),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_field_is_that_of_a_loop_over_texts(
    tmp_path: Path, lengths: list[int], longest: int, seed: int, grid: bool, padded: bool, more: int | None
) -> None:
    texts = packed_folder(tmp_path / "texts", lengths, seed)
    random = np.random.default_rng(seed)
    positions = random.permutation(len(lengths))[: random.integers(1, len(lengths) + 1)]
    layout = Layout(PAD, longest, grid=grid or padded, padded=padded)
    if more is not None:
        most = int(texts.lengths[positions].sum()) + more
        layout = replace(layout, fixed_shape=batch_shape_for(most, len(positions), 0.15, layout))
    batch = lay_out(texts, positions, layout)
    check_real_texts(batch, texts, positions.tolist())
    assert (batch.grid is None) == (not layout.grid)
    if more is None:
        assert batch.longest == int(texts.lengths[positions].max())
        assert len(batch.input_ids) == batch.real_tokens
        assert len(batch.offsets) == len(positions) + 1
    else:
        check_room(batch, layout)
    assert batch.even == (set(texts.lengths[positions].tolist()) == {batch.longest} and not more)
    rows = len(batch.offsets) - 1
    assert batch.padded_tokens == (rows * batch.longest if padded else len(batch.input_ids))


@given(tokens=st.integers(min_value=1, max_value=300), longest=LONGEST, filled=st.floats(min_value=0, max_value=1))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_room_is_made_for_fits_into_it(tmp_path: Path, tokens: int, longest: int, filled: float) -> None:
    """Whatever share of it real texts take, without a grid too, where padding comes in pieces."""
    used = max(1, int(filled * tokens))
    lengths = [min(longest, used - start) for start in range(0, used, longest)]
    texts = packed_folder(tmp_path / "texts", lengths, 0)
    for grid in (False, True):
        layout = Layout(PAD, longest, grid=grid)
        layout = replace(layout, fixed_shape=batch_shape_for(tokens, len(lengths), 0.15, layout))
        check_room(lay_out(texts, np.arange(len(lengths)), layout), layout)


@pytest.mark.parametrize(
    "fixed_shape", [BatchShape(tokens=11, texts=9), BatchShape(tokens=100, texts=2), BatchShape(tokens=24, texts=3)]
)
def test_a_room_too_small_is_refused(tmp_path: Path, fixed_shape: BatchShape) -> None:
    texts = packed_folder(tmp_path, [4, 4, 4], 0)
    with pytest.raises(ValueError, match=r"3 texts of 12 tokens do not fit into BatchShape\(tokens="):
        lay_out(texts, np.arange(3), Layout(PAD, 4, grid=False, fixed_shape=fixed_shape))
    fitting = Layout(PAD, 4, grid=False, fixed_shape=BatchShape(tokens=24, texts=6))
    assert lay_out(texts, np.arange(3), fitting).offsets.tolist() == [0, 4, 8, 12, 16, 20, 24]


def test_a_full_room_needs_no_padding(tmp_path: Path) -> None:
    texts = packed_folder(tmp_path, [4, 4], 0)
    batch = lay_out(texts, np.arange(2), Layout(PAD, 4, fixed_shape=BatchShape(tokens=8, texts=3)))
    assert batch.even
    assert not lay_out(texts, np.arange(2), Layout(PAD, 4, fixed_shape=BatchShape(tokens=9, texts=3))).even
    assert not lay_out(texts, np.arange(2), Layout(PAD, 5, fixed_shape=BatchShape(tokens=8, texts=3))).even
    assert batch.offsets.tolist() == [0, 4, 8, 8]
    short = packed_folder(tmp_path / "short", [3, 3], 0)
    assert not lay_out(short, np.arange(2), Layout(PAD, 4, fixed_shape=BatchShape(tokens=8, texts=3))).even
    assert batch.real_tokens == len(batch.input_ids) == 8
    assert batch.grid is not None
    assert batch.grid[2].tolist() == [8, 8, 8, 8]


@pytest.mark.parametrize(("probability", "tokens"), [(0.15, 4096), (0.3, 100), (0.99, 640), (0.0, 50)])
def test_a_room_has_places_for_all_masked_tokens(probability: float, tokens: int) -> None:
    masked = batch_shape_for(tokens, 10, probability, Layout(PAD, 64)).masked
    assert masked % 64 == 0
    assert max(1, round(probability * tokens)) <= masked <= probability * tokens + 65


def all_fields(texts: PackedTexts) -> TextBatch:
    """A batch with every optional field in use."""
    batch = lay_out(texts, np.array([3, 0, 5]), Layout(PAD, 16))
    numbers = torch.arange(3)
    return replace(
        batch, masked=2, masked_positions=numbers, masked_targets=numbers, labels=numbers, weights=numbers.float()
    )


def test_a_batch_moves_with_everything_in_it(tmp_path: Path) -> None:
    batch = all_fields(make_packed(tmp_path, pairs=True))
    moved = batch.to(torch.device("meta"))
    for field in fields(TextBatch):
        before, after = getattr(batch, field.name), getattr(moved, field.name)
        if isinstance(before, Tensor):
            assert (after.device.type, after.shape, after.dtype) == ("meta", before.shape, before.dtype), field.name
        else:
            assert after == before, field.name
    back = batch.to(torch.device("cpu"))
    assert all(same(getattr(batch, field.name), getattr(back, field.name)) for field in fields(TextBatch))


def test_pinning_asks_it_of_every_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = all_fields(make_packed(tmp_path, pairs=True))
    asked = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: asked.append(tensor) or tensor)
    pinned = batch.pin()
    tensors = [getattr(batch, field.name) for field in fields(TextBatch)]
    assert len(asked) == sum(isinstance(value, Tensor) for value in tensors) == 10
    assert all(same(getattr(batch, field.name), getattr(pinned, field.name)) for field in fields(TextBatch))


def test_an_absent_field_stays_absent(tmp_path: Path) -> None:
    batch = lay_out(make_packed(tmp_path), np.array([1]), Layout(PAD, 16, grid=False)).to(torch.device("cpu"))
    assert (batch.grid, batch.masked_positions, batch.labels, batch.weights) == (None,) * 4


@pytest.mark.parametrize("fixed_shape", [None, BatchShape(tokens=60, texts=8)])
def test_a_table_and_back(tmp_path: Path, fixed_shape: BatchShape | None) -> None:
    texts = make_packed(tmp_path, pairs=True)
    positions = np.array([3, 0, 5])
    batch = lay_out(texts, positions, Layout(PAD, 16, padded=True, fixed_shape=fixed_shape))
    table = as_table(batch, PAD)
    for row, position in enumerate(positions):
        length = len(texts[position])
        assert table["input_ids"][row, :length].tolist() == texts[position].tolist()
        assert table["input_ids"][row, length:].eq(PAD).all()
        assert table["attention_mask"][row].tolist() == [1] * length + [0] * (batch.longest - length)
        assert table["token_type_ids"][row].sum() == length - texts.second[position]
    assert all(value.numel() == batch.padded_tokens for value in table.values())
    flat = from_table(table["input_ids"][..., None], batch)[:, 0]
    assert flat[: batch.real_tokens].equal(batch.input_ids[: batch.real_tokens])


def test_the_ignored_target_is_the_one_that_torch_leaves_out() -> None:
    assert torch.nn.CrossEntropyLoss().ignore_index == IGNORED


def same(one: object, other: object) -> bool:
    return one.equal(other) if isinstance(one, Tensor) else one == other  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, grid=st.booleans())
def test_twice_is_what_all_texts_laid_out_twice_are(tmp_path: Path, lengths: list[int], grid: bool) -> None:
    texts = packed_folder(tmp_path / "packed", lengths, 0)
    positions, layout = np.arange(len(lengths)), Layout(PAD, max(lengths), grid=grid)
    found, expected = lay_out(texts, positions, layout).twice(), lay_out(texts, np.tile(positions, 2), layout)
    for field in fields(TextBatch):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        assert one.equal(other) if isinstance(one, Tensor) else one == other, field.name


def test_twice_moves_what_was_masked_and_keeps_the_answers(tmp_path: Path) -> None:
    batch = lay_out(make_packed(tmp_path), np.arange(3), Layout(PAD, 20))
    tokens = len(batch.input_ids)
    masked = {"masked": 2, "masked_positions": torch.tensor([1, 4]), "masked_targets": torch.tensor([9, IGNORED])}
    twice = replace(batch, labels=torch.tensor([2, 0, 1]), **masked).twice()
    found = [
        value.tolist() for value in (twice.masked_positions, twice.masked_targets, twice.labels) if value is not None
    ]
    assert found == [[1, 4, 1 + tokens, 4 + tokens], [9, IGNORED, 9, IGNORED], [2, 0, 1, 2, 0, 1]]
    assert twice.masked == 4
