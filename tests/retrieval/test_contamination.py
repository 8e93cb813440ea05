"""The contamination filter against a slow version of its rule."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from endtask.retrieval.bm25.scan import Scanner, Terms
from endtask.retrieval.contamination import (
    RUN,
    ContaminationFilter,
    _same_run,
    join_texts,
    may_be_contaminated,
    spellings,
)
from endtask.retrieval.words import IDEOGRAPH, LETTER, character_classes, word_hash, words_of

LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def word_arrays(text: str) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """What the scan tells of a passage: hashes of its words, and where a sentence may have ended before one."""
    hashes = np.asarray([word_hash(word) for word in words_of(text)], dtype=np.uint64)
    breaks: list[bool] = []
    may_end, in_word = True, False
    for character in text:
        kind = character_classes()[ord(character)]
        if kind in (LETTER, IDEOGRAPH) and not (in_word and kind == LETTER):
            breaks.append(may_end)
            may_end = False
        elif kind not in (LETTER, IDEOGRAPH):
            may_end |= character in ".!?" or character in LINE_ENDS or not character.isascii()
        in_word = kind == LETTER
    assert len(breaks) == len(hashes)
    return hashes, np.asarray(breaks, dtype=np.uint8)


def is_suspect(contamination_filter: ContaminationFilter, passage: str) -> bool:
    hashes, breaks = word_arrays(passage)
    return bool(may_be_contaminated(hashes, breaks, len(hashes), *contamination_filter.table))


def dropped(evaluation: list[str], passages: list[str]) -> set[int]:
    """What the contamination filter drops: suspects that are confirmed. It may suspect too much but must miss none."""
    contamination_filter = ContaminationFilter.of(evaluation)
    confirmed = {place for place, passage in enumerate(passages) if contamination_filter.confirm(passage)}
    assert confirmed <= {place for place, passage in enumerate(passages) if is_suspect(contamination_filter, passage)}
    return confirmed


def sentences_of(passage: str) -> list[list[str]]:
    """The sentences' words, found letter by letter."""
    sentences, sentence, place = [], "", 0
    while place < len(passage):
        character = passage[place]
        sentence += character
        place += 1
        after = place
        while after < len(passage) and passage[after] in "\"”’»')]":
            after += 1
        ended = character in ".!?…؟۔।॥" and after < len(passage) and passage[after].isspace()
        if ended or character in "。！？．｡" or character in LINE_ENDS:
            sentences.append(words_of(sentence))
            sentence = ""
    return [words for words in [*sentences, words_of(sentence)] if words]


def holds(passage: str, evaluation: str) -> bool:
    """The rule, word for word."""
    words, wanted = words_of(passage), words_of(evaluation)
    if len(wanted) >= RUN:
        runs = {tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}
        return any(tuple(wanted[start : start + RUN]) in runs for start in range(len(wanted) - RUN + 1))
    sentences = sentences_of(passage)
    ends = range(len(sentences) + 1)
    spans = (chain.from_iterable(sentences[first:last]) for first in ends for last in ends[first:])
    return bool(wanted) and wanted in map(list, spans)


def slow_dropped(evaluation: list[str], passages: list[str]) -> set[int]:
    return {place for place, passage in enumerate(passages) if any(holds(passage, text) for text in evaluation)}


def texts_of(words: str, shortest: int, longest: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words.split()), min_size=shortest, max_size=longest).map(" ".join)


SENTENCES = st.lists(texts_of("a b", 0, 5) | texts_of("a b", 12, 16), min_size=1, max_size=4)
PASSAGES = st.lists(SENTENCES.map(". ".join), max_size=6)


@given(st.lists(texts_of("a b x", 0, 4) | texts_of("a b b", 11, 16), max_size=4), PASSAGES)
def test_against_the_slow_rule(evaluation: list[str], passages: list[str]) -> None:
    assert dropped(evaluation, passages) == slow_dropped(evaluation, passages)


WORDS = ("a", "B", "ΣΑΣ", "İç", "é", "東", "京", "𠀀", "𝒳1", "ई", "7")
GAPS = (
    " ",
    " ",
    " ",
    ". ",
    ".",
    "! ",
    '?" ',
    "…) ",
    "。",
    "，",
    "\n",
    "\r\n",
    "\u2028",
    ".\u00a0",
    " — ",
    ", ",
    "؟ ",
    "-",
)


