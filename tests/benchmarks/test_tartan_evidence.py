"""The evidence for end-task aware training from end to end on a toy, and results files judged together."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.compared import Compared, markdown
from benchmarks.curves import curves
from benchmarks.kept import keep, read_tree, result_files
from benchmarks.results_file import read_results
from benchmarks.results_file import write_results as write_table
from benchmarks.tartan import page, prepare, train
from benchmarks.tartan.cells import (
    AGAINST,
    AMOUNT_PAIRS,
    DOMAINS,
    ENDINGS,
    PAIRS,
    PLAIN,
    SEEDS,
    TABLES,
    base_settings,
    cells,
    titles,
)
from benchmarks.tartan.picture import tartan_picture
from endtask.bundle import write_bundle
from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.experiments import check_study
from endtask.experiments.comparison import write_results
from endtask.experiments.variants import listed_variants
from endtask.training.metrics_file import read_metrics

Tree = dict[str, Any]
SMALL = {
    "tokenizer.vocab_size": 200,
    "tokenizer.entity_markers": [],
    "model.hidden_size": 16,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.max_position_embeddings": 32,
    "pretrain.max_length": 16,
    "pretrain.batch_size": 8,
    "pretrain.eval_steps": 2,
    "finetune.max_length": 16,
    "finetune.epochs": 1,
    "domain.sources": [],
    "domain.amount": "1x",
    "threads": 1,
    "device": "cpu",
    "budget": "4steps",
}


def small(toy: Path) -> Settings:
    """The evidence's settings, cut down, over the toy's task and corpus."""
    data = {"task.path": str(toy / "task"), "corpus.sources": [{"path": str(toy / "corpus.jsonl")}]}
    return with_values(base_settings("sciie", "scratch", toy, steps=4), {**SMALL, **data}, "toy")


def test_a_table_is_trained_and_shown(toy: Path, tmp_path: Path) -> None:
    found = prepare.Prepared(tmp_path / "sciie-scratch", small(toy), "scratch")
    results = tmp_path / "results"
    results.mkdir()
    for table, seeds in ((PLAIN, [0]), ("tapt", [0, 1]), ("dapt-tapt", [0])):
        outcome = found.compared([table], until="evaluate", seeds=seeds)
        assert [row.name for row in outcome.rows] == [arm.name for arm in TABLES[table]]
        assert all(row.score is not None for row in outcome.rows)
        write_results(outcome, results / f"sciie-scratch-{table}.json")
    (results / "sciie-scratch-tapt.curves.json").write_text(json.dumps(curves(found.folder / "tapt")), encoding="utf-8")
    check_curves(found.folder / "tapt")
    page.collect(results, tmp_path)
    written = read_results("tartan", tmp_path)
    shown = page.tartan_table(written)
    assert "Table 1: the task's own text, SciERC, from random weights" in shown
    assert "plain fine-tuning" in shown
    assert "META, TAPT: best on dev after " in shown
    assert "last weights: tapt" in shown
    assert "Table 4" not in shown
    against_plain = shown.split("**Points above plain fine-tuning, from random weights**")[1].split("**")[0]
    lines = [line for line in against_plain.splitlines() if line.startswith("| ")]
    assert lines[0] == "| | ACL-ARC | SciERC | ChemProt |"
    assert re.fullmatch(r"\| TAPT \|  \| [+-]\d+\.\d†? \|  \|", lines[1])
    assert lines[-1].startswith("| META, DAPT + TAPT |")
    assert set(written.summary) == {
        f"sciie_scratch_{name}{figure}"
        for name in (
            "tapt_meta_over_mt",
            "tapt_mt_full_over_light",
            "tapt_meta_full_over_light",
            "dapt_tapt_meta_over_mt",
        )
        for figure in ("", "_p")
    }
    endings = shown.split("**MT, then a full fine-tuning, against a light one**")[1].split("**")[0]
    lines = [line for line in endings.splitlines() if line.startswith("| ")]
    assert len(lines) == 2
    assert re.match(r"\| TAPT, SciERC, from random weights \| [+-]\d+\.\d†? \| .+ to .+ \| \d\.\d{4} \|", lines[1])
    assert all("predicted" not in row for row in written.rows)


def test_bundles_are_trained_side_by_side_and_on(toy: Path, tmp_path: Path) -> None:
    found = prepare.Prepared(tmp_path / "sciie-scratch", small(toy), "scratch")
    found.compared(["tapt"], arms=["tapt", "mt-tapt"], name="some", seeds=[0])
    bundle = write_bundle(found.folder / "some", tmp_path / "sciie-scratch-some.tar.zst").file
    folder, out = tmp_path / "room", tmp_path / "rows"
    for place in (folder, out):
        place.mkdir()
    assert train.train([bundle], folder, out, processes=1, seconds=0) == {"sciie-scratch-some": 0}
    done = train.train([bundle], folder, out, processes=1, seconds=900)
    assert done == {"sciie-scratch-some": 2}, (out / "sciie-scratch-some.log").read_text()
    train.drop_weights(folder)
    runs = train.finished_runs(folder / "sciie-scratch-some")
    assert [run.parent.name for run in runs] == ["mt-tapt", "tapt"]
    assert not [file for run in runs for file in run.rglob("*.safetensors")]
    page.collect(out, tmp_path)
    kinds = [row["kind"] for row in read_results("tartan", tmp_path).rows]
    assert (kinds.count("run"), kinds.count("cell"), kinds.count("curve")) == (2, 2, 2)


def check_curves(folder: Path) -> None:
    """The best scores are the metric's (others are higher), and pre-training counts up to where fine-tuning goes on from."""
    rows = {(row["cell"], row["seed"]): row for row in curves(folder)}
    assert {cell for cell, _ in rows} == {arm.name for arm in TABLES["tapt"]}
    for (cell, seed), row in rows.items():
        run = folder / "variants" / cell / f"seed-{seed}"
        manifests = [json.loads((run / stage / "manifest.json").read_text()) for stage in ("pretrain", "finetune")]
        first, second = (manifest["counts"]["flops"] for manifest in manifests)
        scores = {
            one["step"]: one["dev/macro_f1"]
            for one in read_metrics(run / "finetune/seed-0/metrics.jsonl")
            if "dev/macro_f1" in one
        }
        assert row["dev"] == max(scores.values()) == scores[row["finetune_step"]]
        share = row["pretrain_step"] / 4 if "pretrain_step" in row else 1
        assert ("pretrain_step" in row) == (cell in ("mt-tapt", "meta-tapt", "meta-tapt-paper"))
        assert row["flops_to_best"] == pytest.approx(first * share + second * row["finetune_step"] / max(scores))
        assert bool(row["weights"]) == cell.startswith("meta")


