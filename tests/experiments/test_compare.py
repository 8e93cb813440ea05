"""A comparison from end to end with stub stages: stage reuse, kill and resume, failures, errors."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from endtask.errors import InputError, TrainingError
from endtask.experiments import ComparisonResult, compare
from endtask.experiments.record import read_record
from endtask.experiments.stage_reuse import REUSED_FROM
from endtask.experiments.task_comparison import RECORD
from endtask.io.stage_files import read_manifest
from endtask.pipeline.run import run
from tests.experiments.compare_stubs import Stubs, toy

TWO = {"variants": {"one": {}, "two": {"pretrain.learning_rate": 3e-3}}, "seeds": [0, 1]}


class Killed(BaseException):
    """Like a signal: nothing catches it."""


def values(outcome: ComparisonResult) -> dict[str, Any]:
    """The table without what depends on clock and place."""
    rows = [{**row, "cost": None, "changes": None} for row in outcome.to_dict()["rows"]]
    return {**outcome.to_dict(), "folder": None, "rows": rows}


def test_every_variant_and_seed_is_a_run(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    outcome = compare(toy(toy_files, tmp_path / "out"), TWO)
    assert [row.name for row in outcome.rows] == ["one", "two", "majority", "tfidf", "no_corpus", "random"]
    in_rounds = [f"{variant}/seed-{seed}" for seed in (0, 1) for variant in ("one", "two", "no_corpus", "random")]
    assert stubs.of("pretrain") == stubs.of("finetune") == stubs.of("evaluate") == in_rounds
    assert stubs.of("model") == []
    assert [row.models for row in outcome.rows] == [4, 4, 1, 1, 4, 4]
    assert outcome.against == "one"
    assert outcome.row("one").score.difference is None  # type: ignore[union-attr]
    assert all(row.score.difference is not None for row in outcome.rows[1:])  # type: ignore[union-attr]
    assert (tmp_path / "out" / "compare.html").exists()
    assert read_record(tmp_path / "out", "compare").outcome == json.loads(json.dumps(outcome.to_dict()))


def test_equal_stages_are_done_once(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    compare(toy(toy_files, tmp_path / "out"), TWO)
    assert stubs.of("retrieve") == ["one/seed-0", "no_corpus/seed-0"]  # without the corpus there is nothing to search
    assert stubs.of("select") == ["one/seed-0", "no_corpus/seed-0", "random/seed-0"]
    assert stubs.of("pack") == ["one/seed-0", "no_corpus/seed-0", "random/seed-0"]
    runs = sorted((tmp_path / "out" / "variants").glob("*/seed-*"))
    given = {
        run: [s for s in ("read", "retrieve", "select", "pack") if REUSED_FROM in _manifest(run / s)] for run in runs
    }
    assert sum(map(len, given.values())) == 8 * 4 - (1 + 2 + 3 + 3)
    first = tmp_path / "out" / "variants" / "one" / "seed-0"
    assert (runs[-1] / "pack" / "output.txt").samefile(first / "pack" / "output.txt")


def _manifest(folder: Path) -> dict[str, Any]:
    found = read_manifest(folder)
    assert found is not None
    return found


def test_variants_that_differ_in_fine_tuning_alone_share_pretraining(
    toy_files: Path, tmp_path: Path, stubs: Stubs
) -> None:
    tree = {"grid": {"finetune.learning_rate": [1e-4, 1e-3]}, "baselines": []}
    outcome = compare(toy(toy_files, tmp_path / "out"), tree)
    assert stubs.of("pretrain") == ["learning_rate=0.0001/seed-0"]
    assert len(stubs.of("finetune")) == 2
    costs = [row.cost for row in outcome.rows]
    assert [cost.flops for cost in costs if cost] == [9000.0, 9000.0]  # as if each stood alone


def test_the_run_itself_lends_what_it_did(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    from endtask.pipeline.run import Run

    Run(toy(toy_files, tmp_path / "run")).execute()
    stubs.calls.clear()
    lenders = [tmp_path / "run", tmp_path / "absent"]
    outcome = compare(toy(toy_files, tmp_path / "out"), {"seeds": [0, 1], "baselines": []}, sources=lenders)
    assert stubs.calls == ["base/seed-1 pretrain", "base/seed-1 finetune", "base/seed-1 evaluate"]
    assert outcome.row("base").models == 4


@pytest.mark.long
def test_killed_and_resumed_equals_unbroken(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    tree = {**TWO, "baselines": ["tfidf", "no_corpus"]}
    unbroken = compare(toy(toy_files, tmp_path / "unbroken"), tree)
    whole = list(stubs.calls)
    places = ["no_corpus/seed-0 pack", "two/seed-1 evaluate"]
    for number, place in enumerate(places):
        stubs.calls.clear()
        stubs.trouble[place] = Killed()
        settings = toy(toy_files, tmp_path / f"broken-{number}")
        with pytest.raises(Killed):
            compare(settings, tree)
        assert values(compare(settings, tree)) == values(unbroken), place
        assert sorted(stubs.calls) == sorted([*whole, place])  # nothing was done twice but what was killed
    stubs.calls.clear()
    assert values(compare(settings, tree)) == values(unbroken)
    assert stubs.calls == []


@pytest.mark.parametrize("left", ["no report", "the report of its preparation"])
def test_a_report_that_a_kill_left_unwritten_is_written(
    toy_files: Path, tmp_path: Path, stubs: Stubs, left: str
) -> None:
    settings = toy(toy_files, tmp_path / "out")
    compare(settings, {"seeds": [0], "baselines": []})
    report = tmp_path / "out" / "variants" / "base" / "seed-0" / "report.html"
    before = report.read_bytes()
    if left == "no report":
        report.unlink()
    else:
        report.write_text("prepared")
        os.utime(report, ns=(0, 0))
    stubs.calls.clear()
    compare(settings, {"seeds": [0], "baselines": []})
    assert report.read_bytes() == before
    assert stubs.calls == []


def test_variants_and_seeds_may_be_added_and_left_out(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "out")
    small = compare(settings, {"variants": {"one": {}}, "baselines": ["tfidf"]})
    stubs.calls.clear()
    large = compare(
        settings, {"variants": {"one": {}, "three": {"pretrain.weighting.rho1": 7}}, "seeds": [0, 2], "baselines": []}
    )
    assert stubs.of("pretrain") == ["three/seed-0", "one/seed-2", "three/seed-2"]
    assert stubs.of("pack") == []
    assert [row.name for row in large.rows] == ["one", "three"]
    assert set(read_record(tmp_path / "out", "compare").spec["variants"]) == {"one", "three"}
    stubs.calls.clear()
    assert values(compare(settings, {"variants": {"one": {}}, "baselines": ["tfidf"]})) == values(small)
    assert stubs.calls == []


def test_more_fine_tuning_seeds_stand_on_the_same_pretraining(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "out")
    tree = {**TWO, "baselines": []}
    compare(settings, tree)
    stubs.calls.clear()
    more = compare(settings, {**tree, "finetune_seeds": [0, 1, 2]})
    assert stubs.of("pretrain") == []
    assert stubs.of("finetune") == stubs.of("evaluate") == ["one/seed-0", "two/seed-0", "one/seed-1", "two/seed-1"]
    assert [row.models for row in more.rows] == [6, 6]
    stubs.calls.clear()
    assert values(compare(settings, {**tree, "finetune_seeds": [0, 1, 2]})) == values(more)
    assert stubs.calls == []


def test_a_comparison_asked_otherwise_is_refused(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    compare(toy(toy_files, tmp_path / "out"), TWO)
    before = (tmp_path / "out" / RECORD).read_bytes()
    with pytest.raises(InputError, match=r"changed: retrieve\.top_k \(5 -> 6\) \(choose another --output"):
        compare(toy(toy_files, tmp_path / "out", retrieve={"top_k": 6}), TWO)
    changed = {**TWO, "variants": {"one": {}, "two": {"pretrain.learning_rate": 5e-3}}}
    with pytest.raises(InputError, match=r"variant 'two': pretrain\.learning_rate \(0\.003 -> 0\.005\)"):
        compare(toy(toy_files, tmp_path / "out"), changed)
    with pytest.raises(InputError, match="variant 'no_corpus': "):
        compare(toy(toy_files, tmp_path / "out"), {**TWO, "against": "two"})
    assert (tmp_path / "out" / RECORD).read_bytes() == before


def test_a_variant_that_nothing_was_done_for_may_change(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "out")
    stubs.trouble["two/seed-0 pretrain"] = TrainingError("too hot")
    compare(settings, {**TWO, "seeds": [0], "baselines": []})
    shutil.rmtree(tmp_path / "out" / "variants" / "two")
    variants = {"one": {}, "two": {"pretrain.learning_rate": 5e-3}}
    outcome = compare(settings, {"variants": variants, "seeds": [0], "baselines": []})
    assert (outcome.row("two").models, bool(outcome.failures)) == (2, False)  # what failed was another variant
    assert read_record(tmp_path / "out", "compare").spec["variants"]["two"] == {"pretrain.learning_rate": 0.005}


def test_before_the_first_stage_anything_may_change(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RECORD).write_text("half a rec")
    assert compare(toy(toy_files, tmp_path / "out"), {"baselines": []}).row("base").models == 2


def test_changed_data_is_refused(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes((toy_files / "corpus.jsonl").read_bytes())
    settings = toy(toy_files, tmp_path / "out", corpus={"sources": [{"path": str(corpus)}]})
    compare(settings, {"baselines": []})
    stubs.calls.clear()
    before = (tmp_path / "out" / RECORD).read_bytes()
    corpus.write_text(corpus.read_text() + '{"text": "one more star in the sky"}\n')
    with pytest.raises(InputError, match="what the stage retrieve reads changed since this run was made"):
        compare(settings, {"variants": {"base": {}, "new": {"pretrain.weighting.rho1": 3}}, "baselines": []})
    assert stubs.calls == []
    assert (tmp_path / "out" / RECORD).read_bytes() == before


@pytest.mark.long
def test_broken_training_ends_a_run_and_not_the_comparison(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["two/seed-0 pretrain"] = TrainingError("the loss was not finite")
    outcome = compare(toy(toy_files, tmp_path / "out"), TWO)
    row = outcome.row("two")
    assert (row.failures, row.models) == (("the loss was not finite",), 2)
    assert bool(outcome.failures)
    assert read_record(tmp_path / "out", "compare").trials == {"two/seed-0": {"failure": "the loss was not finite"}}
    assert "two failed: the loss was not finite" in (tmp_path / "out" / "compare.html").read_text()
    stubs.calls.clear()
    assert values(compare(toy(toy_files, tmp_path / "out"), TWO)) == values(outcome)
    assert stubs.calls == []  # a failure is an answer; it is not tried again


@pytest.mark.long
def test_a_failed_run_that_was_finished_by_hand_counts(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    unbroken = compare(toy(toy_files, tmp_path / "unbroken"), TWO)
    stubs.trouble["two/seed-0 pretrain"] = TrainingError("out of memory")
    assert compare(toy(toy_files, tmp_path / "out"), TWO).failures
    run(tmp_path / "out" / "variants" / "two" / "seed-0")
    stubs.calls.clear()
    outcome = compare(toy(toy_files, tmp_path / "out"), TWO)
    assert not bool(outcome.failures)
    assert values(outcome) == values(unbroken)
    assert stubs.calls == []
    assert "failed" not in (tmp_path / "out" / "compare.html").read_text()


def test_every_run_broken_is_said(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["base/seed-0 pretrain"] = TrainingError("too hot")
    with pytest.raises(InputError, match="no run trained to its end; the first: too hot"):
        compare(toy(toy_files, tmp_path / "out"), {"baselines": ["tfidf"]})


def test_the_variant_tested_against_broken_leaves_the_scores(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["one/seed-0 pretrain"] = TrainingError("too hot")
    outcome = compare(toy(toy_files, tmp_path / "out"), {**TWO, "seeds": [0]})
    assert outcome.row("one").score is None
    score = outcome.row("two").score
    assert score is not None
    assert score.low is not None
    assert score.difference is None


def test_other_trouble_stops_the_comparison(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["two/seed-0 pretrain"] = InputError("the disk is full")
    with pytest.raises(InputError, match="the disk is full"):
        compare(toy(toy_files, tmp_path / "out"), TWO)
    assert compare(toy(toy_files, tmp_path / "out"), TWO).row("two").models == 4


def test_until_prepares_all_variants_and_scores_nothing(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    tree = {**TWO, "seeds": [0]}
    outcome = compare(toy(toy_files, tmp_path / "out"), tree, until="pack")
    assert stubs.of("pretrain") == []
    assert len(list((tmp_path / "out" / "variants").glob("*/seed-*/pack/manifest.json"))) == 4
    assert [row.score for row in outcome.rows] == [None] * 4
    assert not outcome.is_tested
    assert not (tmp_path / "out" / "baselines").exists()
    compare(toy(toy_files, tmp_path / "out"), tree, until="pretrain")
    assert (len(stubs.of("pretrain")), stubs.of("finetune")) == (4, [])
    assert compare(toy(toy_files, tmp_path / "out"), tree).is_tested
    compare(toy(toy_files, tmp_path / "out"), tree, until="model")
    assert len(stubs.of("model")) == 4


def test_by_dev_no_run_looks_at_test(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "out", evaluate={"metric": "accuracy"})
    outcome = compare(settings, {**TWO, "by": "dev"})
    assert stubs.of("evaluate") == []
    assert outcome.evaluation.split == "dev"
    kept = json.loads((tmp_path / "out" / "baselines" / "tfidf-dev.json").read_text())
    assert len(kept["predicted"]) == len(outcome.evaluation.ids)  # there are no answers for test
    for row in outcome.rows:
        assert row.score is not None
        assert row.dev is not None
        assert row.score.mean == pytest.approx(row.dev.mean)  # dev's own predictions
        assert row.score.low is not None
    lead = outcome.row("two").score.difference  # type: ignore[union-attr]
    assert lead is not None
    assert lead.mean > 0
    with pytest.raises(InputError, match="by dev no run goes further than finetune"):
        compare(settings, {**TWO, "by": "dev"}, until="evaluate")
    assert compare(settings, TWO).evaluation.split == "test"


def test_runs_that_kept_no_dev_predictions(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    settings = toy(toy_files, tmp_path / "out")
    compare(settings, {"baselines": []})
    (tmp_path / "out" / "variants" / "base" / "seed-0" / "finetune" / "seed-1" / "dev_predictions.json").unlink()
    with pytest.raises(InputError, match=r"seed-1/dev_predictions\.json: no dev predictions"):
        compare(settings, {"baselines": [], "by": "dev"})


def test_variants_with_other_rows_are_refused(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    only_train = tmp_path / "task"
    only_train.mkdir()
    (only_train / "train.jsonl").write_bytes((toy_files / "task" / "train.jsonl").read_bytes())
    settings = toy(toy_files, tmp_path / "out", task={"path": str(only_train)})
    with pytest.raises(InputError, match="variant 'two': its dev or test rows are not those of 'one'"):
        compare(settings, {"variants": {"one": {}, "two": {"seed": 5}}, "baselines": []})
    assert not (tmp_path / "out").exists()
    given = toy(toy_files, tmp_path / "out")  # where the splits are given, the seed moves none of them
    outcome = compare(given, {"variants": {"one": {}, "two": {"seed": 5}}, "baselines": []})
    assert outcome.row("two").models == 2


def test_bad_places_and_data(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"has other files \(thesis.txt\)"):
        compare(toy(toy_files, tmp_path / "taken"), TWO)
    with pytest.raises(InputError, match="absent"):
        compare(toy(tmp_path / "absent", tmp_path / "new"), TWO)
    with pytest.raises(InputError, match=r"unknown stage 'pak' \(did you mean 'pack'\?\)"):
        compare(toy(toy_files, tmp_path / "new"), TWO, until="pak")
    bad = {"variants": {"one": {}, "two": {"corpus.sources": [{"path": "nowhere.jsonl"}]}}}
    with pytest.raises(InputError, match=r"variant 'two': nowhere\.jsonl"):
        compare(toy(toy_files, tmp_path / "new"), bad)
    with pytest.raises(InputError, match=r"variant 'checkpoint': models/none, key 'model\.path'"):
        compare(toy(toy_files, tmp_path / "new"), {"checkpoint": "models/none"})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["taken"]


def test_a_record_changed_by_hand(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no comparison here"):
        read_record(tmp_path, "compare")
    for text in ("{", "[]", '{"settings": {}}'):
        (tmp_path / RECORD).write_text(text)
        with pytest.raises(InputError, match="not the record of a comparison"):
            read_record(tmp_path, "compare")