@st.composite
def texts_and_a_passage(draw: st.DrawFn) -> tuple[list[str], str]:
    def some_text(most_words: int) -> str:
        pieces = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(GAPS)), max_size=most_words)
        return "".join(chain.from_iterable(draw(pieces)))

    evaluation = [some_text(18) for _ in range(draw(st.integers(1, 3)))]
    planted = [draw(st.sampled_from(evaluation)) for _ in range(draw(st.integers(0, 2)))]
    parts = draw(st.permutations([*planted, some_text(6), some_text(30)]))
    return evaluation, "".join(chain.from_iterable((part, draw(st.sampled_from(GAPS))) for part in parts))


@given(texts_and_a_passage())
def test_planted_texts_in_any_script(case: tuple[list[str], str]) -> None:
    evaluation, passage = case
    forms = [form for text in evaluation for form in spellings(text)]
    assert dropped(evaluation, [passage]) == slow_dropped([*evaluation, *forms], [passage])


@given(st.lists(texts_and_a_passage(), min_size=1, max_size=4))
def test_the_scan_of_the_corpus_suspects_the_same(cases: list[tuple[list[str], str]]) -> None:
    contamination_filter = ContaminationFilter.of([text for evaluation, _ in cases for text in evaluation])
    passages = [passage for _, passage in cases]
    scanned = Scanner(Terms([]), contamination_filter.table).scan(passages)
    assert scanned.suspects.tolist() == [is_suspect(contamination_filter, passage) for passage in passages]


LONG = " ".join(f"w{number}" for number in range(20))


def test_thirteen_words_in_a_row_and_not_twelve() -> None:
    words = LONG.split()
    passages = [
        f"before {' '.join(words[3:16])} after",
        f"before {' '.join(words[3:15])} after",
        " ".join([*words[3:9], "other", *words[9:16]]),
        LONG.upper().replace(" ", ", "),
    ]
    assert dropped([LONG], passages) == {0, 3}
    contamination_filter = ContaminationFilter.of([LONG])
    assert [is_suspect(contamination_filter, passage) for passage in passages] == [True, False, False, True]


@pytest.mark.parametrize("before", range(9))
@pytest.mark.parametrize("after", range(3))
def test_a_run_at_any_place(before: int, after: int) -> None:
    run = " ".join(LONG.split()[:RUN])
    assert dropped([LONG], [f"{'x ' * before}{run}{' y' * after}"]) == {0}


@pytest.mark.parametrize("border", range(1, RUN))
def test_a_text_over_two_passages_is_in_neither(border: int) -> None:
    words = LONG.split()[:RUN]
    assert dropped([" ".join(words)], [" ".join(words[:border]), "", " ".join(words[border:])]) == set()
    assert dropped(["one two"], ["zero one", "two three"]) == set()


def test_a_run_does_not_go_on_from_one_text_to_the_next() -> None:
    first, second = " ".join(LONG.split()[:15]), " ".join(LONG.split()[:13]).replace("w", "v")
    joined = " ".join([*first.split()[5:], *second.split()[:10]])
    assert dropped([first, second], [joined, second]) == {1}


def test_a_word_the_corpus_lacks_hides_only_the_runs_that_hold_it() -> None:
    evaluation = f"{LONG} unheard {LONG.replace('w', 'v')}"
    assert dropped([evaluation], [LONG, "x", f"v0 w0 {LONG}"]) == {0, 2}
    assert dropped([f"unheard {' '.join(LONG.split()[:12])}"], [LONG]) == set()
    assert dropped(["unheard words"], ["words"]) == set()


@pytest.mark.parametrize(
    ("passage", "evaluation"),
    [
        ("Great film.", "great film"),
        ("I saw it. Great film! I left.", "Great film."),
        ('He said: "It was fine." Great film? (Yes.) No.', "Great film"),
        ("A list\nGreat film\nof lines", "great film"),
        ("A list\r\nGreat film\u2028of lines", "great film"),
        ("I saw it. Great film. Loved it. The end.", "Great film. Loved it."),
        ("Hello. Ask Dr. Smith about it. Bye.", "Ask Dr. Smith about it."),
        ("一つ目。二つ目。三つ目", "二つ目"),
        ("यह एक है। अच्छी फ़िल्म। समाप्त", "अच्छी फ़िल्म"),
    ],
)
def test_short_texts_as_whole_sentences(passage: str, evaluation: str) -> None:
    assert dropped([evaluation], ["something else", passage]) == {1}


