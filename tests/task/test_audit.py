"""The audit: its counts, its messages, and known facts of published tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.records import Example
from endtask.task import Audit, Task, audit, leaked_ids, normalize
from endtask.task.audit import Overlap


def rows(split: str, *pairs: tuple[str, str]) -> list[Example]:
    return [Example(f"{split}-{number}", text, label) for number, (text, label) in enumerate(pairs, start=1)]


@pytest.fixture
def leaky() -> Task:
    train = rows(
        "train",
        ("a one", "x"),
        ("a one", "x"),
        ("b [[ two ]]", "y"),
        ("b << two >>", "x"),
        ("c", "x"),
        ("c", "y"),
    )
    dev = rows("dev", ("d", "x"), ("C", "y"))
    test = rows("test", ("a one", "x"), ("a one", "y"), ("B two!", "y"), ("new", "x"), ("d", "x"), ("", "x"))
    return Task.from_examples("leaky", {"train": train, "dev": dev, "test": test})


def overlap(found: Audit, earlier: str, later: str) -> Overlap:
    return next(one for one in found.overlaps if (one.earlier, one.later) == (earlier, later))


def test_counts_inside_splits(leaky: Task) -> None:
    found = audit(leaky)
    train, test = found.splits["train"], found.splits["test"]
    assert (train.rows, train.labels) == (6, {"x": 4, "y": 2})
    assert (train.exact_duplicates, train.normalized_duplicates) == (2, 3)
    assert (train.conflicting, train.conflicting_ids) == (2, ("train-5", "train-6"))
    assert (test.rows, test.empty_dropped, test.conflicting) == (5, 1, 2)
    assert (train.words.minimum, train.words.median, train.words.maximum) == (1, 2, 4)


@pytest.mark.parametrize(("label", "told"), [("x", "so its test score is a little too high"), ("y", "no advantage")])
def test_texts_of_dev_in_test_are_an_advantage_with_the_same_label_alone(label: str, told: str) -> None:
    train = rows("train", ("one", "x"), ("two", "y"))
    splits = {"train": train, "dev": rows("dev", ("three", label)), "test": rows("test", ("three", "x"), ("four", "y"))}
    messages = [problem.message for problem in audit(Task.from_examples("shared", splits)).problems]
    (found,) = [message for message in messages if "are verbatim in dev" in message]
    assert told in found


def test_counts_across_splits(leaky: Task) -> None:
    found = audit(leaky)
    in_train = overlap(found, "train", "test")
    assert (in_train.exact, in_train.exact_same_label) == (2, 1)
    assert (in_train.normalized, in_train.normalized_same_label, in_train.leak_free) == (3, 2, 2)
    assert in_train.ids == ("test-1", "test-2")
    assert overlap(found, "train", "dev").normalized == 1
    assert overlap(found, "dev", "test").exact == 1
    assert leaked_ids(leaky) == {"test-1", "test-2", "test-3"}
    assert leaked_ids(leaky, "dev") == {"dev-2"}


def test_findings_say_what_they_mean(leaky: Task) -> None:
    found = audit(leaky)
    said = "\n".join(found.lines())
    assert "warning: 2 of 5 test rows (40%) are verbatim in train, 1 of them with the same label, and 1 more" in said
    assert "trust the leak-free score (2 rows)" in said
    assert "test rows that are in train with another label only: 1" in said
    assert "1 test row without text dropped" in said
    assert said.startswith("task leaky: type text, 2 classes\n")
    levels = [problem.level for problem in found.problems]
    assert levels == sorted(levels, reverse=True)


def test_test_split_inside_train_is_an_error() -> None:
    train = rows("train", ("a", "x"), ("b", "y"))
    task = Task.from_examples("copied", {"train": train, "dev": rows("dev", ("c", "x")), "test": train[:1]})
    first = audit(task).problems[0]
    assert (first.level, first.split) == ("error", "test")
    assert "says nothing about new texts" in first.message


def test_clean_task_has_only_notes_about_rare_labels() -> None:
    train = rows("train", *((f"text {n}", "xyz"[n % 3]) for n in range(30)))
    dev = rows("dev", ("new a", "x"), ("new b", "y"), ("new c", "z"))
    test = rows("test", ("new d", "x"), ("new e", "y"))
    task = Task.from_examples("clean", {"train": train, "dev": dev, "test": test})
    messages = [str(problem) for problem in audit(task).problems]
    assert messages == ["note: 1 of 3 labels do not occur in test (z): the score says nothing about them"]
    assert leaked_ids(task) == frozenset()


@pytest.mark.parametrize("kind", ["text", "pair"])
def test_a_split_with_a_single_label_is_warned_of(kind: str) -> None:
    pair = "other" if kind == "pair" else None
    splits = {
        split: [Example(f"{split}-{n}", f"{split} {n}", labels[n % len(labels)], pair) for n in range(count)]
        for split, labels, count in (("train", "xyz", 30), ("dev", "x", 4), ("test", "z", 1))
    }
    messages = [str(problem) for problem in audit(Task.from_examples("narrow", splits, task_type=kind)).problems]
    always = "a constant prediction is right, so"
    assert messages == [
        f"warning: all 4 dev rows have the label 'x': {always} dev cannot choose between models",
        f"warning: the only test row has the label 'z': {always} the score says nothing about other labels",
    ]


def test_a_single_tag_or_label_is_no_single_class() -> None:
    tagged = [Example(str(n), f"w{n} v", ("B", "O"), tokens=(f"w{n}", "v")) for n in range(40)]
    outside = [Example("o", "w v", ("O", "O"), tokens=("w", "v"))]
    tags = Task.from_examples(
        "tags", {"train": tagged, "dev": outside, "test": outside[:1]}, task_type="token_classification"
    )
    several = [Example(str(n), f"text {n}", ("x", "y")[: n % 3]) for n in range(40)]
    one = [Example("d", "new", ("x",))]
    labels = Task.from_examples("labels", {"train": several, "dev": one, "test": several[2:3]}, task_type="multilabel")
    for task in (tags, labels):
        assert not [each for each in audit(task).problems if "a model that always answers so" in each.message]


def test_scores_and_tags() -> None:
    scored = [Example(str(n), f"text {n}", n / 10) for n in range(40)]
    found = audit(Task.from_examples("scored", {"train": scored}, task_type="regression"))
    assert found.splits["train"].labels == {}
    assert any(line.startswith("train scores: from 0") for line in found.lines())
    tagged = [Example(str(n), f"w{n} v", ("B", "O"), tokens=(f"w{n}", "v")) for n in range(40)]
    strange = [Example("s", "w", ("Z",), tokens=("w",))]
    task = Task.from_examples(
        "tagged", {"train": tagged, "dev": tagged[:2], "test": strange}, task_type="token_classification"
    )
    found = audit(task)
    assert found.splits["train"].labels == {"B": 40, "O": 40}
    assert any("labels of test that never occur in train: 1 (Z);" in str(problem) for problem in found.problems)


def test_audit_as_json_holds_the_same_figures(leaky: Task) -> None:
    found = audit(leaky)
    tree = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert tree["splits"]["train"]["words"]["maximum"] == 4
    assert tree["overlaps"][1]["leak_free"] == 2
    assert len(tree["problems"]) == len(found.problems)


words = st.lists(st.sampled_from(["a", "A", "b", "[[ a ]]", "!"]), min_size=1, max_size=3).map(" ".join)
labelled = st.lists(st.tuples(words, st.sampled_from("xy")), min_size=1, max_size=15)


@given(labelled, labelled)
def test_overlap_agrees_with_the_slow_way(train: list[tuple[str, str]], test: list[tuple[str, str]]) -> None:
    train = [*train, ("only", "x"), ("only", "y")]
    task = Task.from_examples(
        "t", {"train": rows("train", *train), "dev": rows("dev", ("dev", "x")), "test": rows("test", *test)}
    )
    found = overlap(audit(task), "train", "test")
    assert found.exact == sum(any(text == other for other, _ in train) for text, _ in test)
    assert found.exact_same_label == sum(pair in train for pair in test)
    same = [any((normalize(text) or text) == (normalize(other) or other) for other, _ in train) for text, _ in test]
    assert found.normalized == sum(same) == len(leaked_ids(task))


@pytest.mark.parametrize(
    ("name", "split", "exact", "same", "of"),
    [
        ("citation_intent", "dev", 43, 42, 114),
        ("citation_intent", "test", 52, 47, 139),
        ("chemprot", "test", 4, 4, 3469),
        ("sciie", "test", 0, 0, 974),
    ],
)
def test_known_leaks_of_published_tasks(
    name: str, split: str, exact: int, same: int, of: int, shared_data: Path
) -> None:
    found = overlap(audit(Task.read(shared_data / "tasks" / name)), "train", split)
    assert (found.exact, found.exact_same_label, found.rows) == (exact, same, of)


def test_the_audit_of_acl_arc_counts_copies_and_names_the_leak_free_rows(shared_data: Path) -> None:
    task = Task.read(shared_data / "tasks" / "citation_intent")
    (message,) = [problem.message for problem in audit(task).problems if "52 of 139 test rows (37%)" in problem.message]
    assert "47 of them with the same label" in message
    assert "leak-free score (87 rows)" in message
    assert len(leaked_ids(task)) == 52
