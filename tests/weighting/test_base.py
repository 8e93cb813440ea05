"""Weightings without learned weights."""

from __future__ import annotations

import pytest
import torch

from endtask.weighting.base import Rule
from endtask.weighting.equal import Equal
from endtask.weighting.interleave import Interleave

RULES = [Equal("a", "b"), Interleave("a", "b", rho1=2)]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_learns_nothing_sees_no_gradients_and_keeps_no_state(rule: Rule) -> None:
    assert not any(rule.sees_gradients(step) for step in range(5))
    assert rule.state() == {}
    rule.load_state({})


@pytest.mark.parametrize("rule", RULES)
def test_a_state_from_another_rule_is_refused(rule: Rule) -> None:
    with pytest.raises(ValueError, match=rf"{type(rule).__name__} has no state, got \['weights'\]"):
        rule.load_state({"weights": torch.ones(2)})


def test_a_rule_must_say_whose_turn_it_is() -> None:
    with pytest.raises(NotImplementedError):
        Rule().schedule(0)
    with pytest.raises(NotImplementedError):
        Rule().weigh(0, {})
