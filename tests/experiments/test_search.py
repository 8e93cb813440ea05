"""A search from end to end with stub stages: budget, stage reuse, dev scores alone, kill and resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endtask.config import Settings, load_settings
from endtask.errors import InputError, TrainingError
from endtask.experiments.record import read_record
from endtask.experiments.search import RECORD, search
from endtask.experiments.search_result import SearchResult
from endtask.experiments.search_space import GridSearch, OptunaSearch, search_space
from endtask.io.stage_files import read_manifest
from tests.experiments.search_stubs import Stubs, toy

GRID = GridSearch({"pretrain.weighting.rho1": (1, 19), "pretrain.objectives.task.rho2": (20.0, 100.0)})
SPACE = [
    "pretrain.learning_rate=log:1e-4:1e-2",
    "pretrain.weighting.rho1=choice:1,19,99",
    "pretrain.mask_probability=float:0.1:0.9",
]


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    """Training that costs nothing, in place of the real one."""
    return Stubs().install(monkeypatch)


class Killed(BaseException):
    """Like a signal: nothing catches it."""


def sampler(settings: Settings, trials: int = 4) -> OptunaSearch:
    pytest.importorskip("optuna")
    return OptunaSearch(search_space(SPACE, settings), trials, settings.seed)


def without_times(record: SearchResult) -> dict[str, Any]:
    values_of_search = record.to_dict()
    return {**values_of_search, "trials": [{**trial, "seconds": 0} for trial in values_of_search["trials"]]}


def test_a_grid_tries_every_combination_and_only_the_winner_sees_test(
    toy_files: Path, tmp_path: Path, stubs: Stubs
) -> None:
    record = search(toy(toy_files, tmp_path / "search", budget="60steps"), GRID)
    assert [tuple(trial.values.values()) for trial in record.trials] == [
        (rho1, rho2) for rho1 in (1, 19) for rho2 in (20.0, 100.0)
    ]
    assert record.best == record.trials[2]  # rho1 = 19; of the two equal ones the first
    assert stubs.of("finetune") == ["000", "001", "002", "003"]
    assert stubs.of("evaluate") == stubs.of("model") == ["002"]
    assert record.winner is not None
    assert (record.winner["number"], record.winner["mean"]) == (2, 0.25)
    assert not (tmp_path / "search" / "trials" / "000" / "evaluate").exists()
    assert SearchResult.from_record(read_record(tmp_path / "search", "search")) == record


def test_shared_stages_are_done_once(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    record = search(toy(toy_files, tmp_path / "search", budget="60steps"), GRID)
    assert stubs.of("pack") == ["000"]
    first = record.folder / record.trials[0].folder
    for trial in record.trials[1:]:
        folder = record.folder / trial.folder
        for stage in ("read", "retrieve", "select", "pack"):
            manifest = read_manifest(folder / stage)
            assert manifest is not None
            assert (folder / manifest["reused_from"]).resolve() == first.resolve()
        assert (folder / "pack" / "output.txt").samefile(first / "pack" / "output.txt")
        assert (trial.tokens, trial.flops) == (150, 9000.0)


def test_the_budget_is_shared_out(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    record = search(toy(toy_files, tmp_path / "search", budget="40min"), GRID)
    budgets = {str(load_settings(record.folder / trial.folder / "settings.yaml").budget) for trial in record.trials}
    assert budgets == {"600s"}
    assert (record.spec["budget"], record.spec["budget_per_trial"]) == ("40min", "600s")


def test_a_searched_stage_is_done_once_for_each_of_its_values(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    plan = GridSearch({"tokenizer.vocab_size": (100, 200), "pretrain.weighting.rho1": (1, 19)})
    search(toy(toy_files, tmp_path / "search", budget="8steps"), plan)
    assert stubs.of("pack") == ["000", "002"]
    assert stubs.of("select") == ["000"]
    assert stubs.of("pretrain") == ["000", "001", "002", "003"]


def test_trials_that_differ_in_fine_tuning_alone_share_pretraining(
    toy_files: Path, tmp_path: Path, stubs: Stubs
) -> None:
    plan = GridSearch({"finetune.learning_rate": (1e-4, 1e-3)})
    record = search(toy(toy_files, tmp_path / "search", budget="8steps"), plan)
    assert stubs.of("pretrain") == ["000"]
    assert stubs.of("finetune") == ["000", "001"]
    assert [trial.tokens for trial in record.trials] == [150, 50]  # what another did costs nothing


def test_a_sampler_finds_its_way_and_repeats_itself(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "first", budget="80steps")
    first = search(settings, sampler(settings))
    again = search(settings.model_copy(update={"output_dir": str(tmp_path / "second")}), sampler(settings))
    assert without_times(first) == without_times(again)
    assert len({json.dumps(trial.values) for trial in first.trials}) == 4
    other = settings.model_copy(update={"output_dir": str(tmp_path / "third"), "seed": 1})
    assert search(other, sampler(other)).trials[0].values != first.trials[0].values


def test_killed_and_resumed_equals_unbroken(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "unbroken", budget="80steps")
    unbroken = without_times(search(settings, sampler(settings)))
    for place in ("000 pack", "003 finetune"):
        stubs.calls.clear()
        stubs.trouble[place] = Killed()
        broken = settings.model_copy(update={"output_dir": str(tmp_path / place)})
        with pytest.raises(Killed):
            search(broken, sampler(broken))
        assert without_times(search(broken, sampler(broken))) == unbroken, place
        folder, stage = place.split(" ")
        twice = [folder] if stage == "finetune" else []
        assert stubs.of("finetune") == sorted([f"{number:03}" for number in range(4)] + twice), place


def test_killed_before_the_winner_was_finished(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "search", budget="60steps")
    stubs.trouble["002 evaluate"] = Killed()
    with pytest.raises(Killed):
        search(settings, GRID)
    assert SearchResult.from_record(read_record(tmp_path / "search", "search")).winner is None
    stubs.calls.clear()
    record = search(settings, GRID)
    assert record.winner is not None
    assert stubs.calls == ["002 evaluate", "002 model"]
    stubs.calls.clear()
    assert search(settings, GRID) == record
    assert stubs.calls == []


def test_a_trial_goes_on_with_the_values_it_began_with(
    toy_files: Path, tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = toy(toy_files, tmp_path / "search", budget="80steps")
    stubs.trouble["003 pretrain"] = Killed()
    with pytest.raises(Killed):
        search(settings, sampler(settings))
    begun = SearchResult.from_record(read_record(tmp_path / "search", "search")).trials[3]
    assert not begun.is_finished
    # Another release of Optuna may suggest something else after the same trials.
    monkeypatch.setattr(
        OptunaSearch, "values", lambda self, number, before: dict(begun.values, **{"pretrain.weighting.rho1": 1})
    )
    resumed = search(settings, sampler(settings))
    assert resumed.trials[3].values == begun.values


def test_broken_training_ends_a_trial_and_not_the_search(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["002 pretrain"] = TrainingError("the loss was not finite")
    settings = toy(toy_files, tmp_path / "search", budget="60steps")
    record = search(settings, GRID)
    assert record.trials[2].failure == "the loss was not finite"
    assert record.trials[2].mean == 0.0
    assert record.best == record.trials[3]
    assert "Trial 3 failed: the loss was not finite" in (record.folder / "search.html").read_text()
    stubs.calls.clear()
    assert search(settings, GRID) == record
    assert stubs.calls == []  # a failure is an answer; it is not tried again


def test_every_trial_broken_is_said(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble = {f"00{number} pretrain": TrainingError("too hot") for number in range(2)}
    with pytest.raises(InputError, match="no trial trained to its end; the first: too hot"):
        search(toy(toy_files, tmp_path / "search", budget="60steps"), GridSearch({"pretrain.weighting.rho1": (1, 19)}))


def test_other_trouble_stops_the_search(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["001 pretrain"] = InputError("the disk is full")
    settings = toy(toy_files, tmp_path / "search", budget="60steps")
    with pytest.raises(InputError, match="the disk is full"):
        search(settings, GRID)
    assert len(SearchResult.from_record(read_record(tmp_path / "search", "search")).finished) == 1
    assert len(search(settings, GRID).finished) == 4


def test_a_search_asked_otherwise_is_refused(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "search", budget="60steps")
    search(settings, GRID)
    before = (tmp_path / "search" / RECORD).read_bytes()
    with pytest.raises(InputError, match=r"changed: budget \(60steps -> 90steps\)"):
        search(toy(toy_files, tmp_path / "search", budget="90steps"), GRID)
    with pytest.raises(InputError, match=r"space\.pretrain\.weighting\.rho1 \(\[1, 19\] -> \[1, 7\]\)"):
        search(settings, GridSearch({**GRID.axes, "pretrain.weighting.rho1": (1, 7)}))
    with pytest.raises(InputError, match=r"settings\.retrieve\.top_k \(5 -> 6\).*another --output"):
        search(toy(toy_files, tmp_path / "search", budget="60steps", retrieve={"top_k": 6}), GRID)
    assert (tmp_path / "search" / RECORD).read_bytes() == before


def test_changed_data_is_refused(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes((toy_files / "corpus.jsonl").read_bytes())
    settings = toy(toy_files, tmp_path / "search", budget="60steps", corpus={"sources": [{"path": str(corpus)}]})
    stubs.trouble["001 pretrain"] = Killed()
    with pytest.raises(Killed):
        search(settings, GRID)
    corpus.write_text(corpus.read_text() + '{"text": "one more star in the sky"}\n')
    with pytest.raises(InputError, match="what the stage retrieve reads changed"):
        search(settings, GRID)


def test_bad_places(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"has other files \(thesis.txt\)"):
        search(toy(toy_files, tmp_path / "taken", budget="60steps"), GRID)
    with pytest.raises(InputError, match="absent"):
        search(toy(tmp_path / "absent", tmp_path / "new", budget="60steps"), GRID)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["taken"]
    assert [entry.name for entry in (tmp_path / "taken").iterdir()] == ["thesis.txt"]


def test_steps_that_do_not_go_round(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    with pytest.raises(InputError, match="3steps are too few for 4 trials"):
        search(toy(toy_files, tmp_path / "search", budget="3steps"), GRID)
    assert not (tmp_path / "search").exists()