@pytest.mark.parametrize("task", sorted(DOMAINS))
@pytest.mark.parametrize("body", ["scratch", "checkpoint"])
def test_all_cells_are_settings(task: str, encoder: Any, tmp_path: Path) -> None:
    settings = base_settings(task, encoder, tmp_path, steps=600)
    for table in TABLES:
        asked = check_study({"variants": cells(table, encoder, settings.budget), "seeds": [0]}, "cells")
        found = listed_variants(settings, asked, "cells")
        for cell in found:
            assert cell.settings.reads_domain == ("dapt" in cell.name)
            assert cell.settings.pretrain.trains_task == (cell.name.startswith(("mt-", "meta-")))
            if cell.settings.pretrain.weighting.name == "sequence":
                assert list(cell.settings.used_objectives) == ["dapt", "tapt"]
                assert str(cell.settings.budget) == "1200steps"


def test_every_table_has_what_it_is_tested_against() -> None:
    for table, against in AGAINST.items():
        assert against in titles(table)
        assert PLAIN in titles(table)
        endings = [name for pairs in ENDINGS.values() for name in pairs.get(table, ())]
        assert {*PAIRS.get(table, ()), *endings} <= set(titles(table))
    for pairs in AMOUNT_PAIRS.values():
        assert {name for pair in pairs.values() for name in pair} <= {*titles("amounts"), *titles("longer")}
    names = [arm.name for arms in TABLES.values() for arm in arms]
    assert len(set(names)) == len(names)


def test_amounts_stand_beside_the_usual_one() -> None:
    ways = ["dapt", "mt-dapt", "meta-dapt"]
    expected = ["plain", *(f"{way}-1x" for way in ways), *ways, *(f"{way}-all" for way in ways)]
    assert [*titles("amounts")] == expected
    assert titles("amounts")["mt-dapt"] == "MT, DAPT, 10x"
    assert titles("dapt")["mt-dapt"] == "MT, DAPT"


def test_tables_and_some_of_their_arms_are_one_comparison(toy: Path, tmp_path: Path) -> None:
    found = prepare.Prepared(tmp_path / "sciie-scratch", small(toy), "scratch")
    outcome = found.compared(["tapt", "dapt"], arms=["mt-tapt", "dapt"], name="some", some=[3])
    assert [row.name for row in outcome.rows] == ["mt-tapt", "dapt"]
    assert [run.name for run in (found.folder / "some" / "variants" / "mt-tapt").iterdir()] == ["seed-3"]
    with pytest.raises(InputError, match=r"tapt has no arm 'mt-tatp' \(did you mean 'mt-tapt'\?\)"):
        found.compared(["tapt"], arms=["mt-tatp"])


