"""Words, weights and matched queries, on hand-made runs with scores of bm25s."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path

import bm25s
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.run_layout import QUERIES, QUERY_WORDS, RETRIEVED, SELECTION
from endtask.io.selection_table import read_selection, write_selection
from endtask.io.stage_files import MANIFEST
from endtask.records import Document, Example, Selected
from endtask.retrieval.provenance import Bm25Scorer, QueryWord, WhyPassage, why_example, why_passage
from endtask.retrieval.words import words_of
from tests.hand_made_run import write_run

DOCUMENTS = [
    Document("pile/a", "Salt and pepper, salt and bread.", "pile", "Kitchen", "CC0-1.0"),
    Document("pile/b", "The rocket left the moon. A rocket!", "pile"),
    Document("pile/c", "Bread of Zürich, with the salt of the sea and 東京 rice", "pile"),
    Document("pile/d", "Nobody ever looks for this", "pile"),
    Document("pile/e", "the the the moon", "pile"),
]
EXAMPLES = [
    Example("train-0", "Salt the BREAD, salt!", "food"),
    Example("train-1", "salt the bread salt", "kitchen"),
    Example("train-2", "rocket to the moon", "space"),
    Example("train-3", "zürich 東京", "food"),
    Example("train-4", "?!", "space"),
    Example("train-5", "quark gluon", "space"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("why") / "run", DOCUMENTS, EXAMPLES, selected={0, 1, 2})


def retrieved(run: Path) -> dict[str, Selected]:
    return {item.document.id: item for item in read_selection(run / "retrieve" / RETRIEVED)}


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "run"))


def query_ids(found: WhyPassage) -> list[list[str]]:
    return [[example.id for example in matched_query.examples] for matched_query in found.explained_queries]


def test_a_kept_passage(run: Path) -> None:
    found = why_passage(run, "pile/a")
    assert (found.id, found.source, found.title, found.license) == ("pile/a", "pile", "Kitchen", "CC0-1.0")
    assert found.text == DOCUMENTS[0].text
    assert found.selected
    assert (found.rank, found.matched_count, found.matched_queries) == (1, 2, ("train-0", "train-1"))
    (matched_query,) = found.explained_queries
    assert [(one.id, one.text, one.label) for one in matched_query.examples] == [
        ("train-0", "Salt the BREAD, salt!", "food"),
        ("train-1", "salt the bread salt", "kitchen"),
    ]
    assert [(one.word, one.in_query, one.in_passage) for one in matched_query.words] == [
        ("salt", 2, 2),
        ("bread", 1, 1),
    ]


def test_a_passage_that_was_retrieved_only(run: Path) -> None:
    found = why_passage(run, "pile/e")
    assert not found.selected
    assert found.matched_queries == ("train-2", "train-0", "train-1")
    assert query_ids(found) == [["train-2"], ["train-0", "train-1"]], "equal texts ask together"
    assert query_ids(why_passage(run, "pile/e", top=1)) == [["train-2"]]


def test_the_parts_sum_to_the_score_in_the_table(run: Path) -> None:
    rows = retrieved(run)
    assert len(rows) == 4
    for passage_id, row in rows.items():
        best = why_passage(run, passage_id).explained_queries[0]
        assert best.score == pytest.approx(row.score, rel=1e-5)
        assert math.fsum(one.score for one in best.words) == pytest.approx(row.score, rel=1e-5)
        parts = [one.score for one in best.words]
        assert parts == sorted(parts, reverse=True)


def test_the_same_on_a_larger_random_run(tmp_path: Path) -> None:
    chance = random.Random(5)
    words = [f"w{number}" for number in range(40)]
    texts = [" ".join(chance.choices(words, k=chance.randint(1, 30))) for _ in range(60)]
    documents = [Document(f"pile/{number}", text, "pile") for number, text in enumerate(texts)]
    asking = [" ".join(chance.choices(words, k=chance.randint(1, 9))) for _ in range(30)]
    examples = [Example(f"train-{number}", text, "x") for number, text in enumerate(asking)]
    run = write_run(tmp_path / "run", documents, examples, selected=range(60))
    for passage_id, row in retrieved(run).items():
        found = why_passage(run, passage_id, top=20)
        assert found.explained_queries[0].score == pytest.approx(row.score, rel=1e-5)
        assert [one for ids in query_ids(found) for one in ids] == list(row.matched_queries)
    for example in examples:
        about = why_example(run, example.id, top=100)
        asked = {passage_id for passage_id, row in retrieved(run).items() if example.id in row.matched_queries}
        assert {passage.id for passage in about.passages} == asked
        scores = [passage.score for passage in about.passages]
        assert scores == sorted(scores, reverse=True)


_TEXT = st.lists(st.sampled_from(["salt", "Bread", "sea", "ß", "東", "the"]), max_size=8).map(" ".join)


@settings(max_examples=20)
@given(
    texts=st.lists(_TEXT, min_size=1, max_size=6).filter(any),
    asking=_TEXT,
    k1=st.floats(0.1, 3),
    b=st.floats(0, 1),
)
def test_parts_sum_to_what_bm25s_says(texts: list[str], asking: str, k1: float, b: float) -> None:
    passages = [words_of(text) for text in texts]
    frequency = {word: sum(word in passage for passage in passages) for word in set(words_of(asking))}
    scorer = Bm25Scorer(len(texts), sum(map(len, passages)) / len(texts), k1, b)
    query = [
        QueryWord(word, words_of(asking).count(word), number, scorer.idf(number))
        for word, number in frequency.items()
        if number
    ]
    oracle = bm25s.BM25(method="lucene", k1=k1, b=b)
    oracle.index(passages, show_progress=False)
    known = [word for word in words_of(asking) if frequency[word]]
    expected = oracle.get_scores(known).tolist() if known else [0.0] * len(texts)
    for text, score in zip(texts, expected, strict=True):
        assert math.fsum(one.score for one in scorer.word_scores(query, text)) == pytest.approx(score, rel=1e-5)


def test_an_example(run: Path) -> None:
    found = why_example(run, "train-1")
    assert (found.example.text, found.example.label) == ("salt the bread salt", "kitchen")
    assert [(one.word, one.in_query, one.document_frequency) for one in found.words] == [
        ("bread", 1, 2),
        ("salt", 2, 2),
        ("the", 1, 3),
    ]
    assert found.words[0].idf == pytest.approx(math.log(1 + 3.5 / 2.5))
    assert found.unknown_words == ()
    # All but pile/d share a word; pile/e is not kept.
    assert [passage.id for passage in found.passages] == ["pile/a", "pile/c", "pile/b"]
    assert (found.retrieved_count, found.selected_count) == (4, 3)
    assert found.passages[0].score == pytest.approx(retrieved(run)["pile/a"].score, rel=1e-5)
    assert [one.word for one in found.passages[2].words] == ["the"]
    assert (found.passages[0].title, found.passages[0].license) == ("Kitchen", "CC0-1.0")


def test_an_example_shows_the_best_and_counts_all(run: Path) -> None:
    found = why_example(run, "train-0", top=1)
    assert [passage.id for passage in found.passages] == ["pile/a"]
    assert (found.retrieved_count, found.selected_count) == (4, 3)


def test_an_example_is_found_where_only_its_twin_is_on_record(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", DOCUMENTS, EXAMPLES, selected={0}, queries_stored=1)
    assert why_passage(run, "pile/a").matched_queries == ("train-0",)
    assert [passage.id for passage in why_example(run, "train-1").passages] == ["pile/a"]


def test_words_that_no_passage_holds(run: Path) -> None:
    found = why_example(run, "train-2")
    assert found.unknown_words == ("to",)
    nothing = why_example(run, "train-5")
    assert (nothing.words, nothing.unknown_words, nothing.passages) == ((), ("quark", "gluon"), ())


def test_an_example_without_a_word_asked_nothing(run: Path) -> None:
    found = why_example(run, "train-4")
    assert found.example.text == "?!"
    assert (found.words, found.retrieved_count, found.selected_count) == ((), 0, 0)


def test_a_text_pair_is_shown_whole(run: Path, tmp_path: Path) -> None:
    own = copied(run, tmp_path)
    row = {"id": "train-3", "text": "zürich", "text_pair": "東京", "label": "food"}
    (own / "read" / "train.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert why_example(own, "train-3").example.text == "zürich 東京"


def test_a_drawn_passage_that_nobody_asked_for(run: Path, tmp_path: Path) -> None:
    own = copied(run, tmp_path)
    drawn = [Selected(DOCUMENTS[number], number, 0, 0.0, 0, (), "random: drawn") for number in (3, 4)]
    write_selection(own / "select" / SELECTION, drawn)
    found = why_passage(own, "pile/d")
    assert (found.selected, found.reason, found.matched_queries, found.explained_queries) == (
        True,
        "random: drawn",
        (),
        (),
    )
    also_asked = why_passage(own, "pile/e")
    assert (also_asked.selected, also_asked.reason, also_asked.rank) == (True, "random: drawn", 2)
    assert query_ids(also_asked)[0] == ["train-2"]
    assert [passage.id for passage in why_example(own, "train-2").passages] == ["pile/e"]


def test_an_unknown_passage(run: Path) -> None:
    with pytest.raises(InputError, match=r"'pile/d' was not retrieved \(nearest: 'pile/.'\)"):
        why_passage(run, "pile/d")
    with pytest.raises(InputError, match=r"'pil/b' was not retrieved \(nearest: 'pile/b'\)"):
        why_passage(run, "pil/b")


def test_a_run_that_retrieved_nothing(run: Path, tmp_path: Path) -> None:
    own = copied(run, tmp_path)
    for table in (own / "retrieve" / RETRIEVED, own / "select" / SELECTION):
        write_selection(table, [])
    for name in (QUERIES, QUERY_WORDS):
        (own / "retrieve" / name).unlink()
    (own / "retrieve" / MANIFEST).write_text(
        json.dumps({"fingerprint": "", "status": "finished", "counts": {"passages": 0}})
    )
    with pytest.raises(InputError, match=r"'pile/a' was not retrieved \(this run retrieved nothing\)"):
        why_passage(own, "pile/a")
    with pytest.raises(InputError, match="this run retrieved nothing"):
        why_example(own, "train-0")


def test_an_unknown_example(run: Path) -> None:
    with pytest.raises(InputError, match=r"no train example 'trian-3' \(nearest: 'train-3'\)"):
        why_example(run, "trian-3")
    with pytest.raises(InputError, match=r"'dev-0' is a dev example \(only train texts are queries\)"):
        why_example(run, "dev-0")


@pytest.mark.parametrize("stage", ["read", "retrieve", "select"])
def test_a_stage_that_has_not_finished(run: Path, tmp_path: Path, stage: str) -> None:
    own = copied(run, tmp_path)
    (own / stage / MANIFEST).unlink()
    with pytest.raises(InputError, match=f"the stage {stage} has not finished .*--until select"):
        why_passage(own, "pile/a")


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run here"):
        why_example(tmp_path, "train-0")


def test_a_run_of_an_older_version(run: Path, tmp_path: Path) -> None:
    own = copied(run, tmp_path)
    (own / "retrieve" / MANIFEST).write_text(
        json.dumps({"fingerprint": "", "status": "finished", "counts": {"passages": 4}})
    )
    with pytest.raises(InputError, match=r"did not record 'passages_scored' .*--from retrieve"):
        why_passage(own, "pile/a")


@pytest.mark.parametrize("name", [QUERIES, QUERY_WORDS])
def test_a_table_that_is_missing(run: Path, tmp_path: Path, name: str) -> None:
    own = copied(run, tmp_path)
    (own / "retrieve" / name).unlink()
    with pytest.raises(InputError, match=f"{name}: no such file"):
        why_passage(own, "pile/a")
