"""Settings of re-selection: contradictions raise errors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from endtask.config import Settings
from endtask.config.data_usage import data_usage

TASK, MLM = {"kind": "task"}, {"kind": "mlm", "texts": "selection"}


def train(**changes: Any) -> Settings:
    return Settings.model_validate({"pretrain": {"reselect": {"every": 10}, **changes}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weighting": {"rho1": "inf"}}, "name an objective of kind task or joint"),
        (
            {"weighting": "equal", "objectives": {"mlm": MLM, "task": {**TASK, "weight": 0}}},
            r"objectives\.task\.weight: 0 leaves this objective out, but reselect\.every",
        ),
        ({"weighting": "equal", "objectives": {"task": TASK}}, "no masked LM reads the selection"),
        ({"weighting": "sequence", "objectives": {"mlm": MLM, "task": TASK}}, "a sequence does not"),
        ({"reselect": {"every": 0}}, "every"),
        ({"reselect": {"every": 5, "keep": 0}}, "keep"),
        ({"reselect": {"every": 5, "keep": 1.5}}, "keep"),
        ({"reselect": {"every": 5, "reservoir": 0}}, "reservoir"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        train(**changes)


def test_off_by_default_and_fine_with_any_weighting() -> None:
    assert Settings().pretrain.reselect.every is None
    for weighting in ("equal", "meta", "alternate"):
        train(weighting=weighting, objectives={"mlm": MLM, "task": TASK})


def test_who_judges_is_told() -> None:
    def split(**changes: Any) -> str:
        return next(use.split for use in data_usage(train(**changes)) if use.part == "re-selection")

    assert split() == "train, 1/10 of it held out in turn"
    assert split(weighting={"name": "meta", "folds": 7}) == "train, 1/7 of it held out in turn"
