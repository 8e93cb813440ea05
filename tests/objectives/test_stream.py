"""Streams of batches follow the network's layout and depend on seed and step alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import BatchSize
from endtask.encoders.network import Network
from endtask.objectives.stream import TextStream
from endtask.tokenization.packed_texts import PackedTexts
from tests.tiny import make_masking, make_network, make_packed


@pytest.fixture
def texts(tmp_path: Path) -> PackedTexts:
    return make_packed(tmp_path, 50)


def stream_of(texts: PackedTexts, network: Network, size: str = "64tok", *, masked: bool = True) -> TextStream:
    masking = make_masking() if masked else None
    return TextStream("any", texts, network, batch_size=BatchSize.parse(size), seed=3, masking=masking)


@pytest.mark.parametrize("architecture", ["lean", "bert"])
@pytest.mark.parametrize("size", ["64tok", "8"])
def test_fixed_shapes_are_the_same_in_every_batch(texts: PackedTexts, architecture: str, size: str) -> None:
    network = make_network(architecture)
    network.fixed_shapes = True
    stream = stream_of(texts, network, size)
    batches = [stream.batch(step) for step in range(4 * stream.plan.batches_per_epoch)]
    shapes = {
        (batch.input_ids.shape, batch.offsets.shape, batch.masked_targets.shape, batch.grid.shape, batch.longest)  # type: ignore[union-attr]
        for batch in batches
    }
    assert len(shapes) == 1
    assert len({batch.real_tokens for batch in batches}) > 1
    assert {batch.padded_tokens for batch in batches} == (
        {batches[0].grid.numel()} if architecture == "bert" else {len(batches[0].input_ids)}  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("fixed", [False, True])
def test_like_lengths_come_together_where_a_table_may_change_its_width(texts: PackedTexts, fixed: bool) -> None:
    network = make_network()
    network.fixed_shapes = fixed
    assert alike(texts, stream_of(texts, network, "4")) == (not fixed)


@pytest.mark.parametrize("fixed", [False, True])
def test_without_a_table_lengths_come_mixed(texts: PackedTexts, fixed: bool) -> None:
    network = make_network()
    network.backend, network.fixed_shapes = "varlen", fixed
    stream = stream_of(texts, network, "4")
    assert not alike(texts, stream)
    assert stream.batch(0).grid is None


def alike(texts: PackedTexts, stream: TextStream) -> bool:
    """Whether texts of a batch have like lengths."""
    batches = [texts.lengths[stream.positions(step)] for step in range(stream.plan.batches_per_epoch)]
    return bool(np.mean([lengths.std() for lengths in batches]) < 0.6 * texts.lengths.std())


def test_a_text_is_masked_anew_each_time(texts: PackedTexts) -> None:
    stream = stream_of(texts, make_network(), "50")
    one, other = stream.batch(0), stream.batch(1)

    def hidden(step: int) -> list[tuple[int, int]]:
        """Text and place in it of every masked token."""
        batch, positions = stream.batch(step), stream.positions(step)
        assert batch.masked_positions is not None
        chosen = batch.masked_positions
        return sorted(
            (int(positions[text]), int(place))
            for text, place in zip(batch.text_ids[chosen], batch.position_ids[chosen], strict=True)
        )

    assert one.real_tokens == other.real_tokens
    assert hidden(0) != hidden(1)
    assert hidden(0) == hidden(0)


def test_without_masking_the_texts_are_as_they_were_packed(texts: PackedTexts) -> None:
    batch = stream_of(texts, make_network(), "50", masked=False).batch(0)
    assert batch.masked_positions is None
    assert sorted(batch.input_ids.tolist()) == sorted(token for text in range(50) for token in texts[text].tolist())


def test_networks_of_one_layout_are_shown_the_same_batches(texts: PackedTexts) -> None:
    streams = [stream_of(texts, make_network(architecture)) for architecture in ("lean", "bert")]
    for step in range(5):
        one, other = (stream.batch(step) for stream in streams)
        assert one.input_ids.equal(other.input_ids)


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> PackedTexts:
    return make_packed(tmp_path_factory.mktemp("texts"), 30)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), size=st.sampled_from(["64tok", "5"]), fixed=st.booleans())
def test_a_narrowed_stream_reads_the_given_texts(
    thirty: PackedTexts, data: st.DataObject, size: str, fixed: bool
) -> None:
    texts, network = thirty, make_network()
    network.fixed_shapes = fixed
    stream = stream_of(texts, network, size)
    first, shape = stream.batch(3), stream.batch(0).input_ids.shape
    only = np.array(sorted(data.draw(st.sets(st.integers(0, 29), min_size=1))))
    stream.narrow(only)
    batches = [stream.positions(step) for step in range(stream.plan.batches_per_epoch)]
    found = np.concatenate(batches).tolist()
    assert len(set(found)) == len(found)
    assert set(found) <= set(only.tolist()) if fixed else set(found) == set(only.tolist())
    if fixed:
        assert {stream.batch(step).input_ids.shape for step in range(len(batches))} == {shape}
    stream.narrow(None)
    assert stream.batch(3).input_ids.equal(first.input_ids)
