"""The other recipes: titles with texts, and marked spans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from endtask.config import BatchSize
from endtask.errors import InputError
from endtask.objectives.alignment.marked_relation import MarkedRelation, marker_ids
from endtask.objectives.alignment.pairs import NothingToMake
from endtask.objectives.alignment.titles import Titles
from endtask.tokenization.aligned_texts import MARKUP, AlignedTexts, pack_aligned
from tests.aligned_toy import LONGEST, make_aligned, make_documents, make_tokenizer
from tests.objectives.aligned_network import HEAD, make_aligned_network

MARKS = ("[[", "]]", "<<", ">>")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> AlignedTexts:
    return make_aligned(tmp_path_factory.mktemp("packed"), 30)


def make_titles(texts: AlignedTexts) -> Titles:
    network, size = make_aligned_network(2), BatchSize.parse("8")
    return Titles("titles", texts, make_tokenizer(), network, batch_size=size, seed=0, head=HEAD)


def make_relation(texts: AlignedTexts, seed: int = 0) -> MarkedRelation:
    network, size = make_aligned_network(2), BatchSize.parse("8")
    spans = texts.spans(MARKUP)
    return MarkedRelation(
        "marks", texts, spans, make_tokenizer(), network, markers=MARKS, batch_size=size, seed=seed, head=HEAD
    )


def test_half_of_the_titles_are_other_ones(texts: AlignedTexts) -> None:
    objective = make_titles(texts)
    for step in range(10):
        drawn = objective.titles(step)
        assert abs(sum(own for _, _, own in drawn) - len(drawn) / 2) <= 1
        for position, title, own in drawn:
            same = np.array_equal(texts.titles[title], texts.titles[int(texts.documents[position])])
            assert own == same == (title == texts.documents[position])
        tokenizer, batch = make_tokenizer(), objective.batch(step)
        ids = batch.input_ids[: int(batch.offsets[1])].tolist()
        title_ids = texts.titles[drawn[0][1]].tolist()
        assert ids == [tokenizer.cls_token_id, *title_ids, tokenizer.sep_token_id, *texts[drawn[0][0]][1:]]


def test_documents_without_titles_are_refused(tmp_path: Path) -> None:
    packed = pack_aligned(make_documents(4, titles=False), make_tokenizer(), LONGEST, tmp_path)
    with pytest.raises(NothingToMake, match="title"):
        make_titles(packed)


def test_marked_spans_stand_where_they_stood_or_are_of_another_document(texts: AlignedTexts) -> None:
    objective, tokenizer = make_relation(texts), make_tokenizer()
    markers = [marker_ids(mark, tokenizer)[0] for mark in MARKS]
    own_classes = []
    for step in range(8):
        inputs, answers = objective.make(step)
        for made, answer, position in zip(inputs, answers, objective.stream.positions(step), strict=True):
            ids = made.tokens.tolist()
            assert sorted(ids.count(mark) for mark in markers) == [1, 1, 1, 1]
            assert ids.index(markers[0]) < ids.index(markers[1])
            assert ids.index(markers[2]) < ids.index(markers[3])
            unmarked = [token for token in ids if token not in markers]
            assert (unmarked == texts[int(position)].tolist()) == bool(answer)
            own_classes.append(bool(answer))
    assert abs(np.mean(own_classes) - 0.5) < 0.1


def test_marked_inputs_are_a_pure_function_of_seed_and_step(texts: AlignedTexts) -> None:
    one, two = make_relation(texts), make_relation(texts)
    assert torch.equal(one.batch(3).input_ids, two.batch(3).input_ids)
    assert not torch.equal(one.batch(3).input_ids, make_relation(texts, seed=1).batch(3).input_ids)


def test_marks_must_be_single_tokens() -> None:
    with pytest.raises(InputError, match=r"aligned\.entity_markers.*tokenizer\.entity_markers"):
        marker_ids("((river", make_tokenizer())


def test_a_mark_that_the_tokenizer_does_not_know_is_refused() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer("\u2603", add_special_tokens=False)["input_ids"] == [tokenizer.unk_token_id]
    with pytest.raises(InputError, match=r"aligned\.entity_markers.*no token of its own"):
        marker_ids("\u2603", tokenizer)
