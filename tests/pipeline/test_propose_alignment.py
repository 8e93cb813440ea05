"""What `endtask init --align` proposes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endtask.config import load_settings
from endtask.pipeline.propose_alignment import propose
from endtask.records import Example
from endtask.task import Task

LINKED = {"text": "The green river and the stone.", "links": [[4, 15]]}


def make_task(rows: list[Example], kind: str = "text") -> Task:
    return Task.from_examples("toy", {"train": rows, "dev": rows, "test": rows}, task_type=kind)


def write(folder: Path, row: dict[str, Any]) -> list[dict[str, str]]:
    path = folder / "corpus.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return [{"path": str(path)}]


def tagged(*tags: str) -> Task:
    words = tuple(f"word{number}" for number in range(len(tags)))
    return make_task([Example(str(n), " ".join(words), tags, tokens=words) for n in range(3)], "token_classification")


def single(text: str) -> Task:
    return make_task([Example(str(number), text, "ab"[number % 2]) for number in range(4)])


def pair(first: str, second: str) -> Task:
    return make_task([Example(str(n), first, "ab"[n % 2], text_pair=second) for n in range(4)], "pair")


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        (tagged("O", "B-x", "I-x"), {"recipe": "spans", "span_labels": "bio", "spans_from": "markup"}),
        (tagged("start", "none", "end"), {"recipe": "spans", "span_labels": "boundaries"}),
        (pair("WHO", "the world health organization met"), {"recipe": "pair_match", "pairs_from": "acronyms"}),
        (pair("a green river", "words " * 30), {"recipe": "pair_match", "pairs_from": "title"}),
        (pair("one two three four", "five six seven"), {"recipe": "pair_match", "pairs_from": "next_sentence"}),
        (single("the [[ cat ]] saw << dogs >>"), {"recipe": "marked_relation", "spans_from": "markup"}),
        (single("just some words"), {"recipe": "pair_match", "pairs_from": "next_sentence"}),
    ],
)
def test_the_recipe_follows_the_task(task: Task, wanted: dict[str, str], tmp_path: Path) -> None:
    proposal = propose(task, write(tmp_path, LINKED))
    assert {key: proposal.settings[f"aligned.{key}"] for key in wanted} == wanted
    assert proposal.reason


@pytest.mark.parametrize(
    ("letters", "spelled"),
    [("WHO", True), ("DMARDs", True), ("ATPase", False), ("who", False), ("123", False)],
)
def test_acronyms_in_capitals_are_spelled(letters: str, spelled: bool, tmp_path: Path) -> None:
    proposal = propose(pair(letters, "the world health organization met"), write(tmp_path, LINKED))
    assert proposal.settings.get("tokenizer.spell_capitals", False) == spelled


@pytest.mark.parametrize("row", [{"text": "no links here"}, {"text": "other links", "links": ["http://a.b"]}])
def test_without_links_words_in_capitals_are_taken(row: dict[str, Any], tmp_path: Path) -> None:
    proposal = propose(tagged("O", "B"), write(tmp_path, row))
    assert proposal.settings["aligned.spans_from"] == "title_case"


def test_init_writes_a_proposal_that_load_accepts(tmp_path: Path, toy: Path, command: Any) -> None:
    corpus, path = write(tmp_path, LINKED)[0]["path"], tmp_path / "my.yaml"
    answer = command("init", path, "--task", toy / "task", "--corpus", corpus, "--align")
    assert answer.code == 0
    assert "aligned objective: one class for a text" in answer.out
    settings = load_settings(path)
    assert settings.reads_aligned
    assert settings.aligned.sources[0].path == corpus
    assert list(settings.pretrain.used_objectives) == ["aligned", "corpus", "task"]


def test_align_needs_a_task_and_a_corpus(tmp_path: Path, command: Any) -> None:
    answer = command("init", tmp_path / "my.yaml", "--align")
    assert answer.code == 2
    assert "--task" in answer.err
    assert not (tmp_path / "my.yaml").exists()
