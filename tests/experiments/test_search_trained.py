"""A search with real training on the toy data."""

from __future__ import annotations

from pathlib import Path

import pytest

import endtask
from endtask.config import load_settings, resolve
from endtask.experiments.search import search
from endtask.experiments.search_space import GridSearch
from endtask.reporting.page import summary
from tests.toy_run import results, toy_settings


@pytest.mark.long
@pytest.mark.slow
def test_a_trial_is_the_run_it_would_be_alone(toy: Path, tmp_path: Path) -> None:
    settings = resolve(toy_settings(toy, tmp_path / "search", budget="8steps"))
    record = search(settings, GridSearch({"pretrain.learning_rate": (1e-4, 3e-2)}))
    assert record.winner is not None
    winner = record.folder / record.winner["folder"]
    alone = endtask.run(
        load_settings(winner / "settings.yaml").model_copy(update={"output_dir": str(tmp_path / "one")})
    )
    assert results(winner) == results(alone.folder)
    assert record.winner["mean"] == alone.score
    for trial in record.trials:
        assert [row["dev"] for row in summary(record.folder / trial.folder)["seeds"]] == list(trial.dev)
        assert trial.tokens > 0
        assert trial.flops > 0
        assert trial.seconds > 0
    other = record.trials[1 - record.winner["number"]]
    assert not (record.folder / other.folder / "evaluate").exists()
    assert load_settings(winner / "settings.yaml").budget.text == "4steps"
