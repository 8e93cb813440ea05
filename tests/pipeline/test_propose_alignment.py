"""The proposals of `endtask init --align`."""

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
        (tagged("O", "B-x", "I-x"), {"kind": "hyperlinks", "span_labels": "bio"}),
        (tagged("start", "none", "end"), {"kind": "hyperlinks", "span_labels": "boundaries"}),
        (pair("WHO", "the world health organization met"), {"kind": "acronyms"}),
        (pair("one two three four", "five six seven"), {"kind": "next_sentence"}),
        (single("just some words"), {"kind": "next_sentence"}),
    ],
)
def test_the_objective_follows_the_task(task: Task, wanted: dict[str, str], tmp_path: Path) -> None:
    proposal = propose(task, write(tmp_path, LINKED))
    assert proposal.settings["pretrain.objectives"]["aligned"] == wanted
    assert proposal.reason


@pytest.mark.parametrize(
    ("letters", "spelled"),
    [("WHO", True), ("DMARDs", True), ("ATPase", False), ("who", False), ("123", False)],
)
def test_acronyms_in_capitals_are_spelled(letters: str, spelled: bool, tmp_path: Path) -> None:
    proposal = propose(pair(letters, "the world health organization met"), write(tmp_path, LINKED))
    assert proposal.settings.get("tokenizer.spell_capitals", False) == spelled


@pytest.mark.parametrize("row", [{"text": "no links here"}, {"text": "other links", "links": ["http://a.b"]}])
def test_without_links_next_sentences_are_taken(row: dict[str, Any], tmp_path: Path) -> None:
    proposal = propose(tagged("O", "B"), write(tmp_path, row))
    assert proposal.settings["pretrain.objectives"]["aligned"] == {"kind": "next_sentence"}


def test_init_writes_a_proposal_that_load_accepts(tmp_path: Path, toy: Path, command: Any) -> None:
    corpus, path = write(tmp_path, LINKED)[0]["path"], tmp_path / "my.yaml"
    answer = command("init", path, "--task", toy / "task", "--corpus", corpus, "--align")
    assert answer.code == 0
    assert "aligned objective: one class for a text" in answer.out
    settings = load_settings(path)
    assert settings.reads_aligned
    assert not any(objective.sees_labels for objective in settings.pretrain.used_objectives.values())
    assert settings.aligned.sources[0].path == corpus
    assert list(settings.pretrain.used_objectives) == ["aligned", "corpus", "task_texts"]


def test_align_needs_a_task_and_a_corpus(tmp_path: Path, command: Any) -> None:
    answer = command("init", tmp_path / "my.yaml", "--align")
    assert answer.code == 2
    assert "--task" in answer.err
    assert not (tmp_path / "my.yaml").exists()