def test_a_checkpoint_is_fine_tuned_with_ten_seeds() -> None:
    assert prepare.seeds([PLAIN], "checkpoint") == {"seeds": [0], "finetune_seeds": list(SEEDS)}
    assert prepare.seeds(["tapt"], "checkpoint") == {"seeds": list(SEEDS), "finetune_seeds": [0]}
    assert prepare.seeds([PLAIN, "tapt"], "scratch") == {"seeds": list(SEEDS), "finetune_seeds": [0]}
    assert prepare.seeds(["tapt"], "checkpoint", [8, 9]) == {"seeds": [8, 9], "finetune_seeds": [0]}
    with pytest.raises(InputError, match=r"--seeds.*10 is none of the seeds 0 to 9"):
        prepare.seeds(["tapt"], "scratch", [9, 10])
    assert prepare.seeds([PLAIN], "checkpoint", [8, 9]) == {"seeds": [0], "finetune_seeds": [8, 9]}
    with pytest.raises(InputError, match=r"plain has other seeds than the other arms \(prepare it alone\)"):
        prepare.seeds([PLAIN, "tapt"], "checkpoint")


def test_an_unknown_table_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["prepare", "sciie", "tatp", "--data", str(tmp_path), "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        prepare.main()
    assert "no table is named 'tatp'" in capsys.readouterr().err


def results_file(path: Path, runs: list[Tree], **changes: Any) -> Path:
    """A results file with two rows of each of two classes, of which the last also stands in train."""
    tree = {
        "metric": "accuracy",
        "split": "test",
        "kind": "text",
        "labels": ["a", "b"],
        "truth": [0, 1, 0, 1],
        "leak_free": [1, 1, 1, 0],
        "machine": {"gpus": ["a GPU"]},
        "runs": runs,
        **changes,
    }
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def one_run(cell: str, seed: int, predicted: list[int]) -> Tree:
    right = [answer == truth for answer, truth in zip(predicted, [0, 1, 0, 1], strict=True)]
    cost = {"train_seconds": 2.0, "text_bytes": 10, "matmul_flops": 2e9}
    scores = {"dev": [0.5], "test": [sum(right) / 4], "leak_free": [sum(right[:3]) / 3]}
    return {"cell": cell, "seed": seed, "finetune_seeds": [0], **scores, "cost": cost, "predicted": [predicted]}


def test_files_are_judged_together(tmp_path: Path) -> None:
    one = results_file(tmp_path / "one.json", [one_run("good", 0, [0, 1, 0, 1]), one_run("good", 1, [0, 1, 0, 0])])
    two = results_file(tmp_path / "two.json", [one_run("bad", 0, [1, 0, 1, 1]), one_run("good", 1, [0, 0, 0, 0])])
    found = Compared.read([one, two])
    assert found.models("good") == [1.0, 0.75]  # the second file's seed 1 is the same run done again
    rows = found.table({"good": "Good", "bad": "Bad", "absent": "Absent"}, "bad")
    assert [(row["title"], row["mean"]) for row in rows] == [("Good", 0.875), ("Bad", 0.25)]
    assert rows[0]["lead"] == 0.625
    assert rows[0]["p_holm"] == rows[0]["p"] >= 2 / 2**4
    assert rows[0]["leak_free"] == pytest.approx(1.0)
    shown = markdown(rows, against="Bad", metric="accuracy")
    low, high = rows[0]["interval"]
    assert -1 <= low < 0.625 < high <= 1
    assert f"| Good | 87.5 ± 17.7 | +62.5 | {100 * low:+.1f} to +100.0 | 0.2500 | 0.2500 | 100.0 |" in shown
    assert found.gpu == "a GPU"


@pytest.mark.parametrize(("key", "value"), [("truth", [1, 1, 1, 1]), ("metric", "macro_f1")])
def test_files_judged_otherwise_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    one = results_file(tmp_path / "one.json", [one_run("good", 0, [0, 1, 0, 1])])
    two = results_file(tmp_path / "two.json", [one_run("bad", 0, [0, 1, 0, 1])], **{key: value})
    with pytest.raises(InputError, match=f"judged by another {key}"):
        Compared.read([one, two])
    with pytest.raises(InputError, match=r"no cell is named 'goood' .did you mean 'good'"):
        Compared.read([one]).models("goood")
    with pytest.raises(InputError, match="no results file was given"):
        Compared.read([])
    (tmp_path / "curves.json").write_text("[]")
    with pytest.raises(InputError, match=r"curves.json: not a results file"):
        Compared.read([tmp_path / "curves.json"])


def test_all_kept_files_of_a_task_and_a_body_are_found(tmp_path: Path) -> None:
    names = ["sciie-scratch-dapt", "sciie-scratch-some", "sciie-checkpoint-some", "chemprot-scratch-some"]
    for name in names:
        results_file(tmp_path / f"{name}.json", [])
    (tmp_path / f"{names[0]}.curves.json").write_text("[]")
    found = result_files(keep(tmp_path, "tartan", tmp_path), "sciie-scratch")
    assert {file.name for file in found} == {f"{name}.json.gz" for name in names[:2]}
    with pytest.raises(InputError, match="no results file of a bundle there"):
        page.collect(tmp_path / "nowhere", tmp_path)


def test_what_came_back_is_kept_and_never_less_of_it(tmp_path: Path) -> None:
    one, two, again = (
        one_run("good", seed, right) for seed, right in ((0, [0, 1, 0, 1]), (1, [0] * 4), (1, [0, 1, 0, 0]))
    )
    for number, runs in enumerate(([one, two], [again], [one])):
        (tmp_path / str(number)).mkdir()
        results_file(tmp_path / str(number) / "sciie-scratch-tapt.json", runs)
        kept = keep(tmp_path / str(number), "tartan", tmp_path / "results")
        assert [len(read_tree(file)["runs"]) for file in kept.iterdir()] == [2]
    assert Compared.read(sorted(kept.iterdir())).models("good") == [1.0, 0.75]
    results_file(tmp_path / "0" / "sciie-scratch-tapt.json", [one], truth=[1, 1, 1, 1])
    with pytest.raises(InputError, match="what came back is judged by another truth"):
        keep(tmp_path / "0", "tartan", tmp_path / "results")


@pytest.mark.parametrize("content", ["{}", "[", "3", '{"runs": 1}'])
def test_what_is_no_results_file_is_not_kept(content: str, tmp_path: Path) -> None:
    results_file(tmp_path / "sciie-scratch-a.json", [])
    (tmp_path / "sciie-scratch-b.json").write_text(content)
    with pytest.raises(InputError, match=r"b.json: not a results file"):
        page.collect(tmp_path, tmp_path)
    assert not [*(tmp_path / "raw" / "tartan").iterdir()]


def test_a_file_of_another_name_is_told(tmp_path: Path) -> None:
    results_file(tmp_path / "scierc-checkpoint-a.json", [])
    with pytest.raises(InputError, match=r"scierc-checkpoint-a.json: named for no task and body"):
        page.collect(tmp_path, tmp_path)


def test_failed_runs_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "good", "failures": ["out of memory"]}]
    file = results_file(tmp_path / "one.json", [one_run("good", 0, [0, 1, 0, 1])], rows=rows)
    Compared.read([file])
    assert capsys.readouterr().err == f"{file}: a run of good failed: out of memory\n"