@pytest.mark.parametrize(
    "passage",
    ["A great film it was.", "Great film, that.", "It was a great film.", "Great. Very. Film.", "Film great."],
)
def test_short_texts_inside_a_sentence_do_not_count(passage: str) -> None:
    assert dropped(["great film"], [passage]) == set()


def test_thirteen_ideographs_are_thirteen_words() -> None:
    text = "機械学習は人工知能の研究課題の一つである。"
    assert dropped([text], [f"その{text}", text[:8], f"前{text[3:16]}後"]) == {0, 2}


@pytest.mark.parametrize(
    ("evaluation", "passage"),
    [
        ("It does n't work and I ca n't say why .", "It doesn't work and I can't say why."),
        ("It doesn't work and I can’t say why.", "It does n't work and I ca n't say why ."),
        ("We can not tell", "We cannot tell."),
        ("A model -LRB- of words -RRB- is used", "A model (of words) is used."),
        ("It held (p &lt; 5) here", "It held (p < 5) here"),
        ("The ﬁrst ﬁlm", "The first film"),
        (f"a b c do n't {LONG[:30]}", f"A b c don't {LONG[:30]}"),
    ],
)
def test_copies_that_are_spelled_otherwise(evaluation: str, passage: str) -> None:
    assert not holds(passage, evaluation)
    assert dropped([evaluation], [passage]) == {0}


@pytest.mark.parametrize(
    ("evaluation", "passages"), [([], []), ([], ["a b"]), (["a b"], []), (["", "?!"], ["", "a"]), (["a"], ["", "..."])]
)
def test_nothing_to_filter_or_nothing_to_read(evaluation: list[str], passages: list[str]) -> None:
    assert dropped(evaluation, passages) == set()


def test_an_empty_filter_suspects_nothing() -> None:
    contamination_filter = ContaminationFilter.of(["", "?!"])
    assert not is_suspect(contamination_filter, f"{LONG}. {LONG}")
    assert not is_suspect(contamination_filter, "")


@given(st.lists(texts_of("a b", 0, 20), max_size=5))
def test_equal_runs_are_held_once(evaluation: list[str]) -> None:
    texts = [text.split() for text in evaluation]
    runs = {tuple(text[start : start + RUN]) for text in texts for start in range(len(text) - RUN + 1)}
    assert len(ContaminationFilter.of(evaluation).table.runs) == len(runs)


@pytest.mark.parametrize("place", [None, 0, 6, RUN - 1, RUN])
def test_runs_with_equal_hashes_are_repeats_only_if_their_words_are(place: int | None) -> None:
    words = LONG.split()
    changed = [word if number != place else f"{word}x" for number, word in enumerate(words)]
    other = " ".join(changed if place != RUN else words[:RUN])
    starts = np.uint64(0), np.uint64(len(LONG) + 1)
    assert _same_run(join_texts([LONG, other]), *starts) == (place in (None, RUN))


def test_equal_hashes_of_other_words_do_not_confirm() -> None:
    one, other = (" ".join(LONG.replace("w", letter).split()[:RUN]) for letter in "uv")
    key = ContaminationFilter.of([one]).table.runs[0] >> np.uint64(32) << np.uint64(32)
    arrays = ContaminationFilter.of([other, one]).arrays()
    start_of_one = len(other) + 1 if arrays["long_texts"].tobytes().startswith(other.encode()) else 0
    start_of_other = len(one) + 1 - start_of_one
    collides = {**arrays, "runs": np.asarray([key | np.uint64(start_of_other)])}
    assert not ContaminationFilter.from_arrays(collides).confirm(one)
    both = sorted([key | np.uint64(start_of_other), key | np.uint64(start_of_one)])
    assert ContaminationFilter.from_arrays({**arrays, "runs": np.asarray(both)}).confirm(one)


def test_a_filter_travels_as_arrays(tmp_path: Path) -> None:
    contamination_filter = ContaminationFilter.of(["great film", "東京", LONG])
    np.savez(tmp_path / "filter.npz", **contamination_filter.arrays())
    with np.load(tmp_path / "filter.npz") as arrays:
        again = ContaminationFilter.from_arrays(arrays)
    passages = ["Great film.", f"x {LONG}", "東京。", "other"]
    assert [again.confirm(passage) for passage in passages] == [True, True, True, False]
    assert [is_suspect(again, passage) for passage in passages] == [True, True, True, False]
    assert all(np.array_equal(array, contamination_filter.arrays()[name]) for name, array in again.arrays().items())
