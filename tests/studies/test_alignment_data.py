"""The tasks of the alignment study, from a few made-up rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.evaluation.metrics.spans import spans_of
from endtask.task import Task
from studies import alignment_data as command
from studies.acronym_task import (
    acronym_rows,
    distinct_snippets,
    fits,
    is_initials,
    mutated_acronyms,
    offsets_of,
    pseudo_acronyms,
    snippets_of,
)
from studies.concept_task import boundaries, content_words, divide, shared_words, unique_rows

Row = dict[str, Any]
WORDS = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jewel", "kayak", "lemon"]
NAMES = ["red oak tree", "old stone bridge", "north sea coast", "deep blue lake", "high pine ridge", "wild goose nest"]


def tagged(words: str, long: tuple[int, int], short: int, doc: str) -> Row:
    """A sentence whose long form and short form are told by their words' places."""
    tokens = words.split()
    tags = ["O"] * len(tokens)
    tags[long[0] : long[1]] = ["B-long", *["I-long"] * (long[1] - long[0] - 1)]
    tags[short] = "B-short"
    text = words.replace("( ", "(").replace(" )", ")").replace(" .", ".")
    return {"tokens": tokens, "tags": tags, "text": text, "doc": doc}


def gold_rows(count: int = 6, first: int = 0) -> list[Row]:
    """Sentences about things with three words, each with its own short form."""
    rows = []
    for number, name in enumerate(NAMES[:count]):
        short = "".join(word[0] for word in name.split()).upper()
        sentence = (
            f"here people often walk near {name} ( {short} ) every warm quiet summer evening before long dinners ."
        )
        rows.append(tagged(sentence, (5, 8), 9, f"doc{first + number}"))
    return rows


def concept_rows(count: int, words: list[str], start: int = 0) -> list[Row]:
    """Queries with one word of their own each, which is the concept."""
    return [
        {
            "tokens": ["what", "is", words[(start + n) % len(words)], f"thing{start + n}"],
            "tags": ["O", "O", "B-x", "I-x"],
        }
        for n in range(count)
    ]


