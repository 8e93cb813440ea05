"""The table of a comparison's finished runs, without training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from endtask.errors import InputError, TrainingError
from endtask.evaluation.significance import bootstrap_interval, metric_permutation
from endtask.experiments import ComparisonResult, compare, compare_finished, comparison, read_comparison_folder
from endtask.experiments.compare_report import missing_notes
from endtask.experiments.record import read_record
from endtask.experiments.task_comparison import RECORD
from endtask.io.processes import run_lock
from tests.experiments.compare_stubs import Stubs, toy
from tests.experiments.test_compare import Killed, values
from tests.toy_run import write_toy

TREE = {
    "variants": {"one": {}, "two": {"pretrain.learning_rate": 3e-3}},
    "seeds": [0, 1],
    "baselines": ["tfidf", "random"],
}


def stopped(data: Path, folder: Path, stubs: Stubs, place: str) -> Path:
    """The folder of a comparison that was killed at a stage of a run; the calls before are forgotten."""
    stubs.trouble[place] = Killed()
    with pytest.raises(Killed):
        compare(toy(data, folder), TREE)
    stubs.calls.clear()
    return folder


def judged(folder: Path, **options: Path) -> ComparisonResult:
    settings, study, _ = read_comparison_folder(folder)
    return compare_finished(settings, study, **options)


def answers(folder: Path, outcome: ComparisonResult) -> np.ndarray:
    """What a run's two models said, (1, models, rows), from its own file."""
    lines = [json.loads(line) for line in (folder / "evaluate" / "predictions.jsonl").read_text().splitlines()]
    labels = outcome.evaluation.labels
    return np.asarray([[[labels.index(line["predicted"][seed]) for line in lines] for seed in ("0", "1")]])


