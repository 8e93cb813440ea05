"""Warnings and errors: classes without targets, too few units, too little memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as parquet
import pytest
import torch

from endtask.config import Settings
from endtask.errors import InputError, TrainingError
from endtask.gradients.scoring import Calibration
from endtask.io.run_layout import HELPFUL
from endtask.pipeline.preflight import preflight
from endtask.pipeline.stages import STAGES
from endtask.records import Example
from endtask.selectors.influence import scorer as scorer_module
from endtask.selectors.influence.runner import InfluenceRunner, _check_distinct_scores
from endtask.selectors.influence.scorer import Reader
from endtask.training.device import explain_out_of_memory
from tests.selectors.influence.small import make_runner, make_task, run_influence, small_settings


def refused(folder: Path, settings: Settings) -> str:
    with pytest.raises(InputError) as caught:
        run_influence(folder, settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_class_without_targets_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = make_task()
    task = replace(task, splits={**task.splits, "dev": tuple(row for row in task.dev if row.label != "space")})
    settings = small_settings({"targets": "dev"}, budget="8passages")
    run_influence(tmp_path, settings, task=task)
    rows = parquet.read_table(tmp_path / "out" / HELPFUL).to_pylist()
    assert {row["targets"][0] for row in rows if row["kind"] == "class"} == {"food", "sport"}
    assert " ".join(capsys.readouterr().err.split()).count("no target is of class space;") == 1


def test_fewer_than_two_units_are_refused(tmp_path: Path) -> None:
    line = refused(tmp_path, small_settings({"candidate_batch": 21}))
    assert line.startswith("key 'select.candidate_batch': 40 candidates are less than two units of 21")


def test_scores_that_are_all_alike_are_refused() -> None:
    alike = Calibration.of(torch.ones(3, 2))
    with pytest.raises(InputError, match="for every target all candidates have the same score"):
        _check_distinct_scores(alike, 3)
    _check_distinct_scores(alike, 1)
    _check_distinct_scores(Calibration.of(torch.tensor([[1.0, 1.0], [1.0, 2.0]])), 2)


def with_corpus(values: dict[str, Any]) -> Settings:
    settings = small_settings(values)
    return settings.model_copy(update={"corpus": settings.corpus.model_copy(update={"sources": ("some",)})})


def ended(work: InfluenceRunner) -> None:
    raise KeyboardInterrupt


def test_without_a_budget_a_warning_comes_before_anything_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(InfluenceRunner, "fit", ended)
    with pytest.raises(KeyboardInterrupt):
        run_influence(tmp_path, small_settings(budget=None))
    assert "without select.budget every candidate is selected" in " ".join(capsys.readouterr().err.split())


def test_the_longest_targets_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer_module, "tokens_at_once", lambda *where: 30)
    fold = make_runner(tmp_path, small_settings()).folds[0]
    network = fold.network()
    found = list(Reader(fold, network).targets(fold.answers(network)))
    longest = [int(fold.targets.lengths[numbers].max()) for numbers, _ in found]
    assert longest == sorted(longest, reverse=True)
    assert longest[0] == fold.targets.lengths.max() > longest[-1]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"layers": ["last", "layers.7.attn.Wo"]},
            "key 'select.layers': lean has no layer 'layers.7.attn.Wo'",
        ),
        ({"targets": "folds"}, "key 'select.targets': the 4 train rows cannot be split into two folds"),
    ],
)
def test_what_cannot_work_is_met_ahead(values: dict[str, Any], line: str) -> None:
    task = make_task()
    if "targets" in values:
        rows = tuple(Example(f"t{n}", "the same words", label) for n, label in enumerate(["food", "space"] * 2))
        task = replace(task, splits={**task.splits, "train": rows})
    with pytest.raises(InputError) as caught:
        preflight(task, with_corpus(values))
    assert str(caught.value).startswith(line)
    preflight(make_task(), with_corpus({"layers": ["*.Wo"]}))


def test_memory_trouble_names_the_settings_of_the_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    def trouble(*args: Any) -> None:
        with explain_out_of_memory():
            raise MemoryError("so much")

    monkeypatch.setattr("endtask.pipeline.stages.select._select", trouble)
    with pytest.raises(TrainingError) as caught:
        STAGES["select"].run(SimpleNamespace(settings=small_settings()), None, {})  # type: ignore[arg-type]
    assert str(caught.value).startswith("the device is out of memory: so much (lower select.size, ")
    assert "pretrain.batch_size" not in str(caught.value)
