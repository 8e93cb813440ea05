"""`endtask why`: its output for a passage and for an example."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

import endtask
from endtask.cli import why
from endtask.io.run_layout import RETRIEVED, SELECTION
from endtask.io.selection_table import read_selection
from endtask.records import Document, Example
from endtask.retrieval.provenance import QueryWord
from tests.conftest import Answer
from tests.hand_made_run import write_run
from tests.toy_run import toy_settings

Command = Callable[..., Answer]
ON_RECORD = "passages with this example among their 20 best queries"
LETTERS = [f"letter{number}" for number in range(20)]
DOCUMENTS = [
    Document("pile/a", "Salt and pepper, salt and bread.", "pile", "Kitchen", "CC0-1.0"),
    Document("pile/b", "The rocket left \x1b[31m the \u202emoon.\nA \x9brocket! " + "away " * 300, "pile"),
    Document("pile/c", " ".join(LETTERS), "pile"),
    Document("pile/d", "a pan", "pile"),
]
EXAMPLES = [
    Example("train-0", "Salt the bread, salt!", "food"),
    Example("train-1", "rocket to the \x1b]0;title\x07 moon", "space"),
    Example("train-2", " ".join(LETTERS), "food"),
    Example("train-3", "quark", "space"),
    Example("train-4", "bread in a pan", "food"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("why") / "run", DOCUMENTS, EXAMPLES, selected={0, 1, 2})


def lines_of(answer: Answer) -> list[str]:
    """The lines of an answer that went well and holds nothing that commands a terminal."""
    assert answer.code == 0, answer
    assert answer.err == ""
    assert {unicodedata.category(one) for one in answer.out if one != "\n"}.isdisjoint({"Cc", "Cf", "Cs"})
    return answer.out.splitlines()


def table_of(lines: list[str]) -> dict[str, list[str]]:
    """The columns of each word in the first table of an answer."""
    start = next(number for number, line in enumerate(lines) if line.endswith("  word"))
    rows = [line.split() for line in lines[start + 1 :]]
    end = next((number for number, row in enumerate(rows) if not row or "more" in row), len(rows))
    return {row[-1]: row[:-1] for row in rows[:end]}


def test_a_passage(run: Path, command: Command) -> None:
    lines = lines_of(command("why", run, "pile/a"))
    score = next(read_selection(run / "retrieve" / RETRIEVED)).score
    assert lines[:6] == [
        "pile/a: selected (best_rank)",
        "source: pile; title: Kitchen; license: CC0-1.0",
        f"best rank 1, score {score:.4f}; matched by 2 examples, best first: train-0, train-4",
        "text: Salt and pepper, salt and bread.",
        "",
        f"1. train-0 [food]: score {score:.4f}",
    ]
    assert lines[6].strip() == "Salt the bread, salt!"
    table = table_of(lines)
    assert list(table) == ["salt", "bread"]
    assert sum(float(columns[0]) for columns in table.values()) == pytest.approx(score, abs=2e-4)
    assert sum(float(columns[1].rstrip("%")) for columns in table.values()) == pytest.approx(100, abs=0.2)
    assert table["salt"][3:] == ["2", "2"]
    assert any(line.startswith("2. train-4 [food]: score ") for line in lines)
    assert not any(line.startswith("2. ") for line in lines_of(command("why", run, "pile/a", "--top", 1)))


def test_a_passage_that_was_not_kept(run: Path, command: Command) -> None:
    lines = lines_of(command("why", run, "pile/d"))
    assert lines[0] == "pile/d: retrieved but not selected (best_rank)"
    assert lines[1] == "source: pile; license: unknown"
    assert "; matched by 1 example, best first: train-4" in lines[2]


def test_texts_are_shortened_and_command_nothing(run: Path, command: Command) -> None:
    lines = lines_of(command("why", run, "pile/b"))
    text = next(line for line in lines if line.startswith("text: "))
    assert text.startswith("text: The rocket left [31m the moon. A rocket! away")
    assert text.endswith("…")
    assert len(text) < 650
    assert "   rocket to the ]0;title moon" in lines


def test_long_tables_end_in_a_sum(run: Path, command: Command) -> None:
    lines = lines_of(command("why", run, "pile/c"))
    assert lines[-1].endswith("of 5 more words")
    assert len(table_of(lines)) == 15
    shares = [float(line.split()[1].rstrip("%")) for line in lines if "%" in line]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_an_example(run: Path, command: Command) -> None:
    lines = lines_of(command("why", run, "--example", "train-0"))
    assert lines[:2] == ["train-0 [food]", "text: Salt the bread, salt!"]
    table = table_of(lines)
    assert {word: columns[1:] for word, columns in table.items()} == {
        "salt": ["1", "2"],
        "the": ["1", "1"],
        "bread": ["1", "1"],
    }
    assert f"{ON_RECORD}: 2 retrieved, 2 selected" in lines
    first = next(number for number, line in enumerate(lines) if line.startswith("1. "))
    assert lines[first].startswith("1. pile/a: score ")
    assert lines[first + 2] == "   Salt and pepper, salt and bread."
    assert lines[first + 3].startswith("   words: salt ")
    assert lines[first + 4].startswith("2. pile/b: score ")


def test_an_example_with_words_unknown_to_the_corpus(run: Path, command: Command) -> None:
    assert "in no passage: to, 0, title" in lines_of(command("why", run, "--example", "train-1"))
    assert lines_of(command("why", run, "--example", "train-3")) == [
        "train-3 [space]",
        "text: quark",
        "matches nothing: no word of it occurs in the corpus",
    ]


def test_an_example_with_many_words(run: Path, command: Command) -> None:
    lines = lines_of(command("why", run, "--example", "train-2"))
    assert any(line.strip() == "and 5 more words" for line in lines)
    assert lines[-1].endswith(", 12 more")
    assert f"{ON_RECORD}: 1 retrieved, 1 selected" in lines


def test_json(run: Path, command: Command) -> None:
    answer = command("why", run, "pile/b", "--json")
    assert answer.out.isascii()
    assert "\x1b" not in answer.out
    found = json.loads(answer.out)
    assert found["text"] == DOCUMENTS[1].text
    assert (found["selected"], found["rank"], found["matched_count"]) == (True, 1, 3)
    best = found["explained_queries"][0]
    assert best["examples"] == [{"id": "train-1", "text": EXAMPLES[1].text, "label": "space"}]
    assert sum(one["score"] for one in best["words"]) == pytest.approx(found["score"], rel=1e-5)
    assert {one["word"] for one in best["words"]} == {"rocket", "the", "moon"}
    example = json.loads(command("why", run, "--example", "train-0", "--json", "--top", 1).out)
    assert [passage["id"] for passage in example["passages"]] == ["pile/a"]
    assert (example["retrieved_count"], example["selected_count"]) == (2, 2)
    assert example["words"][0].keys() == {"word", "in_query", "document_frequency", "idf"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pile/x"], "'pile/x' was not retrieved (nearest: 'pile/"),
        (["pi\x1ble/a"], r"'pi\x1ble/a' was not retrieved (nearest: 'pile/a')"),
        (["--example", "tarin-1"], "no train example 'tarin-1' (nearest: 'train-1')"),
        (["--example", "dev-0"], "'dev-0' is a dev example (only train texts are queries)"),
        ([], "give exactly one of the id of a passage, --example ID and --class NAME"),
        (["pile/a", "--example", "train-0"], "give exactly one of the id of a passage, --example ID and --class NAME"),
    ],
)
def test_a_mistake_is_one_line(run: Path, command: Command, words: list[str], said: str) -> None:
    answer = command("why", run, *words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("endtask: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err


def test_no_run_here(tmp_path: Path, command: Command) -> None:
    answer = command("why", tmp_path, "pile/a")
    assert answer.code == 2
    assert answer.err.startswith(f"endtask: {tmp_path}: no run here (")


def test_all_that_retrieve_found_is_explained(toy: Path, tmp_path: Path, command: Command) -> None:
    run = endtask.run(toy_settings(toy, tmp_path / "run"), until="select").folder
    found = list(read_selection(run / "retrieve" / RETRIEVED))
    kept = {item.document.id for item in read_selection(run / "select" / SELECTION)}
    assert 0 < len(kept) < len(found)
    for item in found[::7]:
        passage = json.loads(command("why", run, item.document.id, "--json").out)
        assert (passage["selected"], passage["rank"]) == (item.document.id in kept, item.rank)
        assert passage["explained_queries"][0]["examples"][0]["id"] == item.matched_queries[0]
        assert passage["explained_queries"][0]["score"] == pytest.approx(item.score, rel=1e-5)
    matched_query = found[0].matched_queries[0]
    example = json.loads(command("why", run, "--example", matched_query, "--json").out)
    asked = {item.document.id for item in found if matched_query in item.matched_queries}
    assert example["retrieved_count"] == len(asked)
    assert {passage["id"] for passage in example["passages"]} == asked & kept
    assert lines_of(command("why", run, "--example", matched_query))[0].startswith(matched_query)


def test_one_more_word_is_one_word() -> None:
    words = tuple(QueryWord(f"word{n}", 1, 1, 1.0) for n in range(16))
    assert list(why._query_lines(words))[-1].strip() == "and 1 more word"
