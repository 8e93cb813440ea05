"""Classes of words from spans."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import BatchSize
from endtask.encoders.batch import IGNORED
from endtask.encoders.network import Network
from endtask.objectives.alignment.hyperlinks import CLASSES, SpanBoundaries, texts_with_spans, word_classes
from endtask.records import Document
from endtask.tokenization.aligned_texts import AlignedTexts, pack_aligned
from tests.aligned_toy import KINDS, LONGEST, make_aligned, make_documents, make_tokenizer
from tests.objectives.aligned_network import HEAD, make_aligned_network


def make(texts: AlignedTexts, network: Network, **options: object) -> SpanBoundaries:
    common = {"batch_size": BatchSize.parse("5"), "seed": 3, "head": HEAD, **options}
    return SpanBoundaries("links", texts, texts.links, network, **common)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_between_start_and_end_are_the_anchor(kind: str, tmp_path: Path) -> None:
    texts, tokenizer = make_aligned(tmp_path, kind=kind), make_tokenizer(kind)
    objective = make(texts, make_aligned_network(4, tokens=True, kind=kind))
    anchors = {one.text[start:end].lower() for one in make_documents() for start, end in one.links}
    seen = 0
    for position in range(len(texts)):
        labels, ids = objective.labels(position), texts[position]
        starts = np.flatnonzero((labels == 1) | (labels == 3))
        ends = np.flatnonzero((labels == 2) | (labels == 3))
        assert len(starts) == len(ends)
        for start, end in zip(starts, ends, strict=True):
            words = texts.words[position]
            last = words[words[:, 0] == end][0, 1]
            assert tokenizer.decode(ids[start:last]).strip() in anchors
            seen += 1
    assert seen > 30


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_classes_against_a_slow_second_way(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    bounds = [1 + sum(sizes[:number]) for number in range(len(sizes) + 1)]
    places = sorted(data.draw(st.lists(st.integers(1, bounds[-1]), unique=True, max_size=8)))
    spans = [(a, b, int(data.draw(st.booleans()))) for a, b in zip(places[::2], places[1::2], strict=False)]
    words = list(pairwise(bounds))
    found = word_classes(np.array(words), np.array(spans).reshape(-1, 3), "boundaries")
    for word, (start, end) in enumerate(words):
        met = [span for span in spans if span[0] < end and span[1] > start]
        good = [one for one in met if one[2] and one[0] in bounds and one[1] in bounds]
        if not met:
            assert found[word] == 0
        elif len(met) == len(good) == 1:
            assert found[word] == (start == good[0][0]) + 2 * (end == good[0][1])
        elif not good:
            assert found[word] == IGNORED


def test_bio_marks_the_first_word_and_the_rest() -> None:
    spans = np.array([[2, 5, 1], [6, 7, 0]])
    words = np.array([[1, 2], [2, 4], [4, 5], [5, 6], [6, 7]])
    assert word_classes(words, spans, "bio").tolist() == [0, 1, 2, 0, IGNORED]
    assert CLASSES["bio"] == ("O", "B", "I")


def test_a_batch_is_a_pure_function_of_seed_and_step(tmp_path: Path) -> None:
    texts, network = make_aligned(tmp_path), make_aligned_network(4, tokens=True)
    one, two, other = make(texts, network), make(texts, network), make(texts, network, seed=4)
    for step in (7, 0, 3):
        first, second = one.batch(step), two.batch(step)
        assert torch.equal(first.input_ids, second.input_ids)
        assert first.labels is not None
        assert second.labels is not None
        assert torch.equal(first.labels, second.labels)
    assert not torch.equal(one.batch(0).input_ids, other.batch(0).input_ids)


def test_labels_of_a_batch_stand_at_their_texts(tmp_path: Path) -> None:
    texts, network = make_aligned(tmp_path), make_aligned_network(4, tokens=True)
    objective = make(texts, network)
    batch = objective.batch(1)
    assert batch.labels is not None
    wanted = np.concatenate([objective.labels(int(position)) for position in objective.stream.positions(1)])
    assert batch.labels.tolist() == wanted.tolist()
    assert (batch.labels[batch.offsets[:-1].long()] == IGNORED).all()  # [CLS]


def test_the_loss_is_the_mean_over_words(tmp_path: Path) -> None:
    texts, network = make_aligned(tmp_path), make_aligned_network(4, tokens=True)
    objective = make(texts, network)
    batch = objective.batch(0)
    assert batch.labels is not None
    logits = network.heads[HEAD](network(batch))
    wanted = torch.nn.functional.cross_entropy(logits, batch.labels)
    torch.testing.assert_close(objective.loss(network, batch).total, batch.token_share * wanted)
    assert objective.flops(network, batch) > network.training_flops(batch)


def test_rooms_of_one_size_change_no_label(tmp_path: Path) -> None:
    texts, network = make_aligned(tmp_path), make_aligned_network(4, tokens=True)
    network.fixed_shapes = True
    objective = make(texts, network)
    batches = [objective.batch(step) for step in range(6)]
    assert len({(batch.input_ids.shape, batch.offsets.shape) for batch in batches}) == 1
    for step, batch in enumerate(batches):
        assert batch.labels is not None
        own = np.concatenate([objective.labels(int(position)) for position in objective.stream.positions(step)])
        assert batch.labels[: len(own)].tolist() == own.tolist()
        assert (batch.labels[len(own) :] == IGNORED).all()
        assert torch.isfinite(objective.loss(network, batch).total)


def test_documents_without_any_link_are_not_read(tmp_path: Path) -> None:
    documents = [*make_documents(3), Document("plain", "Some river without a link. " * 8, "toy")]
    texts = pack_aligned(documents, make_tokenizer(), LONGEST, tmp_path)
    assert set(texts.documents[texts_with_spans(texts, texts.links)]) == {0, 1, 2}
