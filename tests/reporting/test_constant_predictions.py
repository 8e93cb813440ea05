"""A model with constant predictions gives a warning, for every task type."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from endtask.io.atomic import write_json
from endtask.reporting.page import verdict, verdict_lines, write_report
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import constant_prediction_note

MakeRun = Callable[..., Path]
APART = "the model has learned nothing that distinguishes them."


def answered(folder: Path, kind: str, truth: Sequence[Any], *answers: Sequence[Any]) -> Path:
    """The run with another kind of task, and with these answers of its seeds."""
    audit = folder / "read" / "audit.json"
    write_json(audit, {**json.loads(audit.read_text(encoding="utf-8")), "type": kind})
    lines = []
    for number, label in enumerate(truth):
        predicted = {str(seed): given[number] for seed, given in enumerate(answers)}
        lines.append(json.dumps({"id": str(number), "label": label, "predicted": predicted}))
    (folder / "evaluate" / "predictions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("kind", "truth", "answers", "said"),
    [
        ("text", ["a", "b"], ["a", "a"], f"Every row of test got the same label, 'a': {APART}"),
        ("pair", ["a", "b"], ["b", "b"], f"Every row of test got the same label, 'b': {APART}"),
        ("text", ["a", "b"], ["b", "a"], None),
        (
            "multilabel",
            [["a"], []],
            [["b", "a"], ["a", "b"]],
            f"Every row of test got the same labels, 'a', 'b': {APART}",
        ),
        ("multilabel", [["a"], []], [[], []], f"Every row of test got the same labels, none: {APART}"),
        ("multilabel", [["a"], []], [["a"], ["a", "b"]], None),
        (
            "token_classification",
            [["B", "O"], ["O"]],
            [["O", "O"], ["O"]],
            f"Every token of test got the same tag, 'O': {APART}",
        ),
        ("token_classification", [["B", "O"], ["B", "O"]], [["B", "O"], ["B", "O"]], None),
        (
            "regression",
            [1.0, 5.0],
            [2.41, 2.44],
            "Every row of test got nearly the same score, about 2.42: the model hardly distinguishes them.",
        ),
        ("regression", [1.0, 5.0], [2.41, 2.46], None),
    ],
)
def test_one_answer_for_all_is_told(make_run: MakeRun, kind: str, truth: Any, answers: Any, said: str | None) -> None:
    assert constant_prediction_note(RunFolder(answered(make_run(), kind, truth, answers))) == said


@pytest.mark.parametrize(
    ("kind", "truth"),
    [("text", ["a", "a"]), ("text", ["a"]), ("token_classification", [["O"], ["O"]]), ("regression", [2.0, 2.0])],
)
def test_rows_that_are_alike_may_be_answered_alike(make_run: MakeRun, kind: str, truth: Any) -> None:
    assert constant_prediction_note(RunFolder(answered(make_run(), kind, truth, truth))) is None


def test_of_several_seeds_it_is_said_how_many(make_run: MakeRun) -> None:
    folder = answered(make_run(), "text", ["a", "b"], ["a", "a"], ["a", "b"], ["b", "b"])
    told = f"With 2 of 3 seeds every row of test got the same label, 'a' or 'b': {APART}"
    assert [line for line in verdict_lines(folder) if not line.startswith("  ")] == [verdict(folder), told]
    assert told in unescape(write_report(folder).read_text(encoding="utf-8"))


def test_a_run_without_its_predictions_or_its_audit_says_nothing(make_run: MakeRun) -> None:
    folder = answered(make_run(), "text", ["a", "b"], ["a", "a"])
    (folder / "read" / "audit.json").unlink()
    assert constant_prediction_note(RunFolder(folder)) is None
    other = answered(make_run(name="other"), "text", ["a", "b"], ["a", "a"])
    (other / "evaluate" / "predictions.jsonl").unlink()
    assert constant_prediction_note(RunFolder(other)) is None
    assert constant_prediction_note(RunFolder(make_run("pretrain", name="unfinished"))) is None
