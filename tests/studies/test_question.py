"""From the files that come back of a study with one question to its section: the verdict is that of the numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results_file import read_results
from endtask.errors import InputError
from endtask.experiments.spec import BASELINES
from studies import collect as collecting
from studies import estimates
from studies.claims import claim_rows
from studies.collect import TEMPLATES, collect, collect_arms
from studies.pages.question import QUESTIONS, question_section
from tests.studies.test_collect import results_file


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for benchmarks/results."""
    monkeypatch.setattr(estimates, "RESULTS", tmp_path)
    monkeypatch.setattr(estimates, "read_results", lambda name: read_results(name, tmp_path))
    return tmp_path


def claim(number: int) -> dict[str, Any]:
    return next(row for row in claim_rows() if row["claim"] == number)


def test_questions_name_variants_of_their_studies() -> None:
    for name, pairs in QUESTIONS.items():
        if name != collecting.FEW_SHOT_ARMS:
            studies = [*TEMPLATES[name].studies, *TEMPLATES[name].beside]
            files = [collecting.STUDIES / f"{study}.yaml" for study in studies]
            variants = {*BASELINES}.union(*(collecting.read_study(file).variants for file in files))
            assert {variant for pair in pairs for variant in (pair.better, pair.worse)} <= variants


def test_a_study_that_came_back_decides_its_claim_and_fills_its_section(results: Path) -> None:
    truth = [0, 1] * 40
    nearly = [1 - answer if index % 10 == 0 else answer for index, answer in enumerate(truth)]
    poor = [1 - answer if index % 3 == 0 else answer for index, answer in enumerate(truth)]
    runs = {("rho2-20", seed): nearly for seed in range(3)} | {("rho2-0", seed): poor for seed in range(3)}
    came_back = results_file(results / "came-back" / "chemprot.json", runs, truth)
    assert claim(3)["verdict"] == "undecided"
    collect("tlm_rho2", came_back.parent, results)
    assert claim(3)["verdict"] == "holds"
    section = question_section("tlm_rho2")(read_results("tlm_rho2", results))
    first = section.splitlines()[2]
    assert first.startswith("| rho2 = 20 is better than 0 | ChemProt +")
    assert first.endswith("**holds** |")
    assert "rho2 = 1000" not in section, "what was not trained is not shown"


def test_a_partly_finished_study_has_a_section_and_decides_by_what_is_there(results: Path) -> None:
    truth = [0, 1] * 40
    nearly, poor = (
        [1 - answer if index % step == 0 else answer for index, answer in enumerate(truth)] for step in (10, 3)
    )
    trained = {(name, seed): said for seed in range(3) for name, said in {"rho2-20": nearly, "rho2-100": poor}.items()}
    complete = trained | {("rho2-0", seed): poor for seed in range(3)}
    folder = results_file(results / "came-back" / "chemprot.json", trained, truth).parent
    collect("tlm_rho2", folder, results)
    assert claim(3)["verdict"] == "undecided"
    section = question_section("tlm_rho2")(read_results("tlm_rho2", results))
    assert "against rho2-0 |" in section
    assert section.count("\n| rho2 = ") == 2, "a row for each trained variant, without a statement on rho2 = 0"
    results_file(folder / "sciie.json", complete, truth)
    collect("tlm_rho2", folder, results)
    assert [part["task"] for part in claim(3)["comparisons"]] == ["SciERC"]
    assert claim(3)["verdict"] == "holds"
    section = question_section("tlm_rho2")(read_results("tlm_rho2", results))
    assert [line for line in section.splitlines() if line.startswith("**")] == ["**ChemProt**", "**SciERC**"]


def few_shot_file(folder: Path, accuracies: dict[tuple[str, str], float]) -> Path:
    """A copy of few-shot.json, with an accuracy for each pre-training and head."""
    rows = [
        {
            "name": f"{run} {head}",
            "run": run,
            "head": head,
            "entries": [
                {"labels": 200, "trials": 10, "scores": {"accuracy": {"mean": value}, "perplexity": {"mean": 2.0}}}
            ],
        }
        for (run, head), value in accuracies.items()
    ]
    folder.mkdir()
    path = folder / "ct.json"
    path.write_text(json.dumps({"outcome": {"tables": [{"name": "arms", "rows": rows}]}}))
    return path


def test_arms_of_a_few_shot_study_are_tested_over_pre_trainings(results: Path) -> None:
    accuracies = {(f"plain-{seed}", "new"): 0.77 + seed / 1000 for seed in range(3)}
    accuracies |= {(f"aligned-{seed}", "new"): 0.80 + seed / 1000 for seed in range(3)}
    accuracies |= {(f"aligned-{seed}", "keep"): 0.79 + seed / 50 for seed in range(3)}
    collect_arms(few_shot_file(results / "came-back", accuracies).parent, results)
    assert (claim(13)["verdict"], claim(14)["verdict"]) == ("holds", "undecided")
    section = question_section(collecting.FEW_SHOT_ARMS)(read_results(collecting.FEW_SHOT_ARMS, results))
    assert "| aligned objectives help | tagging +3.0" in section
    (results / "other").mkdir()
    (results / "other" / "ct.json").write_text("{}")
    with pytest.raises(InputError, match=r"not the few-shot\.json"):
        collect_arms(results / "other", results)