def test_finished_runs_are_tested_and_missing_ones_are_named(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    folder = stopped(toy_files, tmp_path / "out", stubs, "two/seed-1 evaluate")
    file = tmp_path / "results.json"
    outcome = judged(folder, results=file)
    assert stubs.calls == []
    assert [(row.name, row.models) for row in outcome.rows] == [("one", 4), ("two", 2), ("tfidf", 1), ("random", 2)]
    assert outcome.missing == ("two/seed-1", "random/seed-1")
    assert outcome.is_tested
    assert not outcome.is_complete
    tree = json.loads(file.read_text())
    assert (tree["complete"], tree["missing"]) == (False, list(outcome.missing))
    assert [run["variant"] for run in tree["trials"]] == ["one", "one", "two", "random", "tfidf"]
    page = (folder / "compare.html").read_text()
    assert "Not finished and not counted: two/seed-1, random/seed-1." in page
    assert "Not finished yet" not in page


def test_unequal_seeds_all_count_and_are_drawn_apart(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    folder = stopped(toy_files, tmp_path / "out", stubs, "two/seed-1 evaluate")
    outcome = judged(folder)
    runs, rows = folder / "variants", outcome.evaluation
    two = answers(runs / "two" / "seed-0", outcome)
    one = np.concatenate([answers(runs / "one" / f"seed-{seed}", outcome) for seed in (0, 1)])
    difference = outcome.row("two").score.difference  # type: ignore[union-attr]
    assert difference is not None
    interval = bootstrap_interval(
        two, one, rows.truth, rows.measure, samples=comparison.PERMUTATIONS, paired_runs=False
    )
    assert (difference.low, difference.high) == interval
    assert difference.p_value == metric_permutation(
        two, one, rows.truth, rows.measure, permutations=comparison.PERMUTATIONS
    )
    note = "Other seeds are finished than of one: two, random. All finished ones count"
    assert missing_notes(outcome)[1].startswith(note)


def test_equal_seeds_are_no_note(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    outcome = judged(stopped(toy_files, tmp_path / "out", stubs, "random/seed-0 pretrain"))
    missing = "one/seed-1, two/seed-1, random/seed-0, random/seed-1"
    assert missing_notes(outcome) == [f"Not finished and not counted: {missing}."]


def test_many_missing_runs_are_counted(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    stubs.trouble["one/seed-1 pretrain"] = Killed()
    with pytest.raises(Killed):
        compare(toy(toy_files, tmp_path / "out"), {**TREE, "seeds": list(range(9)), "baselines": []})
    note = missing_notes(judged(tmp_path / "out"))[0]
    assert note.startswith("Not finished and not counted: one/seed-1, ")
    assert note.endswith(", two/seed-4 and 4 more.")


def test_the_comparison_can_still_go_on(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    unbroken = compare(toy(toy_files, tmp_path / "unbroken"), TREE)
    folder = stopped(toy_files, tmp_path / "out", stubs, "two/seed-0 pretrain")
    asked = read_record(folder, "compare").spec
    settings, study, _ = read_comparison_folder(folder)
    first = compare_finished(settings, study.model_copy(update={"seeds": (0,)}))
    assert (first.row("one").models, first.missing) == (2, ("two/seed-0", "random/seed-0"))
    assert read_record(folder, "compare").spec == asked
    assert values(compare(settings, study)) == values(unbroken)


def test_of_a_whole_comparison_it_is_the_same_table(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    whole = compare(toy(toy_files, tmp_path / "out"), TREE)
    assert judged(tmp_path / "out").to_dict() == whole.to_dict()


def test_neither_corpus_nor_baselines_have_to_be_there(tmp_path: Path, stubs: Stubs) -> None:
    data = write_toy(tmp_path / "data")
    folder = stopped(data, tmp_path / "out", stubs, "two/seed-1 pretrain")
    (data / "corpus.jsonl").unlink()
    shutil.rmtree(folder / "baselines")
    assert [row.models for row in judged(folder).rows] == [4, 2, 1, 2]


def test_another_task_is_refused(tmp_path: Path, stubs: Stubs) -> None:
    data = write_toy(tmp_path / "data")
    folder = stopped(data, tmp_path / "out", stubs, "two/seed-1 pretrain")
    before = (folder / "compare.html").read_bytes()
    dev = data / "task" / "dev.jsonl"
    dev.write_text(dev.read_text().replace("food", "sport"))
    with pytest.raises(InputError, match="one/seed-0: the task changed since this run was made"):
        judged(folder)
    assert (folder / "compare.html").read_bytes() == before


def test_by_dev_runs_count_that_were_not_evaluated(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    folder = stopped(toy_files, tmp_path / "out", stubs, "one/seed-1 evaluate")
    settings, study, _ = read_comparison_folder(folder)
    by_dev = compare_finished(settings, study.model_copy(update={"by": "dev"}))
    assert (by_dev.evaluation.split, by_dev.row("one").models, judged(folder).row("one").models) == ("dev", 4, 2)


def test_nothing_finished_is_refused_and_teaches(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    with pytest.raises(InputError, match="no comparison here"):
        compare_finished(toy(toy_files, tmp_path / "absent"), TREE)
    folder = stopped(toy_files, tmp_path / "out", stubs, "one/seed-0 evaluate")
    before = (folder / RECORD).read_bytes()
    hint = f"no run of 6 is finished: there is nothing to test \\(endtask compare {folder} resumes"
    with pytest.raises(InputError, match=hint):
        judged(folder, results=tmp_path / "results.json")
    assert not (tmp_path / "results.json").exists()
    assert not (folder / "baselines").exists()
    assert (folder / RECORD).read_bytes() == before
    for key in ("one/seed-0", "one/seed-1", "two/seed-0", "two/seed-1", "random/seed-0", "random/seed-1"):
        stubs.trouble[f"{key} evaluate"] = TrainingError("too hot")
    with pytest.raises(InputError, match="no run trained to its end"):
        compare(*read_comparison_folder(folder)[:2])
    with pytest.raises(InputError, match="no run of 6 is finished, 6 runs failed"):
        judged(folder)


def test_a_comparison_at_work_is_left_alone(toy_files: Path, tmp_path: Path, stubs: Stubs) -> None:
    folder = stopped(toy_files, tmp_path / "out", stubs, "two/seed-1 pretrain")
    with run_lock(folder), pytest.raises(InputError, match="another process works on this run"):
        judged(folder)