def test_cells_without_kept_predictions_stay_as_they_are(tmp_path: Path) -> None:
    common = {"task": "sciie", "body": "scratch"}
    shown = {"table": "tapt", "metric": "accuracy", "title": "TAPT", "mean": 0.5, "std": 0.1, "models": 10}
    known = [{"kind": "run", **common, "cell": "tapt"}, {"kind": "cell", **common, "cell": "tapt", **shown}]
    write_table("tartan", "command", known, {"tables": 0}, tmp_path)
    came_back = tmp_path / "came"
    came_back.mkdir()
    runs = [one_run(cell, 0, answers) for cell, answers in (("mt-tapt", [0] * 4), ("meta-tapt", [0, 1, 0, 1]))]
    results_file(came_back / "sciie-scratch-A.json", runs)
    page.collect(came_back, tmp_path)
    results = read_results("tartan", tmp_path)
    assert [row["cell"] for row in results.rows if row["kind"] == "run"] == ["mt-tapt", "meta-tapt", "tapt"]
    table = page.tartan_table(results)
    assert (
        table.index("| TAPT | 50.0 ± 10.0 |") < table.index("| MT, TAPT | 50.0 ± 0.0 |") < table.index("| META, TAPT |")
    )
    assert "| TAPT, SciERC, from random weights | +50.0 |" in table


def test_the_picture_has_a_dot_for_each_way_to_train(tmp_path: Path) -> None:
    runs = [one_run("tapt", seed, [0, 0, 0, 0]) for seed in range(2)]
    runs += [one_run("mt-tapt", seed, [0, 1, 0, 1]) for seed in range(2)]
    runs += [one_run("dapt", seed, [0, 0, 0, 0]) for seed in range(2)]
    results_file(tmp_path / "sciie-scratch-C.json", runs)
    page.collect(tmp_path, tmp_path)
    picture = ElementTree.fromstring(tartan_picture(read_results("tartan", tmp_path)))
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert [word for word in words if word in ("SciERC", "ACL-ARC")] == ["SciERC"]
    assert "Table 1, from random weights" in words
    assert "Table 4, from random weights" not in words  # nothing beside its reference yet
    dots = list(picture.iter("{http://www.w3.org/2000/svg}circle"))[3:]
    assert len(dots) == 1  # after those of the legend
    assert float(dots[0].get("cx", "0")) > 309  # above the reference, which is in the middle