@given(st.lists(st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"]), max_size=12))
@settings(max_examples=50, deadline=None)
def test_boundaries_keep_every_concept_and_drop_its_type(tags: list[str]) -> None:
    expected = [(start, end) for _, start, end in spans_of(tags, "bio")]
    assert [(start, end) for _, start, end in spans_of(boundaries(tags), "ends")] == expected


def test_content_words_are_whole_words_in_lower_case() -> None:
    assert content_words(["The", "North-Sea", "'s", "Coast", "a", ",", "42"]) == {"north", "sea", "coast", "42"}


@given(st.integers(0, 5), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_test_shares_no_content_word_with_the_rest(seed: int, test: int) -> None:
    rows = unique_rows({"one": concept_rows(30, WORDS), "two": concept_rows(30, WORDS[6:], start=100)})
    splits = divide(rows, test=test, dev=2, train=8, draws=3, seed=seed)
    assert not shared_words(splits)
    assert [row["source"] for row in splits["test"]] == ["one", "two"] * test
    assert splits == divide(rows, test=test, dev=2, train=8, draws=3, seed=seed)
    texts = [" ".join(row["tokens"]) for rows in splits.values() for row in rows]
    assert len(set(texts)) == len(texts)


def test_a_source_that_is_too_small_is_named() -> None:
    with pytest.raises(InputError, match="one has fewer than 4 rows for test"):
        divide(unique_rows({"one": concept_rows(3, WORDS)}), test=4, dev=1, train=1)


def test_texts_that_come_twice_count_once() -> None:
    rows = concept_rows(3, WORDS)
    assert len(unique_rows({"one": rows, "two": rows})) == 3
    assert unique_rows({"one": [{"tokens": ["what", "is", "it"], "tags": ["O"] * 3}]}) == []


def test_a_snippet_shows_neither_its_short_form_nor_the_brackets() -> None:
    (snippet,) = snippets_of(gold_rows(1)[0])
    assert (snippet.acronym, snippet.long_form) == ("ROT", "red oak tree")
    assert snippet.text.startswith("here people often walk near red oak tree every warm")
    assert {snippet.words[place] for place in snippet.named} == {"red", "oak", "tree"}


def test_short_forms_without_brackets_or_with_other_letters_are_left_out() -> None:
    row = tagged("the red oak tree ( DEX ) grows", (1, 4), 5, "d")
    assert list(snippets_of(row)) == []
    row = tagged("the red oak tree , ROT , grows", (1, 4), 5, "d")
    assert list(snippets_of(row)) == []
    assert is_initials("ROT", "red oak tree")


def test_an_acronym_that_the_text_still_shows_is_not_chosen() -> None:
    first = list(snippets_of(gold_rows(1)[0]))
    shown = list(snippets_of(tagged("ROTs of red oak tree ( ROT ) grow", (2, 5), 6, "d")))
    assert len(shown) == 1
    assert distinct_snippets(shown) == []
    assert distinct_snippets([*first, *first]) == first


def test_false_acronyms_name_nothing_in_the_text() -> None:
    import numpy as np

    (snippet,) = snippets_of(gold_rows(1)[0])
    pseudo = pseudo_acronyms(snippet)
    assert "WQS" in pseudo  # warm quiet summer
    assert "ROT" not in pseudo
    assert not {"NRO", "OTE"} & set(pseudo)  # they share words with the long form
    assert "EWQ" not in pseudo  # `every` is a stop word, and others can be had without
    mutated = mutated_acronyms(snippet, list("ROTBXZ"), np.random.default_rng(0))
    assert mutated
    assert all(len(one) == 3 and one not in snippet.initials and not fits(one, "red oak tree") for one in mutated)


def test_every_text_has_a_true_and_a_false_acronym_of_one_length() -> None:
    snippets = distinct_snippets(one for row in gold_rows() for one in snippets_of(row))
    rows = acronym_rows(snippets)
    assert rows == acronym_rows(snippets)
    by_text: dict[str, list[Row]] = {}
    for row in rows:
        by_text.setdefault(row["text_pair"], []).append(row)
    assert len(by_text) == 6
    for pair in by_text.values():
        assert sorted(row["label"] for row in pair) == ["0", "1"]
        assert len({len(row["text"]) for row in pair}) == 1
        assert len({row["doc"] for row in pair}) == 1
    made = [row["made"] for row in rows]
    assert (made.count("pseudo"), made.count("mutated")) == (3, 3)


@given(st.lists(st.text("abc()", min_size=1, max_size=4), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_tokens_are_found_where_they_stand(tokens: list[str]) -> None:
    text = " ".join(tokens)
    assert [text[start:end] for start, end in offsets_of(tokens, text)] == tokens


def sample_data(folder: Path) -> Path:
    """Tiny files in the shape of the sample data."""
    names = [name for some in command.CONCEPTS.values() for name in some]
    for number, name in enumerate(names):
        write_splits(folder / "tasks" / name, concept_rows(60, WORDS, start=100 * number))
    write_splits(folder / "tasks" / command.ACRONYMS, [*gold_rows(), *gold_rows(first=6)][:9])
    return folder


def write_splits(folder: Path, rows: list[Row]) -> None:
    folder.mkdir(parents=True)
    for place, split in enumerate(command.SPLITS):
        lines = [json.dumps(row) + "\n" for row in rows[place::3]]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


def test_both_tasks_and_the_texts_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sample_data(tmp_path / "data")
    pages = [{"title": f"page {number}", "text": "words"} for number in range(2000)]
    for folder, name, rows in (("corpus", "wikipedia-1", pages), ("corpus_links", "links", pages[:1000])):
        (data / folder).mkdir()
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (data / folder / f"{name}.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    whole = command.concept_splits
    monkeypatch.setattr(command, "concept_splits", lambda tasks: whole(tasks, test=2, dev=5, train=20))
    monkeypatch.setattr(sys, "argv", ["data", "--data", str(data), "--out", str(tmp_path / "out")])
    command.main()
    tagging, detection = Task.read(tmp_path / "out" / "ct"), Task.read(tmp_path / "out" / "ad")
    assert (tagging.type, set(tagging.labels)) == ("token_classification", {"none", "start", "end"})
    assert (detection.type, detection.labels) == ("pair", ("0", "1"))
    parts = {
        name: [json.loads(line)["title"] for line in (tmp_path / "out" / "text" / f"{name}.jsonl").open()]
        for name in command.SHARES
    }
    assert len({title for titles in parts.values() for title in titles}) == sum(map(len, parts.values()))
    assert 300 < len(parts["wikipedia"]) < 500
    assert parts["held_out"]
    assert not set(parts["held_out"]) & {page["title"] for page in pages[:1000]}


def test_missing_data_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["data", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        command.main()
    assert "no train file of the sample data there" in capsys.readouterr().err
