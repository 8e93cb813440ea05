"""The amount of domain text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import Settings, SizeBudget, TextAmount, load_settings, resolve
from endtask.errors import InputError


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.integers(1, 10**6))
def test_a_multiple_is_of_the_train_rows(times: int, rows: int) -> None:
    budget = TextAmount.parse(f"{times}x").budget(rows)
    assert budget is not None
    assert (budget.amount, budget.unit) == (times * rows, "passages")


def test_a_part_of_few_rows_is_one_passage_at_least() -> None:
    budget = TextAmount.parse("0.1x").budget(2)
    assert budget is not None
    assert budget.amount == 1


@pytest.mark.parametrize("text", ["300MB", "5000passages", "5%"])
def test_amounts_of_text_are_those_of_a_selection(text: str) -> None:
    assert TextAmount.parse(text).budget(10) == SizeBudget.parse(text)


@pytest.mark.parametrize("text", ["all", "100%"])
def test_all_has_no_budget(text: str) -> None:
    assert TextAmount.parse(text).budget(10) is None


@pytest.mark.parametrize("text", ["10", "x", "10y", "0x", "-1x", "200%", "20%retrieved", ""])
def test_other_amounts_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^key 'domain.amount': '.*' is not an amount of text; write it like 10x .*"):
        resolve({"domain": {"amount": text}})


def test_it_is_written_as_it_was_read() -> None:
    settings = load_settings(overrides=["domain.amount=2.5x", "domain.sources=[a, b]"])
    again = Settings.model_validate(settings.model_dump(mode="json"))
    assert again.domain == settings.domain
    assert str(again.domain.amount) == "2.5x"
