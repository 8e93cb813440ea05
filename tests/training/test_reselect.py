"""Re-selection in pre-training: the streams before and after it, scoring rows, exact resume, and cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from endtask.config import Settings
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.io.stage_folder import StageFolder
from endtask.objectives.stream import TextStream
from endtask.task import Task
from endtask.training import reselect
from endtask.training.budget_plan import StepCost
from endtask.training.metrics_file import read_metrics
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase
from endtask.training.pretrain import WEIGHTS, pretrain
from endtask.training.pretrain_phase import pretrain_phase
from endtask.training.reselect import (
    PART,
    Reselection,
    packed_round,
    reselection_of,
    scoring_share,
    top_indices,
    with_reselection,
)

from .conftest import changed, packed_in
from .test_phase_runner import Killed, same, stop_after

EVERY = 5


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of train judges, by six of its rows."""
    monkeypatch.setattr(reselect, "RESELECTION_FOLDS", 4)
    monkeypatch.setattr(reselect, "MOST_TARGETS", 6)


def reselecting(settings: Settings, *, pretrain: dict[str, Any] | None = None, **asked: Any) -> Settings:
    given = {"every": EVERY, "reservoir": 30, "keep": 0.4, **asked}
    return changed(settings, budget="16steps", pretrain={"reselect": given, **(pretrain or {})})


def phase_of(task: Task, packed: Path, settings: Settings, steps: int = 16) -> tuple[Phase, Reselection]:
    phase = replace(pretrain_phase(task, packed, settings), steps=steps)
    refresh = reselection_of(phase, task, packed, settings)
    assert refresh is not None
    return replace(phase, refresh=refresh), refresh


def stream_of(phase: Phase, name: str) -> TextStream:
    stream: TextStream = phase.objectives[name].stream  # type: ignore[attr-defined]
    return stream


def chosen(refresh: Reselection) -> set[int]:
    return set(refresh.state()["chosen"].nonzero().squeeze(1).tolist())


