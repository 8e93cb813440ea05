"""Amounts with a unit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import BatchSize, Budget, SizeBudget, load_settings, resolve
from endtask.errors import InputError

BUDGETS = [
    ("600s", 600, "seconds"),
    ("90sec", 90, "seconds"),
    ("5seconds", 5, "seconds"),
    ("10min", 600, "seconds"),
    ("2minutes", 120, "seconds"),
    ("1.5h", 5400, "seconds"),
    ("2hours", 7200, "seconds"),
    ("7tok", 7, "tokens"),
    ("7tokens", 7, "tokens"),
    ("3ktok", 3e3, "tokens"),
    ("3Ktok", 3e3, "tokens"),
    ("50Mtok", 50e6, "tokens"),
    ("2Gtok", 2e9, "tokens"),
    ("1step", 1, "steps"),
    ("2000steps", 2000, "steps"),
    ("1e17flops", 1e17, "flops"),
    ("1flop", 1, "flops"),
    ("1E17FLOPs", 1e17, "flops"),
    (" 10 min ", 600, "seconds"),
    (".5h", 1800, "seconds"),
]
SIZES = [
    ("10B", 10, "bytes"),
    ("10bytes", 10, "bytes"),
    ("2kB", 2e3, "bytes"),
    ("2KB", 2e3, "bytes"),
    ("300MB", 300e6, "bytes"),
    ("1.5GB", 1.5e9, "bytes"),
    ("1passage", 1, "passages"),
    ("50000passages", 50000, "passages"),
    ("5%", 0.05, "share"),
    ("100%", 1, "share"),
]
BATCHES = [
    (32, 32, "texts"),
    ("32", 32, "texts"),
    (" 256 ", 256, "texts"),
    ("1text", 1, "texts"),
    ("8 texts", 8, "texts"),
    ("4096tok", 4096, "tokens"),
    ("4096tokens", 4096, "tokens"),
    ("32ktok", 32_000, "tokens"),
    ("1.5ktok", 1500, "tokens"),
    ("1Mtok", 1_000_000, "tokens"),
]
NONSENSE = [
    "",
    "min",
    "-5min",
    "0s",
    "10 parsecs",
    "ten minutes",
    "1e999s",
    "nan s",
    "1_000steps",
    "5min 3s",
]
UNITS = ["s", "min", "h", "tok", "ktok", "Mtok", "Gtok", "steps", "flops"]
amounts = st.floats(min_value=1e-3, max_value=1e15).map(repr) | st.integers(1, 10**15).map(str)
budgets = st.builds(lambda amount, unit: Budget.parse(amount + unit), amounts, st.sampled_from(UNITS))


@pytest.mark.parametrize(("text", "amount", "unit"), BUDGETS)
def test_every_unit_of_cost(text: str, amount: float, unit: str) -> None:
    budget = Budget.parse(text)
    assert budget.amount == pytest.approx(amount)
    assert budget.unit == unit
    assert (budget.seconds is None) == (unit != "seconds")


@pytest.mark.parametrize(("text", "amount", "unit"), SIZES)
def test_every_unit_of_size(text: str, amount: float, unit: str) -> None:
    size = SizeBudget.parse(text)
    assert size.amount == pytest.approx(amount)
    assert size.unit == unit


@pytest.mark.parametrize(("written", "amount", "unit"), BATCHES)
def test_every_unit_of_a_batch(written: str | int, amount: int, unit: str) -> None:
    size = load_settings(given={"pretrain": {"batch_size": written}}).pretrain.batch_size
    assert (size.amount, size.unit) == (amount, unit)
    assert size == BatchSize.parse(written)


@settings(max_examples=50, deadline=None)
@given(st.builds(BatchSize, st.integers(1, 10**9), st.sampled_from(["texts", "tokens"])))
def test_text_gives_the_same_batch_size_back(size: BatchSize) -> None:
    assert BatchSize.parse(str(size)) == size


@pytest.mark.parametrize("text", NONSENSE)
@pytest.mark.parametrize("kind", [Budget, SizeBudget])
def test_nonsense_is_refused(kind: type[Budget] | type[SizeBudget], text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an amount with a unit|must be more than zero|the most there can be"):
        kind.parse(text)


def test_more_than_the_whole_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="more than the whole corpus"):
        SizeBudget.parse("101%")


@settings(max_examples=100, deadline=None)
@given(budgets)
def test_text_gives_the_same_budget_back(budget: Budget) -> None:
    assert Budget.parse(str(budget)) == budget
    assert load_settings(given={"budget": str(budget)}).budget == budget


@settings(max_examples=100, deadline=None)
@given(budgets, st.floats(min_value=0.01, max_value=1))
def test_a_share_keeps_the_unit_and_survives_writing(budget: Budget, fraction: float) -> None:
    part = budget.share(fraction)
    assert part.unit == budget.unit
    assert part.amount == budget.amount * fraction
    assert math.isclose(Budget.parse(str(part)).amount, part.amount, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"budget": 1.5}, "key 'budget': 1.5 needs a unit"),
        (
            {"budget": "10 parsecs"},
            "key 'budget': '10 parsecs' is not an amount with a unit; write it like 600s, 10min",
        ),
        ({"select": {"budget": "0%"}}, "key 'select.budget': '0%' must be more than zero"),
        (
            {"select": {"budget": "10min"}},
            "key 'select.budget': '10min' is not an amount with a unit; write it like 300MB",
        ),
        ({"pretrain": {"batch_size": 0}}, "key 'pretrain.batch_size': 0 must be more than zero"),
        ({"pretrain": {"batch_size": "0tok"}}, "key 'pretrain.batch_size': '0tok' must be more than zero"),
        (
            {"pretrain": {"batch_size": -8}},
            "key 'pretrain.batch_size': '-8' is not an amount with a unit; write it like 32 or 4096tok",
        ),
        (
            {"finetune": {"batch_size": "10min"}},
            "key 'finetune.batch_size': '10min' is not an amount with a unit; write it like 32 or 4096tok",
        ),
        ({"pretrain": {"batch_size": "300.5tok"}}, "key 'pretrain.batch_size': '300.5tok' is not a whole number"),
        (
            {"pretrain": {"batch_size": 1.5}},
            "key 'pretrain.batch_size': 1.5 is neither a number of texts nor an amount like 4096tok",
        ),
        (
            {"pretrain": {"batch_size": True}},
            "key 'pretrain.batch_size': true is neither a number of texts nor an amount like 4096tok",
        ),
    ],
)
def test_settings_name_the_wrong_amount(tree: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(tree)
    assert str(caught.value).startswith(line)
