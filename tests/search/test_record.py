"""search.json: read back as written, and refused where it is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from endtask.config import Settings
from endtask.errors import InputError
from endtask.search.record import NOT_ASKED, SEARCH_FILE, Record, Trial, open_record, read_record

ASKED = {
    "kind": "grid",
    "space": {"pretrain.weighting.rho1": [1, 19]},
    "trials_asked": 2,
    "metric": "macro_f1",
    "budget": "8steps",
    "settings": Settings().model_dump(mode="json", exclude=set(NOT_ASKED)),
}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    record = open_record(tmp_path, ASKED)
    begun = record.with_trial(Trial(0, {"pretrain.weighting.rho1": 1}))
    assert read_record(tmp_path) == begun
    assert begun.finished == ()
    done = begun.with_trial(Trial(0, {"pretrain.weighting.rho1": 1}, dev=(0.5, 0.6), seconds=1.5, tokens=10, flops=1e9))
    failed = done.with_trial(Trial(1, {"pretrain.weighting.rho1": 19}, failure="broke"))
    ended = failed.with_winner({"number": 0, "mean": 0.5})
    assert read_record(tmp_path) == ended == open_record(tmp_path, ASKED)
    assert ended.keys == ("pretrain.weighting.rho1",)
    changed = Settings(seed=7).model_dump(mode="json", exclude=set(NOT_ASKED))
    with pytest.raises(InputError, match=r"asked otherwise: seed \(0 -> 7\)"):
        open_record(tmp_path, {**ASKED, "settings": changed})
    statistics = json.loads((tmp_path / SEARCH_FILE).read_text())
    assert statistics["trials"][0]["mean"] == pytest.approx(0.55)
    assert statistics["trials"][0]["spread"] == pytest.approx(0.0707, abs=1e-4)
    assert statistics["trials"][0]["folder"] == "trials/000"
    assert [entry.name for entry in tmp_path.iterdir()] == [SEARCH_FILE]


def test_the_best_is_the_first_of_the_highest(tmp_path: Path) -> None:
    scores = [(0.4,), (0.3, 0.7), (0.5,), ()]
    trials = tuple(Trial(number, {}, dev=dev) for number, dev in enumerate(scores))
    assert Record(tmp_path, ASKED, trials).best == trials[1]
    failed = (Trial(0, {}, failure="broke"),)
    assert Record(tmp_path, ASKED, failed).best is None
    # A score of nothing is still better than none.
    assert Record(tmp_path, ASKED, (*failed, Trial(1, {}, dev=(0.0,)))).best == Trial(1, {}, dev=(0.0,))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"trials": [{}], "winner": null, "space": {}}'])
def test_a_file_changed_by_hand(tmp_path: Path, text: str) -> None:
    (tmp_path / SEARCH_FILE).write_text(text)
    with pytest.raises(InputError, match="not the record of a search"):
        read_record(tmp_path)


def test_no_search_here(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no search here"):
        read_record(tmp_path)
