"""The cells of the mix can be trained, and their results become a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.mix import CELLS, COMMON, FIXED, META, PARTS, TASKS, collect, main, mix_table, values_of
from benchmarks.recipe.cells import base_settings
from benchmarks.results_file import read_results
from benchmarks.tartan.cells import DOMAINS
from endtask.config.overrides import with_values
from endtask.errors import InputError

from .test_recipe_evidence import compared


@pytest.mark.parametrize("task", TASKS)
def test_the_cells_differ_in_the_mix_alone(task: str) -> None:
    recipe = with_values(base_settings(task, Path("data")), COMMON, task)
    found = {name: with_values(recipe, values, name) for name, (_, values) in CELLS.items()}
    for name, settings in found.items():
        changed = {key for key in type(settings).model_fields if getattr(settings, key) != getattr(recipe, key)}
        assert changed == (set() if name == "alone" else {"train"}), name
    assert {found[name].pretrain.weighting for name in ("meta", "equal")} == {"meta", "equal"}
    assert found["rho1-3-rho2-1"].pretrain.weighting.rho1 == 3
    assert {cell for part in PARTS.values() for cell in part} == set(CELLS)
    assert all(set(part) & set(FIXED) for part in PARTS.values())
    weights = [one.weight for one in found["meta-start"].pretrain.objectives.values()]
    assert weights == [1 / 20 / 21 * 420, 1 / 20 * 20 / 21 * 420, 19 / 20 * 420]  # task, its masked LM, the selection's


@pytest.mark.parametrize("task", TASKS)
def test_a_part_reads_what_influence_selects(task: str) -> None:
    recipe = base_settings(task, Path("data"))
    usual, found = (with_values(recipe, values_of(task, part, Path("data")), part) for part in ("bm25", "iss"))
    assert (usual.select.name, found.select.name) == ("best_rank", "influence")
    assert usual.pretrain == found.pretrain
    assert [Path(source.path).name for source in found.corpus.sources] == [f"{one}.jsonl.zst" for one in DOMAINS[task]]


def test_results_become_a_table_with_the_fixed_mix_that_dev_chose(tmp_path: Path) -> None:
    good, bad = [[0, 1, 2, 0, 1, 2, 0, 1]] * 2, [[0] * 8, [1] * 8]
    tree = compared({META: good, "equal": bad, "alone": bad, "rho1-19-rho2-20": bad})
    for run in tree["runs"]:
        run["dev"] = [0.9, 0.9] if run["cell"] == "rho1-19-rho2-20" else [0.5, 0.5]
    (tmp_path / "sciie-bm25.json").write_text(json.dumps(tree))
    collect(tmp_path, tmp_path)
    results = read_results("mix", tmp_path)
    tasks = results.summary["sciie"]
    assert isinstance(tasks, dict)
    statistics = tasks["bm25"]
    assert (statistics["best_fixed"], statistics["meta"]["lead"]) == ("rho1-19-rho2-20", 0.625)
    assert statistics["best_fixed"] in FIXED
    table = mix_table(results)
    assert "**SciERC, on what BM25 selects**" in table
    assert "**ChemProt**" not in table
    assert "against rho1 = 19, rho2 = 20, the fixed mix that is best on dev" in table
    assert "| META, half of what is read the task's | 100.0 ± 0.0 | +62.5" in table
    assert "**Learned weights against the same weights held fixed**" in table
    assert table.count("| SciERC, half of what is read the task's, on what BM25 selects | +62.5") == 1


def test_each_part_is_judged_by_itself(tmp_path: Path) -> None:
    good, bad = [[0, 1, 2, 0, 1, 2, 0, 1]] * 2, [[0] * 8, [1] * 8]
    for part, cells in (("bm25", {META: good, "alone": bad}), ("iss", {"alone": good, "meta-start": good})):
        (tmp_path / f"sciie-{part}.json").write_text(json.dumps(compared(cells)))
    collect(tmp_path, tmp_path)
    results = read_results("mix", tmp_path)
    tasks = results.summary["sciie"]
    assert isinstance(tasks, dict)
    assert tasks["bm25"][META]["lead"] == 0.625  # against its own runs of `alone`, not those of the other part
    assert tasks["iss"]["meta-start"]["lead"] == 0
    table = mix_table(results)
    assert table.index("SciERC, on what BM25") < table.index("META, half") < table.index("SciERC, on a selection")
    assert table.count("| masked LM on the selection alone |") == 2


def test_learned_weights_are_told_where_curves_came_back(tmp_path: Path) -> None:
    answers = [[0, 1, 2, 0, 1, 2, 0, 1]] * 2
    curve = {"seed": 0, "finetune_seed": 0, "flops_to_best": 2e15, "seconds_to_best": 60.0}
    rows = [{"cell": "meta-start", "weights": {"task": 0.0024, "external": 0.947}, **curve}]
    rows += [{"cell": "alone", "weights": {}, **curve}]
    (tmp_path / "sciie-bm25.json").write_text(json.dumps(compared({"alone": answers, "meta-start": answers})))
    (tmp_path / "sciie-bm25.curves.json").write_text(json.dumps(rows))
    collect(tmp_path, tmp_path)
    lines = mix_table(read_results("mix", tmp_path)).split("\n")
    words = "best on dev after 2e+15 FLOPs, 60 s"
    assert f"- META from there on: {words}; last weights: external 0.95, task 0.0024" in lines
    assert f"- masked LM on the selection alone: {words}" in lines


def test_some_arms_that_came_back_apart_are_judged_with_their_part(tmp_path: Path) -> None:
    good, bad = [[0, 1, 2, 0, 1, 2, 0, 1]] * 2, [[0] * 8, [1] * 8]
    (tmp_path / "sciie-bm25-first.json").write_text(json.dumps(compared({"alone": bad})))
    (tmp_path / "sciie-bm25-second.json").write_text(json.dumps(compared({"meta-start": good})))
    collect(tmp_path, tmp_path)
    tasks = read_results("mix", tmp_path).summary["sciie"]
    assert isinstance(tasks, dict)
    assert tasks["bm25"]["meta-start"]["lead"] == 0.625


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["--arms", "meta-start"], "some arms are not their whole part (give the bundle a name)"),
        (["--arms", "meta-strat", "--name", "x"], "bm25 has no arm 'meta-strat' (did you mean 'meta-start'?)"),
    ],
)
def test_arms_that_cannot_be_prepared_are_told(
    asked: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = ["--data", str(tmp_path), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["mix", "prepare", "sciie", "--parts", "bm25", *asked, *places])
    with pytest.raises(SystemExit):
        main()
    assert expected in capsys.readouterr().err


def test_without_a_fixed_mix_nothing_is_judged(tmp_path: Path) -> None:
    (tmp_path / "sciie-bm25.json").write_text(json.dumps(compared({"meta-start": [[0] * 8] * 2})))
    with pytest.raises(InputError, match=r"sciie-bm25.json.gz: no fixed mix to compare with"):
        collect(tmp_path, tmp_path)


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results of a comparison there"):
        collect(tmp_path, tmp_path)
