"""No target is scored by a model that was trained on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.records import Example
from endtask.selectors.influence.config import RECIPES, InfluenceConfig
from endtask.selectors.influence.scoring_model import draw_targets, folds_of
from endtask.task import Task
from endtask.task.split import group_key
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.tokenizer import load_tokenizer
from tests.selectors.influence.small import make_runner, make_task, small_settings


def task_of(rows: list[tuple[int, str]]) -> Task:
    """Rows as variants of sentences: equal but for their marks."""
    train = [
        Example(f"t{n}", f"[[ word{text} ]] and {'<< x >>' * (n % 2)}", label) for n, (text, label) in enumerate(rows)
    ]
    return Task.from_examples(
        "t", {"train": train, "dev": [Example("d", "other", "a")], "test": [Example("e", "z", "a")]}
    )


@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.sampled_from("ab")), min_size=4, max_size=40),
    seed=st.integers(0, 5),
    most=st.sampled_from([None, 1, 7]),
)
def test_halves_are_cut_by_group_and_cover_train(rows: list[tuple[int, str]], seed: int, most: int | None) -> None:
    task = task_of([(n % 13, label) for n, label in [(0, "a"), (1, "b"), *rows]])
    recipe = replace(RECIPES["default"], most_targets=most)
    try:
        with mock.patch.dict(RECIPES, default=recipe):
            folds = folds_of(task, InfluenceConfig(), seed)
    except InputError:  # a class whose rows all belong together
        assume(False)
    for fold in folds:
        fitted = {group_key(row) for row in fold.train}
        assert fitted.isdisjoint(group_key(row) for row in fold.dev)
        assert len(fold.dev) <= (max(1, most // 2, len(task.labels)) if most else len(task.train))
        assert fold.labels == task.labels
    one, other = folds
    assert {row.id for row in one.train} | {row.id for row in other.train} == {row.id for row in task.train}
    assert {row.id for row in one.train}.isdisjoint(row.id for row in other.train)
    if most is None:
        assert one.dev == other.train
        assert other.dev == one.train


@pytest.mark.parametrize("most", [2, 6, 20])
def test_every_class_keeps_a_target_and_about_its_share(most: int) -> None:
    task = task_of([(number, "a" if number % 30 == 0 else "b") for number in range(120)])
    drawn = draw_targets(task.train, most, 0)
    assert Counter(row.label for row in drawn) == {"a": 1, "b": most - 1}
    places = [int(row.id[1:]) for row in drawn]
    assert places == sorted(places)


def test_with_dev_as_targets_one_model_is_fitted_on_all_of_train() -> None:
    task = make_task()
    (fold,) = folds_of(task, InfluenceConfig(targets="dev"), 0)
    assert (fold.train, fold.dev) == (task.train, task.dev)


def test_rows_that_belong_together_cannot_be_halved() -> None:
    task = task_of([(0, "a"), (0, "b")] * 3)
    with pytest.raises(InputError, match=r"key 'select.targets': the 6 train rows cannot .*targets: dev\)$"):
        folds_of(task, InfluenceConfig(), 0)


def test_a_model_reads_the_rows_of_its_own_half_only(tmp_path: Path) -> None:
    work = make_runner(tmp_path, small_settings())
    for fold in work.folds:
        tokenizer = load_tokenizer(fold.packed / "tokenizer")
        for folder, rows in (("task", fold.task.train), ("dev", fold.task.dev)):
            packed = PackedTexts(fold.packed / folder)
            texts = [tokenizer.decode(packed[place], skip_special_tokens=True) for place in range(len(packed))]
            assert texts == [row.text for row in rows]
        seen = {row.text for row in fold.task.train}
        assert seen.isdisjoint(row.text for row in fold.task.dev)
