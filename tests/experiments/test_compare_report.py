"""The tables, the conclusion, the page and the chart of a comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from endtask.config import resolve
from endtask.evaluation.task_metrics import Measure
from endtask.experiments.compare_report import charts, notes, print_comparison, verdict, write_comparison_page
from endtask.experiments.comparison import ComparisonResult, ResultTable, TableRow
from endtask.experiments.published_scores import published_scores
from endtask.experiments.statistics import Difference, Score
from endtask.experiments.trial_results import Cost, EvaluationSet, TrialResult
from endtask.experiments.variants import Variant
from endtask.experiments.weight_curves import weight_charts

COST = Cost(6e12, 5e12, 60.0, 90.0, 150_000_000, 42_000_000)


def outcome(folder: Path, *, split: str = "test", leaks: bool = False, tested: bool = True) -> ComparisonResult:
    ids = tuple(f"{split}-{number}" for number in range(139))
    clean = np.arange(139) >= (52 if leaks else 0)
    evaluation = EvaluationSet(
        split, Measure("micro_f1"), ("a", "b"), ids, np.zeros(139, dtype=np.int64), clean, np.arange(139)
    )
    base = Score(0.75, 0.01, 0.72, 0.78) if tested else Score(0.75, 0.01)
    rows = (
        _row("ours", base, leaks),
        _row("better<b>", replace(base, mean=0.8, difference=Difference(0.05, 0.0001, 0.0004, 0.02, 0.08)), leaks),
        _row("worse", replace(base, mean=0.7, difference=Difference(-0.05, 0.0001, 0.0004, -0.08, -0.02)), leaks),
        _row("unsure", replace(base, mean=0.76, difference=Difference(0.01, 0.4, 0.4, -0.02, 0.04)), leaks),
        TableRow("tfidf", "tfidf", True, {}, "TF-IDF", 1, base, None, base, Cost(0, 0, 0.5, 0.5, 0, None)),
        TableRow("broken", "broken", False, {"pretrain.learning_rate": 9.0}, "", failures=("the loss was not finite",)),
    )
    run = TrialResult(0, (0, 1), (0.7, 0.7), np.zeros((2, 139), dtype=np.int64), COST)
    baseline = replace(run, seed=None)
    runs = {row.name: (() if row.failures else (baseline,) if row.is_baseline else (run, run)) for row in rows}
    return ComparisonResult(folder, evaluation, (ResultTable("", "", "ours", rows),), runs, tested)


def with_rows(found: ComparisonResult, *rows: TableRow, against: str = "ours") -> ComparisonResult:
    return replace(found, tables=(ResultTable("", "", against, rows),))


def _row(name: str, statistics: Score, leaks: bool) -> TableRow:
    return TableRow(
        name,
        name,
        False,
        {"pretrain.weighting.rho1": 99},
        "",
        4,
        statistics,
        statistics if leaks else None,
        statistics,
        COST,
    )


def test_learned_weights_are_drawn_as_means_over_seeds(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    trials = {**found.trials, "ours": (found.trials["ours"][0], replace(found.trials["ours"][0], seed=1))}
    for seed, weights in ((0, (0.5, 0.3)), (1, (0.5, 0.2))):
        folder = tmp_path / "variants" / "ours" / f"seed-{seed}" / "pretrain"
        folder.mkdir(parents=True)
        manifest = {"fingerprint": "f", "status": "finished", "seconds": 1.0, "counts": {}, "versions": {}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        rows = [{"step": step, "weight/task": value} for step, value in enumerate(weights, start=1)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [chart] = weight_charts(replace(found, trials=trials), found.tables[0])
    assert "Weights, ours, mean of 2 pre-trainings" in chart
    assert "0.25" in chart
    assert len(charts(found, found.tables[0])) == 3  # with scores and costs; found's seeds are the first run twice


def test_the_verdict(tmp_path: Path) -> None:
    assert verdict(outcome(tmp_path)) == (
        "ours: micro-F1 75.0 ± 1.0 on test (139 rows, 4 models). "
        "Clearly better: better<b> (+5.0 points, Holm's p = 0.0004). "
        "Clearly worse: worse (-5.0 points, Holm's p = 0.0004). "
        "No clear difference: unsure (+1.0 points, Holm's p = 0.4000)."
    )
    found = outcome(tmp_path)
    seeds_disagree = replace(
        found.rows[0],
        name="split",
        title="split",
        score=Score(0.8, 0.1, difference=Difference(0.05, 0.01, 0.02, -0.01, 0.1)),
    )
    trials = {**found.trials, "split": found.trials["ours"]}
    said = verdict(replace(with_rows(found, found.rows[0], seeds_disagree), trials=trials))
    assert said.endswith(
        "No clear difference: split (+5.0 points, Holm's p = 0.0200, but -1.0 to +10.0 over other seeds)."
    )
    nothing = with_rows(found, *found.rows, against="broken")
    assert verdict(nothing) == "broken has no score yet."


def with_runs(found: ComparisonResult, **counts: int) -> ComparisonResult:
    """The outcome with other numbers of pre-training seeds in some of its variants."""
    return replace(found, trials={name: found.trials[name][: counts.get(name, 2)] for name in found.trials})


def test_one_seed_makes_nothing_clear(tmp_path: Path) -> None:
    """p holds the trained models fixed, and the interval has no other seed to draw."""
    found = outcome(tmp_path)
    one_seed = "on these rows (one seed: another may differ)"
    said = verdict(with_runs(found, ours=1))  # against which all are tested
    assert f" Better {one_seed}: better<b> (+5.0 points, Holm's p = 0.0004). Worse {one_seed}: worse (-5.0 " in said
    assert "Clearly" not in said
    assert f'<p class="verdict">{escape(said)}</p>' in write_comparison_page(with_runs(found, ours=1)).read_text(
        "utf-8"
    )
    one_of_them = verdict(with_runs(found, worse=1))
    assert " Clearly better: better<b> (" in one_of_them
    assert f" Worse {one_seed}: worse (" in one_of_them
    assert "Clearly worse" not in one_of_them


@pytest.mark.parametrize(
    ("seeds", "is_clear"), [((0, 1), True), ((0,), False)], ids=["two fine-tunings", "one fine-tuning"]
)
def test_without_stage_one_fine_tuning_seeds_count(tmp_path: Path, seeds: tuple[int, ...], is_clear: bool) -> None:
    found = with_runs(outcome(tmp_path), worse=1)
    as_it_is = tuple(replace(row, is_pretrained=row.name != "worse") for row in found.rows)
    trials = {**found.trials, "worse": (replace(found.trials["worse"][0], finetune_seeds=seeds),)}
    assert ("Clearly worse: worse" in verdict(replace(with_rows(found, *as_it_is), trials=trials))) == is_clear


def test_an_untrained_baseline_needs_no_seed(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    worse = replace(found.row("tfidf"), score=found.row("worse").score)
    assert "Clearly worse: tfidf (-5.0 points" in verdict(with_rows(found, found.rows[0], worse))


def test_what_a_reader_has_to_know(tmp_path: Path) -> None:
    assert any("Choose settings on dev" in note for note in notes(outcome(tmp_path)))
    assert not any("leak-free" in note for note in notes(outcome(tmp_path)))
    on_dev = " ".join(notes(outcome(tmp_path, split="dev", leaks=True)))
    assert "Choose settings on dev" not in on_dev
    assert "dev, which also chose the epoch" in on_dev
    assert "52 of the 139 rows of dev are in train too" in on_dev
    assert "each variant was pre-trained 2 times." in on_dev
    found = outcome(tmp_path)
    once = replace(found, trials={**found.trials, "ours": found.trials["ours"][:1]})
    assert any("variants were pre-trained 1 to 2 times, and with one time" in note for note in notes(once))
    alone = replace(found, trials={name: runs[:1] for name, runs in found.trials.items()})
    assert any("each variant was pre-trained once, so" in note for note in notes(alone))
    several = replace(found, trials={**found.trials, "ours": found.trials["ours"] * 2})
    assert any(note.endswith("variants were pre-trained 2 to 4 times.") for note in notes(several))
    assert any(
        note == "± is the standard deviation over all models of a variant." for note in notes(replace(found, trials={}))
    )


def test_a_split_that_is_all_in_train_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome(tmp_path)
    leaked = replace(found, evaluation=replace(found.evaluation, leak_free=np.zeros(139, dtype=bool)))
    said = "All 139 rows of test are in train too: the scores say nothing about new texts."
    assert said in notes(leaked)
    print_comparison(leaked)
    assert said in capsys.readouterr().out.splitlines()


def words(lines: list[str]) -> dict[str, str]:
    """The rows of a printed table by their first word, blanks made single."""
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.strip()}


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(outcome(tmp_path, leaks=True))
    scores, costs = (words(f"variant{part}".splitlines()) for part in capsys.readouterr().out.split(" variant")[1:])
    assert scores["variant"] == "models micro-F1 on test 95% dev against ours 95% p p (Holm) leak-free its p (Holm)"
    assert scores["ours"] == "4 75.0 ± 1.0 72.0 to 78.0 75.0 ± 1.0 75.0 ± 1.0"
    difference = "+1.0 -2.0 to +4.0 0.4000 0.4000"
    assert scores["unsure"] == f"4 76.0 ± 1.0 72.0 to 78.0 76.0 ± 1.0 {difference} 76.0 ± 1.0 0.4000"
    assert scores["broken"] == "failed"
    assert costs["ours"] == "42 M 5.0e12 6.0e12 1 min 0 s 1 min 30 s 150 MB"
    assert costs["tfidf"] == "0.5 s 0.5 s none"
    assert costs["tfidf:"] == "TF-IDF"


def test_on_dev_there_is_one_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(outcome(tmp_path, split="dev"))
    scores = words(capsys.readouterr().out.splitlines()[1:2])
    assert scores == {"variant": "models micro-F1 on dev 95% against ours 95% p p (Holm)"}


def test_the_page(tmp_path: Path) -> None:
    page = write_comparison_page(outcome(tmp_path)).read_text(encoding="utf-8")
    assert "<mark>ours</mark>" in page
    assert "better&lt;b&gt;" in page
    assert "better<b>" not in page
    assert "broken failed: the loss was not finite" in page
    assert "pretrain.weighting.rho1 = 99" in page
    assert 'href="variants/ours/seed-0/report.html"' in page
    assert "Not finished yet" not in page
    assert "http" not in page.replace("http-equiv", "")
    early = write_comparison_page(outcome(tmp_path, tested=False)).read_text(encoding="utf-8")
    assert "Not finished yet: intervals and tests come at the end." in early


def test_scores_and_costs_are_drawn_with_their_intervals(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    scores, costs = map(str, charts(found, found.tables[0]))
    assert (scores.count('<circle class="dot'), scores.count('class="range')) == (5, 5)
    assert "ours 75.0" in scores
    # The baseline was not trained, and has no place on an axis of FLOPs.
    assert (costs.count('<circle class="dot'), costs.count('class="whisker')) == (4, 4)
    assert "ours 75.0 at 6.0e12" in costs
    early = outcome(tmp_path, tested=False)
    assert not any("whisker" in str(chart) or "range" in str(chart) for chart in charts(early, early.tables[0]))


def test_the_papers_models_are_drawn_on_their_test_sets_only(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    labels = tuple("abcdef")
    on_acl_arc = replace(found, evaluation=replace(found.evaluation, labels=labels, measure=Measure("macro_f1")))
    page = write_comparison_page(on_acl_arc).read_text(encoding="utf-8")
    assert "TLM small 69.8 at 2.7e18" in page
    assert page.count('<circle class="hollow') == 5
    assert "hollow" not in "".join(map(str, charts(found, found.tables[0])))
    on_dev = replace(on_acl_arc, evaluation=replace(on_acl_arc.evaluation, split="dev"))
    assert published_scores(on_dev.evaluation) == []


def test_variants_with_another_tokenizer_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome(tmp_path)
    assert not any("tokenizer" in note for note in notes(found))
    markers = {"ours": "a", "worse": "a", "unsure": "b", "better<b>": "c"}
    rows = [replace(row, tokenizer=markers.get(row.name)) for row in found.rows]
    told = "Another tokenizer than ours, learned from other texts: better<b>, unsure; tokenizer.path gives"
    assert [note for note in notes(with_rows(found, *rows)) if note.startswith(told)]
    print_comparison(with_rows(found, *rows))
    assert told in capsys.readouterr().out
    given = [replace(row, tokenizer=None if row.name == "ours" else row.tokenizer) for row in rows]
    assert not any("tokenizer" in note for note in notes(with_rows(found, *given)))


def test_the_digest_of_a_tokenizer_is_that_of_its_file(tmp_path: Path) -> None:
    variants = {name: Variant(name, resolve({}), (0, 1)) for name in ("one", "two", "same", "none")}
    for name, content in (("one", "a"), ("two", "b"), ("same", "a")):
        folder = variants[name].trials(tmp_path)[1].folder / "pack" / "tokenizer"
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    markers = {name: variant.learned_tokenizer(tmp_path) for name, variant in variants.items()}
    assert markers["one"] == markers["same"] != markers["two"]
    assert markers["none"] is None
    given = Variant("one", resolve({"tokenizer": {"path": "there"}}), (0, 1))
    assert given.learned_tokenizer(tmp_path) is None
