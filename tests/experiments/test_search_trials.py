"""The record of a search: it is read as written; other files raise an error."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.experiments.record import Record, check_spec, read_record
from endtask.experiments.search import RECORD
from endtask.experiments.search_result import SearchResult, SearchTrial

SPEC = {"strategy": "grid", "space": {"pretrain.weighting.rho1": [1, 19]}, "trial_count": 2, "settings": {"seed": 0}}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    record = Record(tmp_path, "search", SPEC).save()
    begun = SearchTrial(0, {"pretrain.weighting.rho1": 1})
    record = record.with_trial(begun.key, asdict(begun))
    assert read_record(tmp_path, "search") == record
    assert SearchResult.from_record(record).finished == ()
    done = SearchTrial(0, {"pretrain.weighting.rho1": 1}, dev=(0.5, 0.6), seconds=1.5, tokens=10, flops=1e9)
    failed = SearchTrial(1, {"pretrain.weighting.rho1": 19}, failure="broke")
    ended = record.with_trial(done.key, asdict(done)).with_trial(failed.key, asdict(failed))
    ended = ended.with_outcome({"number": 0, "mean": 0.5})
    result = SearchResult.from_record(read_record(tmp_path, "search"))
    assert (result.trials, result.winner, result.keys) == (
        (done, failed),
        {"number": 0, "mean": 0.5},
        ("pretrain.weighting.rho1",),
    )
    tree = result.to_dict()["trials"][0]
    assert tree["mean"] == pytest.approx(0.55)
    assert tree["std"] == pytest.approx(0.0707, abs=1e-4)
    assert tree["folder"] == "trials/000"
    assert [entry.name for entry in tmp_path.iterdir()] == [RECORD]


def test_another_spec_is_refused(tmp_path: Path) -> None:
    check_spec(tmp_path, SPEC, SPEC)
    with pytest.raises(InputError, match=r"changed: settings.seed \(0 -> 7\) \(choose another --output"):
        check_spec(tmp_path, SPEC, {**SPEC, "settings": {"seed": 7}})


def test_the_best_is_the_first_of_the_highest(tmp_path: Path) -> None:
    scores = [(0.4,), (0.3, 0.7), (0.5,), ()]
    trials = tuple(SearchTrial(number, {}, dev=dev) for number, dev in enumerate(scores))
    assert SearchResult(tmp_path, SPEC, trials).best == trials[1]
    failed = (SearchTrial(0, {}, failure="broke"),)
    assert SearchResult(tmp_path, SPEC, failed).best is None
    # A score of 0 is still better than none.
    zero = SearchTrial(1, {}, dev=(0.0,))
    assert SearchResult(tmp_path, SPEC, (*failed, zero)).best == zero


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"spec": {"space": {}}, "trials": {"0": {}}, "outcome": null}'])
def test_a_file_edited_by_hand(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(InputError, match="not the record of a search"):
        SearchResult.from_record(read_record(tmp_path, "search"))


def test_no_search_here(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no search here"):
        read_record(tmp_path, "search")
