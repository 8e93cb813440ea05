"""Links of rows: valid, invalid, and after the text is split into passages."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import AlignedSettings, CorpusSettings, SourceSettings
from endtask.corpus import Corpus
from endtask.corpus.links import links_inside, read_links
from endtask.corpus.passages import cut, passage_spans, sentence_starts
from endtask.errors import InputError

TEXTS = st.text(alphabet="ab. \n?A", max_size=120)


def aligned(path: Path, *, passage_characters: int = 2000) -> Corpus:
    sources = (SourceSettings(path=str(path)),)
    return Corpus.aligned(AlignedSettings(sources=sources), CorpusSettings(passage_characters=passage_characters))


@given(TEXTS, st.integers(5, 60))
def test_places_of_passages_are_those_of_the_passages(text: str, limit: int) -> None:
    places = passage_spans(text, limit)
    assert [text[start:end] for start, end in places] == cut(text, limit)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))


@given(TEXTS)
def test_sentences_start_after_a_full_stop_and_at_something_visible(text: str) -> None:
    starts = sentence_starts(text)
    assert starts == sorted(set(starts))
    for start in starts[1:]:
        assert not text[start].isspace()
        assert text[:start].rstrip()[-1] in ".?"


@given(st.data(), TEXTS.filter(lambda text: len(text.strip()) > 3), st.integers(5, 40))
def test_links_survive_cutting_with_their_words(data: st.DataObject, text: str, limit: int) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    links = read_links([[start, end]], text, path="a", row=1)
    for first, last in passage_spans(text, limit):
        inside = links_inside(links, first, last)
        assert [text[first:last][a:b] for a, b in inside] == [text[a:b] for a, b in links if first <= a and b <= last]


def test_a_corpus_read_for_links_has_them_and_any_other_has_none(tmp_path: Path) -> None:
    text = "One two three. One two three. Six two three. One two three."
    rows = [{"text": text, "links": [[4, 7], [15, 18], [50, 51]]}, {"text": "no links here"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents = list(aligned(path, passage_characters=30).documents())
    assert [[one.text[start:end] for start, end in one.links] for one in documents] == [["two", "One"], ["w"], []]
    assert all(one.links == () for one in Corpus.read(path).documents())


def test_a_column_of_another_meaning_is_left_alone_in_other_corpora(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "some words", "links": "http://example.org"}) + "\n")
    assert len(list(Corpus.read(path).documents())) == 1
    with pytest.raises(InputError, match=r"row 1.*column 'links' is of type str"):
        list(aligned(path).documents())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[0, 99]], r"\[0, 99\] in a text of 9 characters"),
        ([[3, 3]], r"\[3, 3\]"),
        ([[-1, 2]], r"\[-1, 2\]"),
        ([[0, 4], [3, 6]], "the span at 3 overlaps"),
        ([[0]], r"holds '\[0\]'"),
        ([[0, 1.5]], "1.5"),
        ([[True, 2]], "True"),
        ({"start": 0}, "of type dict"),
    ],
)
def test_what_is_no_span_is_refused_with_its_row(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_links(value, "some text", path="rows.jsonl", row=7)
    assert "rows.jsonl" in str(caught.value)
    assert "row 7" in str(caught.value)


def test_sources_of_aligned_text_are_named_by_their_own_key(tmp_path: Path) -> None:
    entries = (SourceSettings(path=str(tmp_path), name="a"), SourceSettings(path=str(tmp_path), name="a"))
    with pytest.raises(InputError, match=r"aligned\.sources.*two sources"):
        Corpus.aligned(AlignedSettings(sources=entries), CorpusSettings())


def test_what_the_corpus_leaves_out_is_left_out_here_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"id": name, "text": f"a text of {name}"} for name in ("kept", "left")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = AlignedSettings.model_validate({"sources": [{"path": str(path)}]})
    texts = [one.text for one in Corpus.aligned(settings, CorpusSettings(exclude=("rows/left",))).documents()]
    assert texts == ["a text of kept"]
