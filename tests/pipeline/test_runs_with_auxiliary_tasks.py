"""Whole runs with auxiliary tasks on the shared encoder: scores, models, reports and bundles."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask.bundle import unbundle, write_bundle
from endtask.config import resolve
from endtask.errors import InputError
from endtask.experiments import compare
from endtask.experiments.few_shot.few_shot import few_shot
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec
from endtask.pipeline.check import check
from endtask.pipeline.estimate import train_rows
from endtask.pipeline.preflight import preflight
from endtask.records import Example
from endtask.reporting.page import summary, verdict_lines
from endtask.reporting.results import results_of
from endtask.serving.predictor import load
from endtask.task import Task
from endtask.task.task import read_all
from tests.conftest import Answer
from tests.toy_run import hashes, results, toy_settings, write_rows, write_settings, write_toy
from tests.toy_task_types import write_toy_of_type

pytestmark = pytest.mark.slow

KINDS = ("token_classification", "regression", "multilabel", "pair")
METRICS = {"token_classification": "span_f1", "regression": "pearson", "multilabel": "micro_f1", "pair": "macro_f1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_toy(folder / "toy")
    write_toy(folder / "pair", pairs=True)
    for kind in ("token_classification", "regression", "multilabel"):
        write_toy_of_type(folder / kind, kind)
    return folder


def settings_of(data: Path, output: Path, *, kinds: tuple[str, ...] = KINDS, **changes: Any) -> dict[str, Any]:
    """Pre-training and fine-tuning learn all tasks; `train`, `finetune` are changed key by key."""
    settings = toy_settings(data / "toy", output, tasks={kind: {"path": str(data / kind / "task")} for kind in kinds})
    settings["pretrain"] |= {"weighting": "equal", **changes.pop("pretrain", {})}
    settings["finetune"] |= {"tasks": "all", "seeds": [0, 1], **changes.pop("finetune", {})}
    return {**settings, **changes}


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = settings_of(data, tmp_path_factory.mktemp("finished") / "run", evaluate={"metric": "accuracy"})
    return endtask.run(settings).folder


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def found_results(run: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((run / "evaluate" / "results.json").read_text(encoding="utf-8"))
    return tree


def test_every_task_is_scored_by_the_metric_of_its_kind(finished: Path, data: Path) -> None:
    found = found_results(finished)
    assert found["summary"]["metric"] == "accuracy"
    assert {name: (one["type"], one["summary"]["metric"]) for name, one in found["tasks"].items()} == {
        kind: (kind, METRICS[kind]) for kind in KINDS
    }
    for kind in KINDS:
        one, written = found["tasks"][kind], rows(data / kind / "task" / "test.jsonl")
        assert (one["split"], one["rows"], len(one["seeds"])) == ("test", len(written), 2)
        predicted = rows(finished / "evaluate" / "tasks" / kind / "predictions.jsonl")
        key = {"token_classification": "tags", "multilabel": "labels"}.get(kind, "label")
        assert [row["label"] for row in predicted] == [row[key] for row in written]
    pairs = rows(finished / "evaluate" / "tasks" / "pair" / "predictions.jsonl")
    right = sum(row["label"] == row["predicted"]["1"] for row in pairs)
    assert found["tasks"]["pair"]["seeds"][1]["scores"]["accuracy"] == pytest.approx(right / len(pairs))


@pytest.mark.parametrize("kind", KINDS)
def test_each_has_a_model_that_answers_as_it_was_scored(finished: Path, kind: str) -> None:
    seed = str(json.loads((finished / "model" / "manifest.json").read_text())["counts"]["seed"])
    evaluated = [row["predicted"][seed] for row in rows(finished / "evaluate" / "tasks" / kind / "predictions.jsonl")]
    read = rows(finished / "read" / "tasks" / kind / "test.jsonl")
    predictor = load(finished / "model" / "tasks" / kind)
    assert (predictor.type, predictor.takes_pairs) == (kind, kind == "pair")
    answers = predictor.predict([(row["text"], row["text_pair"]) if kind == "pair" else row["text"] for row in read])
    if kind == "regression":
        assert [answer.score for answer in answers] == pytest.approx(evaluated, abs=1e-4)
    elif kind == "multilabel":
        assert [list(answer.labels) for answer in answers] == evaluated
    else:
        assert [
            list(answer.tags) if kind == "token_classification" else answer.label for answer in answers
        ] == evaluated
    assert f"{kind}/task" in (finished / "model" / "tasks" / kind / "README.md").read_text()


def test_the_terminal_and_the_report_name_them(finished: Path) -> None:
    lines, page = verdict_lines(finished), (finished / "report.html").read_text()
    of_tasks = [line for line in lines[1:] if "the model is" not in line.lower()]
    assert [line.split(":")[0].strip() for line in of_tasks] == list(KINDS)
    assert "Auxiliary tasks on the same encoder" in page
    for kind in KINDS:
        assert f'<th scope="row" class="name">{kind}</th><td>{kind}</td>' in page
    assert summary(finished)["results"]["tasks"].keys() == set(KINDS)


def test_a_bundle_of_texts_takes_them_along(data: Path, tmp_path: Path) -> None:
    """The files of the tasks are not there: copies are read, packed and trained on to the same bits."""
    moved = tmp_path / "moved"
    for kind in ("toy", "token_classification"):
        for file in (data / kind).rglob("*.jsonl"):
            write_rows(moved / file.relative_to(data), rows(file))
    settings = settings_of(
        moved, tmp_path / "run", kinds=("token_classification",), finetune={"seeds": [0], "epochs": 1}
    )
    endtask.run(settings, until="select")
    bundle = write_bundle(tmp_path / "run", tmp_path / "text.tar.zst", kind="text").file
    endtask.run(settings)
    moved.rename(tmp_path / "gone")
    folder = unbundle(bundle, tmp_path / "there")
    endtask.run(folder)
    assert results(folder) == results(tmp_path / "run")
    assert hashes(folder / "model" / "tasks") == hashes(tmp_path / "run" / "model" / "tasks")


def test_stage_1_alone_may_learn_them(data: Path, tmp_path: Path) -> None:
    """By default only the end task is fine-tuned, scored and saved; without fine-tuning all are scored."""
    one = settings_of(
        data, tmp_path / "run", kinds=("token_classification",), finetune={"tasks": "main", "seeds": [0], "epochs": 1}
    )
    run = endtask.run(one)
    assert run.stages["pretrain"]["objectives"].keys() == {"corpus", "task", "token_classification"}
    assert run.stages["pretrain"]["objectives"]["token_classification"]["tokens"] > 0
    assert "tasks" not in run.stages["evaluate"]
    assert not (run.folder / "model" / "tasks").exists()
    shutil.copytree(run.folder, tmp_path / "alone")
    alone = endtask.run({**one, "output_dir": str(tmp_path / "alone"), "skip_finetuning": True}, start="finetune")
    assert alone.stages["evaluate"]["tasks"].keys() == {"token_classification"}
    assert (alone.folder / "model" / "tasks" / "token_classification" / "config.json").exists()
    outcome = few_shot([run.folder], FewShotSpec(labels=(8,), samples=1, seeds=(0,), epochs=2), tmp_path / "few")
    assert outcome.rows


def test_learned_weights_weigh_them(data: Path, tmp_path: Path) -> None:
    settings = settings_of(
        data, tmp_path / "run", kinds=("token_classification", "regression"), pretrain={"weighting": "meta"}
    )
    endtask.run(settings, until="pretrain")
    curves = rows(tmp_path / "run" / "pretrain" / "metrics.jsonl")
    weights = {name: value for name, value in curves[-1].items() if name.startswith("weight/")}
    assert weights.keys() == {f"weight/{name}" for name in ("corpus", "task", "token_classification", "regression")}
    assert len(set(weights.values())) == 4


def test_a_changed_file_of_a_further_task_is_noticed(data: Path, tmp_path: Path) -> None:
    write_toy_of_type(tmp_path / "tags", "token_classification")
    settings = settings_of(data, tmp_path / "run", kinds=())
    settings["tasks"] = {"tags": {"path": str(tmp_path / "tags" / "task")}}
    endtask.run(settings, until="read")
    file = tmp_path / "tags" / "task" / "train.jsonl"
    write_rows(file, rows(file)[:-1])
    with pytest.raises(InputError, match=r"the files of the task \(.*tags/task\) changed since this run was made"):
        endtask.run(settings, until="read")


def test_check_names_them(data: Path, tmp_path: Path, command: Callable[..., Answer]) -> None:
    found = check(resolve(settings_of(data, tmp_path / "run")))
    lines = "\n".join(found.lines())
    assert "task token_classification: type token_classification, 3 tags\n" in lines
    assert "task pair: type pair, 3 classes\n" in lines
    assert found.to_dict()["tasks"]["regression"]["splits"]["train"]["rows"] == 48
    assert not found.leaks_between_tasks
    file = write_settings(tmp_path / "settings.json", data / "toy", tmp_path / "run")
    leaking = f"tasks={{again: {{path: {data / 'toy' / 'task' / 'test.jsonl'}}}}}"
    answer = command("check", file, "--set", leaking, "--set", "finetune.tasks=all")
    assert answer.code == 0, answer.err
    assert "texts of train of again are in dev or test of the task" in answer.out


@pytest.mark.parametrize(
    ("end", "auxiliary", "changes"),
    [
        ("toy", "multilabel", {"evaluate": {"threshold": 0.3}}),
        ("token_classification", "multilabel", {"evaluate": {"threshold": 0.3}}),
    ],
)
def test_what_is_for_some_kinds_wants_one_task_of_them(
    data: Path, tmp_path: Path, end: str, auxiliary: str, changes: dict[str, Any]
) -> None:
    settings = settings_of(data, tmp_path / "run", kinds=(auxiliary,), **changes)
    settings["task"] = {"path": str(data / end / "task")}
    (section, values), *_ = changes.items()
    key = f"{section}.{next(iter(values))}"
    task = read_all(resolve(settings))
    preflight(task, resolve(settings))
    settings["finetune"]["tasks"] = "main"  # then only the end task is scored
    with pytest.raises(InputError, match=rf"key '{key}': has no meaning for a task of type '{task.type}'"):
        preflight(task, resolve(settings))


def test_texts_that_another_task_learns_are_no_part_of_the_leak_free_score(data: Path, tmp_path: Path) -> None:
    """A table with two columns of labels, split in two ways: either task learns what the other is judged by."""
    table = [
        {**row, "topic": "ab"[number % 2]} for number, row in enumerate(rows(data / "toy" / "task" / "train.jsonl"))
    ]
    path = write_rows(tmp_path / "table.jsonl", table)
    held = rows(data / "toy" / "task" / "test.jsonl")
    path = write_rows(path, [*table, *({**row, "topic": "ab"[number % 2]} for number, row in enumerate(held[:7]))])
    settings = settings_of(data, tmp_path / "run", kinds=(), finetune={"seeds": [0], "epochs": 1})
    settings["tasks"] = {"topics": {"path": str(path), "columns": {"label": "topic"}}}
    folder = endtask.run(settings).folder
    found = found_results(folder)
    learned = {row["text"] for row in rows(folder / "read" / "tasks" / "topics" / "train.jsonl")}
    clean = [int(row["text"] not in learned) for row in held]
    assert found["leak_free_rows"] == sum(clean) < len(held)
    of_task = {row["text"] for row in rows(data / "toy" / "task" / "train.jsonl")}
    judged = rows(folder / "read" / "tasks" / "topics" / "test.jsonl")
    own = [row["text"] not in learned | of_task for row in judged]
    assert found["tasks"]["topics"]["leak_free_rows"] == sum(own) < len(judged)
    assert results_of(folder)["predictions"]["test"]["leak_free"] == clean
    leaks = json.loads((folder / "read" / "audit.json").read_text())["leaks_between_tasks"]
    assert len(leaks) == 2
    assert all(leak in (folder / "report.html").read_text() for leak in leaks)


def test_variants_may_differ_in_what_brings_objectives_along(data: Path, tmp_path: Path) -> None:
    settings = settings_of(
        data, tmp_path / "cmp", kinds=("token_classification",), finetune={"seeds": [0], "epochs": 1}
    )
    variants = {
        "all": {},
        "without": {"tasks": {}, "finetune.tasks": "main"},
        "no-text": {"select.name": "none"},
    }
    compare(resolve(settings), {"baselines": [], "variants": variants}, until="pretrain")
    learned = {
        name: set(json.loads((found / "manifest.json").read_text())["counts"]["objectives"])
        for name in variants
        for found in (tmp_path / "cmp" / "variants" / name).glob("seed-*/pretrain")
    }
    assert learned == {
        "all": {"corpus", "task", "token_classification"},
        "without": {"corpus", "task"},
        "no-text": {"task", "token_classification"},
    }


def test_rows_that_decide_stand_in_train_of_no_variant(data: Path, tmp_path: Path) -> None:
    settings = settings_of(data, tmp_path / "cmp", kinds=())
    settings["tasks"] = {"again": {"path": str(data / "toy" / "task" / "test.jsonl")}}
    variants = {"without": {"tasks": {}, "finetune.tasks": "main"}, "all": {}}
    outcome = compare(resolve(settings), {"baselines": [], "variants": variants}, until="read")
    learned = {row["text"] for row in rows(tmp_path / "cmp/variants/all/seed-0/read/tasks/again/train.jsonl")}
    clean = [row["text"] not in learned for row in rows(data / "toy" / "task" / "test.jsonl")]
    assert outcome.evaluation.leak_free.tolist() == clean
    assert 0 < sum(clean) < len(clean)


def test_only_tasks_that_are_fine_tuned_cost_time(data: Path, tmp_path: Path) -> None:
    few = Task.from_examples("few", {"train": [Example(str(n), f"text {n}", "ab"[n % 2]) for n in range(30)]})
    many = Task.from_examples("many", {"train": [Example(str(n), f"text {n}", "ab"[n % 2]) for n in range(90)]})
    task = replace(few, auxiliary={"token_classification": many})
    settings = settings_of(data, tmp_path / "run", kinds=("token_classification",))
    assert train_rows(task, resolve(settings)) == len(few.train) + len(many.train)
    settings["finetune"]["tasks"] = "main"
    assert train_rows(task, resolve(settings)) == len(few.train)


def test_what_does_not_fit_a_further_task_is_met_before_any_work(data: Path, tmp_path: Path) -> None:
    settings = settings_of(data, tmp_path / "run", finetune={"window_stride": 4})
    with pytest.raises(
        InputError, match=r"key 'finetune.window_stride': tasks.token_classification: tagged texts cannot be read by"
    ):
        endtask.run(settings)
    assert not (tmp_path / "run").exists()
