"""From a study file to the tables of its page: a tiny study of each kind, and the stored results of the real studies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from benchmarks.results_file import RESULTS, read_results
from endtask.errors import InputError
from studies import collect as collecting
from studies.collect import Template, collect, collect_alignment
from studies.pages.alignment import alignment_tables
from studies.pages.mix import LEARNED, best_fixed
from studies.pages.tartan import PAPER, QUESTIONS
from studies.stored_results import Compared, read_tree, store, stored_files
from studies.tables import select
from tests.conftest import Answer
from tests.toy_run import toy_settings

Command = Callable[..., Answer]


@pytest.mark.long
@pytest.mark.slow
def test_a_study_from_its_file_to_its_rows(
    toy: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = toy_settings(toy, tmp_path / "unused")
    del settings["output_dir"]
    settings["evaluate"] = {**settings.get("evaluate", {}), "metric": "accuracy"}
    tree = {
        "settings": settings,
        "tasks": {"toy-final": {}},
        "variants": {"slow": {"title": "Slow"}, "fast": {"pretrain.learning_rate": 3e-2}},
        "seeds": [0, 1],
        "finetune_seeds": [0],
        "baselines": ["majority"],
        "tables": {"final": {"variants": ["slow", "fast", "majority"], "against": "slow"}},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tree))
    results, runs = tmp_path / "results", tmp_path / "runs"
    prepared, came_back = tmp_path / "prepared", tmp_path / "came-back" / "toy-final.json"
    came_back.parent.mkdir()
    for step in (
        ("compare", tmp_path / "tiny.yaml", "--output", prepared, "--until", "pack"),
        ("bundle", prepared / "toy-final"),
        ("compare", "--bundle", prepared / "toy-final.tar.zst", "--output", runs / "toy-final", "--results", came_back),
    ):
        answer = command(*step)
        assert answer.code == 0, answer.err
    monkeypatch.setattr(collecting, "STUDIES", tmp_path)
    monkeypatch.setitem(collecting.TEMPLATES, "tiny", Template(("tiny",), ("task", "table")))
    collecting.write_curves(runs, came_back.parent)
    collect("tiny", tmp_path / "came-back", results)
    rows = read_results("tiny", results).rows
    cells = select(rows, kind="cell")
    assert [(row["task"], row["table"], row["title"]) for row in cells] == [
        ("toy", "final", "Slow"),
        ("toy", "final", "fast"),
        ("toy", "final", "the largest class"),
    ]
    assert ["lead" in row for row in cells] == [False, True, True]
    (told,) = json.loads((tmp_path / "came-back" / "toy-final.json").read_text())["tables"]
    assert [row["score"]["mean"] for row in told["rows"]] == pytest.approx([row["mean"] for row in cells], abs=1e-5)
    assert cells[1]["p"] == pytest.approx(told["rows"][1]["score"]["difference"]["p_value"], abs=1e-3)
    curves = select(rows, kind="curve")
    assert {(row["cell"], row["seed"]) for row in curves} == {
        (name, seed) for name in ("slow", "fast") for seed in (0, 1)
    }
    assert all(row["flops_to_best"] > 0 for row in curves)


@pytest.mark.parametrize(("name", "task"), [("mix", "sciie-iss"), ("tartan", "citation_intent-scratch")])
def test_stored_predictions_give_the_rows_of_the_page(name: str, task: str) -> None:
    compared = Compared.read(stored_files(RESULTS / "raw" / name, task))
    keys = dict(zip(collecting.TEMPLATES[name].keys, task.split("-"), strict=True))
    rows = select(read_results(name).rows, **keys)
    cells = select(rows, kind="cell")
    assert len(cells) > 4
    for row in cells:
        assert row["mean"] == round(fmean(compared.models(row["cell"])), 5)
        assert row["models"] == len(compared.models(row["cell"]))
    pair = select(rows, kind="pair")[0]
    found = compared.over(pair["cell"], pair["over"])
    assert {key: pair[key] for key in found} == found
    if name == "mix":
        assert {row["against"] for row in cells} == {best_fixed(compared)}


def test_templates_name_variants_of_the_studies() -> None:
    known = {
        name: set(collecting.read_study(collecting.STUDIES / f"{name}.yaml").variants)
        for name in ("mix", "tartan-checkpoint")
    }
    asked = {variant for _, _, pairs in QUESTIONS.values() for pair in pairs.values() for variant in pair}
    never_trained = {"mt-dapt-1x-longer", "mt-dapt-all-longer"}
    assert {*asked, *PAPER} - never_trained <= known["tartan-checkpoint"]
    assert {*LEARNED, *LEARNED.values()} <= known["mix"]


def results_file(path: Path, runs: dict[tuple[str, int], list[int]], truth: list[int]) -> Path:
    """A results file as `endtask compare --results` writes it."""
    trials = [
        {
            "variant": name,
            "seed": seed,
            "finetune_seeds": [0],
            "dev": [0.5],
            "test": [fmean(map(int.__eq__, said, truth))],
        }
        | {"leak_free": [], "cost": {"train_seconds": 1.0, "matmul_flops": 1e9, "text_bytes": 0}, "predicted": [said]}
        for (name, seed), said in runs.items()
    ]
    tree = {"metric": "accuracy", "split": "test", "labels": ["a", "b"], "type": "text", "truth": truth}
    tree |= {"leak_free": [1] * len(truth), "row_groups": list(range(len(truth))), "trials": trials}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree))
    return path


def test_parts_are_tested_together_and_later_runs_replace_earlier_ones(tmp_path: Path) -> None:
    truth, wrong = [0, 1] * 10, [1, 0] * 10
    raw = tmp_path / "raw"
    first = results_file(tmp_path / "t.json", {("one", 0): wrong, ("one", 1): truth}, truth)
    store([first, results_file(tmp_path / "t-more.json", {("two", 0): wrong}, truth)], raw)
    store([results_file(tmp_path / "new" / "t.json", {("one", 0): truth}, truth)], raw)
    compared = Compared.read(stored_files(raw, "t"))
    assert {name: len(runs) for name, runs in compared.runs.items()} == {"two": 1, "one": 2}
    rows = compared.table({"one": "One", "two": "Two"}, None)
    assert [row["mean"] for row in rows] == [1.0, 0.0]
    assert (rows[1]["lead"], rows[1]["p_holm"]) == (-1.0, pytest.approx(rows[1]["p"]))
    assert rows[1]["p"] < 0.001
    with pytest.raises(InputError, match="another truth"):
        store([results_file(tmp_path / "other" / "t.json", {("one", 0): truth}, wrong)], raw)


def test_what_is_no_results_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"rows": []}')
    with pytest.raises(InputError, match="not a results file"):
        read_tree(tmp_path / "t.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no results file"):
        collect("mix", tmp_path / "empty", tmp_path)


def test_rows_of_a_few_shot_study(tmp_path: Path) -> None:
    score = {"mean": 0.7, "std": 0.1, "difference": None}
    better = {"mean": 0.8, "std": 0.1, "difference": {"mean": 0.1, "p_value": 0.01, "p_holm": 0.02}}
    rows = [
        {
            "name": title,
            "entries": [{"labels": 200, "trials": 10, "epoch": 3.0, "scores": {"accuracy": one, "perplexity": score}}],
        }
        for title, one in (("768x3, new head", score), ("768x3, kept head", better))
    ]
    outcome = {"tables": [{"name": "2-ad", "rows": rows}]}
    folder = tmp_path / "alignment" / "ad"
    (folder / "few-shot").mkdir(parents=True)
    (folder / "few-shot" / "few-shot.json").write_text(json.dumps({"spec": {}, "trials": {}, "outcome": outcome}))
    stage = folder / "variants" / "768x3" / "seed-0" / "pretrain"
    stage.mkdir(parents=True)
    manifest = {"fingerprint": "", "status": "finished", "seconds": 12.0, "counts": {"steps": 1500}}
    stage.joinpath("manifest.json").write_text(json.dumps(manifest))
    collect_alignment(tmp_path / "alignment", tmp_path)
    page = alignment_tables(read_results("alignment", tmp_path))
    assert "**Table 2: numbers of labels, acronym detection**" in page
    assert "| 768x3, kept head | 80.0 ± 10.0‡ / 0.70 ± 0.10 |" in page
    assert "1,500 steps (12 s for 768x3" in page
