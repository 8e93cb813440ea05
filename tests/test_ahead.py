"""What would stop a run late is met before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.ahead import check_ahead
from endtask.errors import InputError
from endtask.records import Example
from endtask.settings import resolve
from endtask.task import Task

ROWS = [Example(f"r{n}", f"text {n}", "ab"[n % 2]) for n in range(8)]
TASK = Task.from_examples("tiny", {"train": ROWS[:6], "dev": ROWS[6:]}, test_fraction=0.0)


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"train": {"rho1": "inf"}}, "key 'train.rho1': inf leaves nothing to train on"),
        ({"train": {"rho1": "inf"}, "select": {"selector": "none"}}, "key 'train.rho1': inf leaves nothing"),
        ({"device": "cpu", "model": {"attention": "varlen"}}, "key 'model.attention': varlen does not work here"),
        ({"tokenizer": {"marks": ["[[", "[["]}}, "key 'tokenizer.marks': '\\[\\[' is named twice"),
        ({"model": {"hidden_size": 10, "num_attention_heads": 3}}, "key 'model.hidden_size'"),
        ({"model": {"path": "/nowhere/at/all"}}, "/nowhere/at/all"),
    ],
)
def test_one_line_before_anything_is_read(tree: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as raised:
        check_ahead(TASK, resolve(tree))
    assert "\n" not in str(raised.value)


def test_nothing_wrong_is_nothing_said() -> None:
    check_ahead(TASK, resolve({"stage1": "none", "train": {"rho1": "inf"}}))


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"architecture": "bert", "pooling": "mean"}, "key 'model.pooling'"),
        ({"architecture": "roberta", "attention": "varlen"}, "key 'model.attention'"),
    ],
)
def test_what_an_architecture_cannot_do_is_met_where_it_is_typed(model: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        resolve({"model": model})