def watch(phase: Phase, refresh: Reselection, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[int, set[int]]]]:
    """How often there had been a re-selection, and the texts, of every batch that was made."""
    seen: dict[str, list[tuple[int, set[int]]]] = {}
    for name in phase.objectives:
        stream, batches = stream_of(phase, name), seen.setdefault(name, [])

        def batch(step: int, stream: TextStream = stream, batches: list[Any] = batches) -> Any:
            batches.append((int(refresh.state()["step"]) // EVERY, set(stream.positions(step).tolist())))
            return TextStream.batch(stream, step)

        monkeypatch.setattr(stream, "batch", batch)
    return seen


def test_batches_are_drawn_from_what_was_chosen_last(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase, refresh = phase_of(task, packed, reselecting(run_settings))
    seen, choices = watch(phase, refresh, monkeypatch), [chosen(refresh)]
    original = refresh.apply
    monkeypatch.setattr(refresh, "apply", lambda *a: (original(*a), choices.append(chosen(refresh)))[0])
    run_phase(phase, tmp_path, label="test")
    assert [len(choice) for choice in choices] == [62, 12, 12, 12]
    assert len({frozenset(choice) for choice in choices}) == 4
    assert len(seen["corpus"]) == len(seen["task"]) == 8, "no batch was made twice, or ahead of a re-selection"
    for number, texts in seen["corpus"]:
        assert texts <= choices[number]
    rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "reselect/kept" in row]
    assert [row["step"] for row in rows] == [5, 10, 15]
    assert all(row["reselect/kept"] > row["reselect/reservoir"] for row in rows)


def test_rows_that_judge_were_left_out_meanwhile(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reselect, "MOST_TARGETS", 100)
    phase, refresh = phase_of(task, packed, reselecting(run_settings))
    seen, judges = watch(phase, refresh, monkeypatch), []
    scores = refresh._scores
    original = type(scores).scores
    monkeypatch.setattr(
        type(scores), "scores", lambda self, which, rows, seed: judges.append(rows) or original(self, which, rows, seed)
    )
    run_phase(phase, tmp_path, label="test")
    assert len(judges) == 3
    assert all(len(rows) == 8 for rows in judges), "quarters of 32"
    assert len(set(np.concatenate(judges).tolist())) == 24, "each time others"
    for number, texts in seen["task"][:-1]:
        assert number == 3 or not texts & set(judges[number].tolist())
    stream = stream_of(phase, "task")
    epoch = np.concatenate([stream.positions(step) for step in range(stream.plan.batches_per_epoch)])
    assert sorted(epoch.tolist()) == list(range(32)), "after the last re-selection nothing is left out"


def results(stage: StageFolder, counts: dict[str, Any]) -> tuple[Any, ...]:
    counts["objectives"][PART].pop("seconds")
    return counts, (stage.partial / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    "knobs",
    [
        pytest.param({}, marks=pytest.mark.long),
        pytest.param({"eval_steps": 5, "gradient_accumulation_steps": 2}, marks=pytest.mark.long),
        {"weighting": {"name": "meta", "folds": 3, "every": 2}, "batch_size": "128tok"},
    ],
    ids=["plain", "with dev scores", "with learned weights"],
)
def test_a_killed_run_goes_on_to_the_same_bits(
    task: Task,
    packed: Path,
    run_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    knobs: dict[str, Any],
) -> None:
    settings = reselecting(run_settings, pretrain={"checkpoint_steps": 3, "dropout": 0.1, **knobs})

    def folder(name: str) -> StageFolder:
        return StageFolder(tmp_path / name, "pretrain", "fingerprint", {}, {})

    unbroken = folder("unbroken")
    expected = results(unbroken, pretrain(task, packed, settings, unbroken))
    weights = load_tensors(unbroken.partial / WEIGHTS)[0]
    for checkpoints in (1, 2, 3, 6):  # after steps 3, 5 (a re-selection), 6 and 12
        stopped, again = folder(f"stopped-{checkpoints}"), folder(f"stopped-{checkpoints}")
        monkeypatch.setattr(stopped, "save_time", stop_after(checkpoints))
        with pytest.raises(Killed):
            pretrain(task, packed, settings, stopped)
        assert results(again, pretrain(task, packed, settings, again)) == expected
        assert same(load_tensors(again.partial / WEIGHTS)[0], weights)


def test_a_run_killed_inside_a_re_selection_does_it_again(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = reselecting(run_settings)
    whole, _ = phase_of(task, packed, settings)
    run_phase(whole, tmp_path / "whole", label="test")
    killed, refresh = phase_of(task, packed, settings)
    original, rounds = refresh.apply, count(1)

    def apply(step: int, state: dict[str, Any]) -> dict[str, float]:
        found = original(step, state)
        if next(rounds) == 2:
            raise Killed
        return found

    monkeypatch.setattr(refresh, "apply", apply)
    with pytest.raises(Killed):
        run_phase(killed, tmp_path / "killed", label="test")
    resumed, _ = phase_of(task, packed, settings)
    run_phase(resumed, tmp_path / "killed", label="test")
    assert same(resumed.network.state_dict(), whole.network.state_dict())


def test_the_state_of_other_texts_is_refused(task: Task, packed: Path, run_settings: Settings) -> None:
    _, refresh = phase_of(task, packed, reselecting(run_settings))
    with pytest.raises(ValueError, match="a choice among 62 texts"):
        refresh.load_state({"step": torch.tensor(5), "chosen": torch.ones(61, dtype=torch.bool)})
    with pytest.raises(ValueError, match="a choice among 62 texts"):
        refresh.load_state({})


def test_the_best_are_kept_at_least_one() -> None:
    scores = np.array([3.0, 1.0, 2.0, 3.0])
    assert top_indices(scores, 0.5).tolist() == [0, 3]
    assert top_indices(scores, 0.01).tolist() == [0]
    assert top_indices(scores, 1.0).tolist() == [0, 1, 2, 3]


def test_rounds_are_counted(task: Task, packed: Path, run_settings: Settings, tmp_path: Path) -> None:
    counts = {}
    for name, settings in (("with", reselecting(run_settings)), ("without", changed(run_settings, budget="16steps"))):
        stage = StageFolder(tmp_path / name, "pretrain", "fingerprint", {}, {})
        counts[name] = pretrain(task, packed, settings, stage)
    row = counts["with"]["objectives"][PART]
    assert row["steps"] == 3
    assert row["tokens"] > 0
    assert row["matmul_flops"] > 0
    assert row["seconds"] > 0
    assert PART in [use["part"] for use in counts["with"]["uses"]]
    assert PART not in [use["part"] for use in counts["without"]["uses"]]
    for name in ("tokens", "matmul_flops"):
        assert counts["with"][name] == sum(own[name] for own in counts["with"]["objectives"].values())
    share = scoring_share(pretrain_phase(task, packed, run_settings).network)
    trained = counts["with"]["tokens"] - (1 - share) * row["tokens"]
    assert counts["with"]["flops"] == pytest.approx(6 * counts["with"]["parameters"] * trained)


def test_a_plan_counts_the_rounds(task: Task, packed: Path, run_settings: Settings) -> None:
    network, settings = pretrain_phase(task, packed, run_settings).network, reselecting(run_settings)
    cost = StepCost(tokens=100.0, flops=600.0, seconds=1.0)
    read = packed_round(packed, settings.pretrain.reselect)
    found = with_reselection(cost, network, read, 1, settings)
    more = found.tokens - 100.0
    assert 5 * more == pytest.approx(2 * 30 * 9, rel=0.5)  # two masks
    assert found.seconds == pytest.approx(1 + scoring_share(network) * more / 100)
    assert found.flops == pytest.approx(600 + 6 * scoring_share(network) * more)
    assert with_reselection(cost, network, read, 1, run_settings) == cost
    assert packed_round(packed, run_settings.pretrain.reselect) == 0


def test_without_external_text_there_is_nothing_to_choose_from(
    task: Task, run_settings: Settings, tmp_path: Path
) -> None:
    folder = packed_in(tmp_path, task, run_settings)
    phase = replace(pretrain_phase(task, folder, run_settings), steps=9)
    alone = replace(phase, objectives={"task": phase.objectives["task"]})
    with pytest.raises(InputError, match=r"train\.reselect\.every.*no corpus text"):
        reselection_of(alone, task, folder, reselecting(run_settings))
