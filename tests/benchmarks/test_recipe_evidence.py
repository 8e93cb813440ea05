"""The ladder ends at the recipe, and its results become tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recipe.cells import (
    LADDER,
    LONG,
    PAPER,
    RECIPE,
    REST,
    TASKS,
    base_settings,
    different,
    flat,
    ladder_cells,
)
from benchmarks.recipe.page import collect, recipe_summary_table, recipe_table, screen_means, screens_table
from benchmarks.recipe.prepare import comparisons
from benchmarks.recipe.screen import Plan
from benchmarks.results_file import read_results
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.experiments import Study

DATA = Path("data")
PLANS = sorted((Path(__file__).parents[2] / "benchmarks" / "recipe" / "plans").glob("*.yaml"))


@pytest.mark.parametrize("task", TASKS)
def test_the_ladder_leads_from_the_paper_to_the_recipe(task: str) -> None:
    paper, recipe = base_settings(task, DATA, PAPER), base_settings(task, DATA)
    cells = ladder_cells(paper, recipe)
    assert list(cells) == ["paper", *(rung.name for rung in LADDER)]
    assert with_values(recipe, cells["paper"], "paper") == paper
    assert cells[LADDER[-1].name] == {}
    for values in cells.values():
        with_values(recipe, values, "rung")


def test_a_rung_changes_its_own_keys_alone() -> None:
    recipe = base_settings("chemprot", DATA)
    cells = ladder_cells(base_settings("chemprot", DATA, PAPER), recipe)
    trees = [flat(with_values(recipe, values, name)) for name, values in cells.items()]
    for rung, before, after in zip(LADDER, trees, trees[1:], strict=False):
        changed = set(different(after, before))
        assert changed, rung.name
        if REST not in rung.keys:
            assert changed <= {*rung.keys, *rung.meanwhile}


def test_every_comparison_can_be_read() -> None:
    recipe, paper, long = (base_settings("sciie", DATA, preset) for preset in (RECIPE, PAPER, LONG))
    found = comparisons(recipe, paper, long)
    assert list(found) == ["final", "random", "paper", "low", "high", "long"]
    assert with_values(recipe, found["long"]["variants"][LONG], LONG) == long
    for tree in found.values():
        Study.model_validate(tree)
    rungs = [name for bundle in ("paper", "low", "high") for name in found[bundle]["variants"]]
    assert rungs == list(ladder_cells(paper, recipe))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_plan_names_settings_that_exist(path: Path) -> None:
    plan, recipe = Plan.read(path), base_settings("chemprot", DATA)
    assert plan.seeds
    for name, values in plan.stage1.items():
        for job in plan.jobs(name, Path("run")):
            with_values(recipe, {**values, **job.values}, job.stage2)
    assert {name for names in plan.starts.values() for name in names} <= set(plan.stage1)


def compared(cells: dict[str, list[list[int]]]) -> dict[str, Any]:
    """A results file of `endtask compare` over eight rows, three of them leaks."""
    truth, leak_free = [0, 1, 2, 0, 1, 2, 0, 1], [1, 1, 1, 1, 1, 0, 0, 0]

    def run(cell: str, predicted: list[list[int]]) -> dict[str, Any]:
        right = [[a == b for a, b in zip(one, truth, strict=True)] for one in predicted]
        clean = [[ok for ok, keep in zip(one, leak_free, strict=True) if keep] for one in right]
        cost = {"train_seconds": 90.0, "text_bytes": 5, "matmul_flops": 1e15}
        scores = {"dev": [0.5] * len(right), "test": [sum(one) / 8 for one in right]}
        scores["leak_free"] = [sum(one) / 5 for one in clean]
        seeds = list(range(len(right)))
        return {"cell": cell, "seed": 0, "finetune_seeds": seeds, **scores, "cost": cost, "predicted": predicted}

    head = {"metric": "accuracy", "split": "test", "truth": truth, "leak_free": leak_free, "kind": "text"}
    runs = [run(name, predicted) for name, predicted in cells.items()]
    return {**head, "labels": ["a", "b", "c"], "machine": {"gpus": ["a GPU"]}, "runs": runs}


def test_results_become_tables(tmp_path: Path) -> None:
    good, bad = [[0, 1, 2, 0, 1, 2, 0, 1], [0, 1, 2, 0, 1, 2, 0, 0]], [[0] * 8, [1] * 8]
    final = compared({"recipe": good, "tfidf": bad[:1], "no_corpus": bad})
    (tmp_path / "chemprot-final.json").write_text(json.dumps(final))
    (tmp_path / "chemprot-pretrained.json").write_text(json.dumps(compared({"base": bad})))
    (tmp_path / "chemprot-high.json").write_text(json.dumps(compared({"text": bad, "rdrop": good})))
    collect(tmp_path, tmp_path)
    results = read_results("recipe", tmp_path)
    statistics = results.summary["chemprot"]
    assert isinstance(statistics, dict)
    assert (statistics["test_mean"], statistics["seeds"], statistics["minutes"]) == (0.9375, 2, 1.5)
    assert statistics["clean_test_mean"] == 1.0
    assert {"tfidf", "task_only", "pretrained_small", "test_std", "flops"} <= statistics.keys()
    table = recipe_table(results)
    assert "**ChemProt**" in table
    assert "**The ladder, ChemProt**" in table
    assert "a billion sentence pairs" in table
    assert "Trained on a GPU" in table
    short = recipe_summary_table(results)
    assert short.startswith("|  | the recipe | small pretrained encoder* | without corpus | TF-IDF | FLOPs |")
    assert "| ChemProt | 93.8 ± 8.8 | 37.5 | 37.5 | 37.5 | 1e+15 |" in short
    assert "a billion sentence pairs" in short


def test_what_was_not_measured_of_all_tasks_is_not_in_the_summary(tmp_path: Path) -> None:
    good, bad = [[0, 1, 2, 0, 1, 2, 0, 1]], [[0] * 8]
    (tmp_path / "chemprot-final.json").write_text(json.dumps(compared({"recipe": good, "tfidf": bad})))
    (tmp_path / "sciie-final.json").write_text(json.dumps(compared({"recipe": good, "tfidf": bad, "no_corpus": bad})))
    (tmp_path / "citation_intent-final.json").write_text(json.dumps(compared({"tfidf": bad})))
    collect(tmp_path, tmp_path)
    results = read_results("recipe", tmp_path)
    assert list(results.summary) == ["chemprot", "sciie"], "a comparison stopped before the recipe's first run waits"
    assert recipe_summary_table(results).startswith("|  | the recipe | TF-IDF | FLOPs |")
    assert "billion" not in recipe_table(results)


def test_screens_are_kept_together_with_earlier_ones(tmp_path: Path) -> None:
    def rows(dev: float) -> str:
        stage1 = {"skip_pretraining": "base", "values": {"budget": "9steps"}, "seconds": 1.0, "gpu": "a GPU"}
        job = {
            "skip_pretraining": "base",
            "skip_finetuning": "mean",
            "run": "/somewhere",
            "values": {"model.pooling": "mean"},
        }
        return "".join(json.dumps(row) + "\n" for row in (stage1, *({**job, "seed": n, "dev": dev} for n in (0, 1))))

    for name, dev in (("first", 0.5), ("second", 0.6), ("second", 0.7)):
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / f"{name}.jsonl").write_text(rows(dev))
        collect(tmp_path / "new", tmp_path)
        (tmp_path / "new" / f"{name}.jsonl").unlink()
    results = read_results("recipe_screens", tmp_path)
    assert [(row["screen"], row["dev"]) for row in screen_means(results.rows)] == [("first", 0.5), ("second", 0.7)]
    assert results.summary["second"] == {"dev": 0.7, "skip_pretraining": "base", "skip_finetuning": "mean"}
    assert "/somewhere" not in json.dumps(results.rows)
    assert "| base | mean | 70.0 ± 0.0 | 2 | `budget=9steps`, `model.pooling=mean` |" in screens_table(results)


def test_what_is_compared_with_nothing_yet_waits(tmp_path: Path) -> None:
    (tmp_path / "chemprot-pretrained.json").write_text(json.dumps(compared({"base": [[0] * 8]})))
    (tmp_path / "chemprot-low.json").write_text(json.dumps(compared({"size": [[0] * 8]})))
    with pytest.raises(InputError, match="no results of a comparison there"):
        collect(tmp_path, tmp_path)


def test_nothing_to_collect_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results of a comparison there"):
        collect(tmp_path, tmp_path)
