"""The evidence for aligned objectives on a toy: the bundle, a body with few labels on top, the rows as a page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from benchmarks.alignment import bodies, page, prepare
from benchmarks.alignment import train as command
from benchmarks.alignment.bodies import BodyWork, Place
from benchmarks.alignment.cells import (
    ALIGNED,
    BODIES,
    OWN,
    SPELLED,
    TASKS,
    Arm,
    Effort,
    Job,
    base_settings,
    jobs,
    plan_of,
    tables,
)
from benchmarks.alignment.data import write_task
from benchmarks.alignment.rows_file import ROWS
from benchmarks.alignment.todo import PRETRAIN, Item, Todo, items_after
from benchmarks.results_file import read_results
from endtask.bundle import unbundle
from endtask.config import Settings, SizeBudget
from endtask.config.overrides import with_values
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.training.reused_head import reused_objective
from tests.aligned_toy import make_documents
from tests.tiny import WORDS

Tree = dict[str, Any]
SMALL = {
    "budget": "2steps",
    "tokenizer.vocab_size": 120,
    "model.hidden_size": 16,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 16,
    "pretrain.batch_size": 4,
    "threads": 1,
    "device": "cpu",
}
SHARES = {prepare.WIKIPEDIA: 0.4, SPELLED: 0.2, prepare.HELD_OUT: 0.4}
EFFORT = Effort(seeds=(0,), epochs=1)
MADE = {"effort": {"seeds": [0], "epochs": 1}, "values": {}}


def write_rows(path: Path, rows: list[Tree]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))


def toy_tasks(data: Path, out: Path) -> Tree:
    """Queries whose second word is the concept, and letters that are or are not the initials of a snippet."""
    random = np.random.default_rng(0)
    queries, pairs = [], []
    for number in range(300):
        words = [str(word) for word in random.choice(WORDS, size=4)]
        queries.append({"tokens": [*words, f"x{number}"], "tags": ["none", "both", "start", "end", "none"]})
        letters = "".join(word[0] for word in words[:3])
        row = {"text_pair": f"{' '.join(words)} {number}", "doc": f"doc{number}"}
        pairs += [{"text": letters, "label": "1", **row}, {"text": f"{letters}q", "label": "0", **row}]
    for task, rows, dev in (("ct", queries, 20), ("ad", pairs, 20)):
        write_task({"train": rows[: -2 * dev], "dev": rows[-2 * dev : -dev], "test": rows[-dev:]}, out / task)
    return {}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The toy's bundle, unpacked where its text is not."""
    folder = tmp_path_factory.mktemp("alignment")
    linked = [{"id": one.id, "title": one.title, "text": one.text, "links": one.links} for one in make_documents(12)]
    plain = [
        {"id": f"plain/{n}", "title": f"page {n}", "text": one.text}
        for n, one in enumerate(make_documents(40, seed=1, titles=False))
    ]
    write_rows(folder / "data" / "corpus_links" / "links.jsonl.zst", linked)
    write_rows(folder / "data" / "corpus" / "wikipedia.jsonl.zst", plain)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prepare, "build", toy_tasks)
        made = prepare.Prepared(folder / "here", folder / "data", SMALL, SHARES)
        bundle = made.bundle(SizeBudget.parse("5MB"))
        assert made.bundle(SizeBudget.parse("5MB")).read_bytes() == bundle.read_bytes()  # what is there stays
    there = unbundle(bundle, folder / "there")
    (folder / "data").rename(folder / "away")
    return Place(there, {}, EFFORT)


@pytest.fixture(scope="module")
def encoder(place: Place) -> BodyWork:
    work = BodyWork(place, ALIGNED)
    trained = work.pretrain()
    assert trained["steps"] == 2
    return work


def test_pages_are_divided_by_title_and_held_out_ones_stay_out(place: Place) -> None:
    text = place.folder.parent / "here" / "text"
    ids = {name: {json.loads(line)["id"] for line in (text / f"{name}.jsonl").open()} for name in SHARES}
    assert all(ids.values())
    assert sum(map(len, ids.values())) == len(set.union(*ids.values())) == 40
    held_out = place.run(prepare.HELD_OUT).settings
    assert set(held_out.pretrain.used_objectives) == {"mlm", "nsp"}


def test_all_that_is_scored_is_guarded() -> None:
    concepts = {split: [{"tokens": ["a", split]}] for split in ("train", "dev", "test")}
    acronyms = {split: [{"text_pair": f"snippet {split}"}] * 2 for split in ("train", "dev", "test")}
    found = prepare.guarded_rows(concepts, acronyms)
    is_contaminated = {row["text"] for split in ("dev", "test") for row in found[split]}
    assert is_contaminated == {"a dev", "a test", "snippet train", "snippet dev", "snippet test"}
    assert Counter(row["text"] for row in found["test"])["snippet train"] == 1


@pytest.mark.parametrize("task", sorted(TASKS))
@pytest.mark.parametrize("trained", ["head", "all"])
def test_a_job_has_a_row_for_each_run(encoder: BodyWork, task: str, trained: Any) -> None:
    head: Any = "keep" if trained == "head" else "new"
    rows = list(encoder.job(Job(ALIGNED.name, task, trained, head, 1e-3, (10, 20))))
    found = sorted((row["trial"]["labels"], row["trial"]["draw"]) for row in rows)
    assert found == [(labels, draw) for labels in (10, 20) for draw in range(5)]
    told = encoder.context.truth(task)
    for row in rows:
        scored = told["scored"][row["trial"]["draw"]]
        assert len(row["predictions"]) == len(row["losses"]) == len(scored)
    everything = [number for scored in told["scored"] for number in scored]
    assert len(set(everything)) == (len(told["truth"]) if task == "ad" else 20)


@pytest.mark.parametrize(("task", "other"), [("ct", "ad"), ("ad", "ct")])
def test_both_tasks_learn_together_and_the_rows_are_of_one(encoder: BodyWork, task: str, other: str) -> None:
    job = Job(ALIGNED.name, task, "transformer", "keep", 1e-4, (10,), "all")
    rows = list(encoder.job(job))
    told = encoder.context.truth(task)
    assert [(row["task"], row["tasks"], row["trial"]["draw"]) for row in rows] == [(task, "all", n) for n in range(5)]
    assert all(len(row["predictions"]) == len(told["scored"][row["trial"]["draw"]]) for row in rows)
    found, _ = load_tensors(encoder.stage_one(task, "all").weights)
    alone, _ = load_tensors(encoder.stage_one(task).weights)
    assert {name.split(".")[1] for name in found.keys() - alone.keys()} == {f"task_{other}"}
    assert all(np.array_equal(found[name], alone[name]) for name in alone)
    surprise = [row["losses"] for row in encoder.job(replace(job, tasks="main"))]
    assert surprise != [row["losses"] for row in rows]


def test_a_body_serves_another_task_with_its_own_weights_and_a_new_head(encoder: BodyWork) -> None:
    trained, _ = load_tensors(encoder.folder / "pretrain" / "weights.safetensors")
    for task, classes in (("ct", 4), ("ad", 2)):
        found, _ = load_tensors(encoder.stage_one(task).weights)
        apart = {name for name in found if name not in trained or not np.array_equal(found[name], trained[name])}
        assert all(name.startswith("heads.task.") for name in apart)
        assert found["heads.task.classifier.weight"].shape[0] == classes


@pytest.mark.parametrize("left", [(), ("pack",), ("pack", "pretrain")])
def test_a_half_made_stage_one_and_another_worker_do_no_harm(
    encoder: BodyWork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: tuple[str, ...]
) -> None:
    here = BodyWork(encoder.context, ALIGNED)
    expected, _ = load_tensors(here.stage_one("ct").weights)
    folder = tmp_path / "body"
    folder.mkdir()
    (folder / "pretrain").symlink_to(here.folder / "pretrain")
    here.folder = folder
    half = folder / "tasks" / "ct"
    half.mkdir(parents=True)
    if "pack" in left:
        (half / "pack").symlink_to(encoder.context.folder / "body" / "pack")
    if "pretrain" in left:
        (half / "pretrain").mkdir()
    made = bodies.network_for

    def another_comes_first(*given: Any) -> Any:
        monkeypatch.setattr(bodies, "network_for", made)
        here.stage_one("ct")
        return made(*given)

    monkeypatch.setattr(bodies, "network_for", another_comes_first)
    found, _ = load_tensors(here.stage_one("ct").weights)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in found if not name.startswith("heads.task."))


@pytest.mark.parametrize("task", sorted(TASKS))
def test_the_head_that_is_kept_is_that_of_the_own_objective(place: Place, task: str) -> None:
    found = place.tasks[task]
    assert reused_objective(found.kind, found.labels, place.run("body").settings)[0] == OWN[task]


@pytest.mark.parametrize(("tasks", "trained"), [("main", "head"), ("all", "transformer")])
def test_more_labels_than_there_are_is_said_in_one_line(encoder: BodyWork, tasks: Any, trained: Any) -> None:
    with pytest.raises(InputError, match=r"--labels 9000.*rows to draw from"):
        list(encoder.job(Job(ALIGNED.name, "ad", trained, "keep", 1e-3, (10, 9000), tasks)))


def test_cases_are_shown_before_and_after_learning(encoder: BodyWork) -> None:
    rows = list(encoder.cases())
    assert Counter((row["task"], row["stage"]) for row in rows) == {
        ("ct", "pre-training"): 2,
        ("ct", "fine-tuning"): 2,
        ("ad", "pre-training"): 3,
        ("ad", "fine-tuning"): 3,
    }
    assert all(0 <= float(row["shown"]) <= 1 for row in rows if row["task"] == "ad")


def test_first_objectives_are_scored_on_held_out_pages(encoder: BodyWork) -> None:
    found = {row["objective"]: row for row in encoder.held_out(batches=3)}
    assert set(found) == {"mlm", "nsp"}
    assert found["nsp"]["perplexity"] == pytest.approx(2, abs=0.3)  # two steps teach nothing
    assert found["mlm"]["asked"] > 3
    assert all(0 <= row["accuracy"] <= 1 for row in found.values())


def test_every_arm_of_every_table_is_asked_for_once() -> None:
    asked = Counter(
        (job.encoder, job.task, job.train, job.head, job.tasks, job.rate, labels)
        for encoder in BODIES
        for job in jobs(encoder)
        for labels in job.labels
    )
    assert set(asked.values()) == {1}
    wanted = {
        (arm.encoder.name, task, arm.train, arm.head, arm.tasks, arm.learning_rate, labels)
        for task in TASKS
        for table in tables(task).values()
        for arm in table.arms
        for labels in table.labels
    }
    assert set(asked) == wanted
    assert all(len({arm.title for arm in table.arms}) == len(table.arms) for table in tables("ct").values())


@pytest.mark.parametrize("body", BODIES.values(), ids=lambda encoder: encoder.name)
def test_bodies_are_settings(encoder: Any) -> None:
    base = Settings.model_validate(base_settings("task", [{"path": "x.jsonl", "name": "links"}], None))
    found = with_values(base, encoder.values, encoder.name)
    assert found.pretrain.used_objectives.keys() == {"mlm", "nsp", *OWN.values()} - set(encoder.without)
    assert found.model.size == encoder.size
    assert not found.pretrain.trains_task


@pytest.mark.parametrize("task", sorted(TASKS))
def test_ten_runs_a_cell(task: str) -> None:
    plan = plan_of(task, "head", "new", 1e-3, (200,))
    assert len(list(plan.trials((200,), "head"))) == 10
    assert (plan.folds == 5) == (task == "ad")


def test_a_second_call_leaves_out_what_is_done(tmp_path: Path, encoder: BodyWork) -> None:
    name = ALIGNED.name
    done = [Item(name, PRETRAIN), items_after(name)[0]]
    rows = tmp_path / ROWS
    assert command.done_before(rows, encoder.context) == set()
    write_jsonl(rows, [{"kind": "done", "item": item.name} for item in done])
    todo = Todo([name], command.done_before(rows, encoder.context), at_once=1)
    assert todo.take() == items_after(name)[1]


def test_a_body_that_is_not_here_is_trained_again_if_something_is_left_on_it(tmp_path: Path, encoder: BodyWork) -> None:
    rows, elsewhere = tmp_path / ROWS, replace(encoder.context, folder=tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    (elsewhere.folder / "body").symlink_to(encoder.context.folder / "body")
    items = [Item(ALIGNED.name, PRETRAIN), *items_after(ALIGNED.name)]
    write_jsonl(rows, [{"kind": "done", "item": item.name} for item in items[:-1]])
    here, there = (command.done_before(rows, place) for place in (encoder.context, elsewhere))
    assert here - there == {items[0].name}
    assert len(there) == len(items) - 2
    write_jsonl(rows, [{"kind": "done", "item": item.name} for item in items])
    assert command.done_before(rows, elsewhere) == {item.name for item in items}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"effort": {"seeds": [0], "epochs": 2}}, r"effort\.epochs \(2 -> 1\)"),
        ({"values": {"model.dropout": 0.2}}, r"values\.model\.dropout \(0\.2 -> null\)"),
    ],
)
def test_rows_that_were_made_otherwise_are_not_gone_on_with(
    tmp_path: Path, place: Place, other: Tree, said: str
) -> None:
    path = tmp_path / ROWS
    for row in ({"kind": "body", "body": "256x1"}, {"kind": "result", "body": "256x1"}):
        write_jsonl(path, [{**row, **MADE}, {**row, **MADE, **other}])
        with pytest.raises(InputError, match=rf"row 2: rows of 256x1 were made otherwise .*{said}.*another --out"):
            command.done_before(path, place)
    write_jsonl(path, [{"kind": "body", "body": "256x1"}])
    with pytest.raises(InputError, match="row 1: not a row"):
        command.done_before(path, place)


def test_training_needs_neither_pyarrow_nor_numba(repository: Path) -> None:
    blocked = "import sys; sys.modules['pyarrow'] = sys.modules['numba'] = None; import benchmarks.alignment.train"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, cwd=repository, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_body_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train", "x.tar.zst", "--out", str(tmp_path), "--bodies", "768x33"])
    with pytest.raises(SystemExit):
        command.main()
    assert "no body is named '768x33'" in capsys.readouterr().err


def result_rows(task: str, arm: Arm, labels: int, accuracy: float) -> list[Tree]:
    """Runs that give so many of the first rows of each draw the right answer; truth is class 0 or 1 in turn."""
    rows = []
    for key in plan_of(task, arm.train, arm.head, arm.learning_rate, (labels,), EFFORT).trials((labels,), arm.train):
        scored = list(range(20 * key.draw, 20 * key.draw + 20)) if task == "ad" else list(range(20))
        right = round(accuracy * len(scored))
        answers = [number % 2 if place < right else 1 - number % 2 for place, number in enumerate(scored)]
        statistics = {"predictions": answers, "losses": [1 - accuracy] * len(scored), "counts": [1] * len(scored)}
        common = {"body": arm.encoder.name, "task": task, "train": arm.train, "head": arm.head, "tasks": arm.tasks}
        best = {"epoch": 3, "held_out_perplexity": 2.0}
        rows.append({"kind": "result", **common, "trial": asdict(key), **best, **statistics, **MADE})
    return rows


def told_task(task: str) -> Tree:
    scored = [list(range(20 * n, 20 * n + 20)) if task == "ad" else list(range(20)) for n in range(5)]
    common = {"kind": "task", "task": task, "task_kind": "pair", "labels": ["0", "1"]}
    return {**common, "truth": [n % 2 for n in range(100)], "groups": list(range(100)), "scored": scored}


def write_jsonl(path: Path, rows: list[Tree]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def test_rows_become_tables(tmp_path: Path) -> None:
    rows = [told_task("ad"), told_task("ct")]
    trained = {"kind": "body", "body": ALIGNED.name, "steps": 7, "tokens": 1, "gpu": "a GPU", **MADE}
    rows += [{**trained, "seconds": 2.0}, {**trained, "seconds": 2.0}]
    arms = tables("ad")["2"].arms
    for arm, accuracy in zip(arms, (0.5, 0.6, 0.8, 0.9), strict=True):
        for labels in tables("ad")["2"].labels:
            rows += result_rows("ad", arm, labels, accuracy)
    head, together, layers, _ = tables("ad")["3"].arms
    assert (head.tasks, together.tasks, layers.tasks) == ("main", "all", "main")
    rows += [*result_rows("ad", together, 200, 0.95), *result_rows("ad", layers, 200, 0.7)]
    rows += result_rows("ad", tables("ad")["3"].arms[3], 200, 0.7)[:-1]  # cut off
    rows += [{"kind": "held_out", "body": ALIGNED.name, "objective": name, "accuracy": 0.5, "perplexity": 3.0}
             for name in ("mlm", "nsp")]  # fmt: skip
    rows += [
        {"kind": "case", "body": ALIGNED.name, "task": "ad", "text": "BOE", "stage": "fine-tuning", "shown": "0.71"}
    ]
    half = len(rows) // 2
    write_jsonl(tmp_path / "one.jsonl", rows[:half])
    write_jsonl(tmp_path / "two.jsonl", rows[half - 3 :])  # a few runs came twice
    page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    results = read_results("alignment", tmp_path)
    assert results.summary == {"ad_gain_200": 30.0, "ad_gain_200_p": pytest.approx(1e-4, abs=1e-4)}
    assert sum(row["kind"] == "run" for row in results.rows) == (4 * 5 + 2) * 5 + 4
    assert {row["table"] for row in results.rows if row["kind"] == "cell"} == {"1", "2", "3", "5"}
    shown = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| 768x3, kept head | 90.0 ± 0.0† / 1.11 ± 0.00† |" in shown
    assert "| 768x3, without acronyms, new head | 50.0 ± 0.0 / 1.65 ± 0.00 |" in shown
    assert "| the head and all layers, both tasks together | 95.0 ± 0.0 / 1.05 ± 0.00† |" in shown
    assert "| the head and all layers | 70.0 ± 0.0† / 1.35 ± 0.00† |" in shown
    assert "256x1" not in shown
    assert "the embeddings too" not in shown
    assert "over draws and seeds, 5 runs a cell; lines" in shown
    assert "choose the epoch: 10 beside 50, 20 beside 100, 30 beside 150, 40 beside 200, 200 beside 1000." in shown
    assert "from one document are swapped together" in shown
    assert "pre-trained once, for 7 steps (2 s for 768x3, with others beside it)." in shown
    assert "| all four objectives | 50.0 / 3.00 | 50.0 / 3.00 |" in shown
    assert "| BOE |  | 0.71 |" in shown
    assert "Trained on a GPU" in shown
    short = page.alignment_summary_table(results)
    assert "| acronym detection | 50.0 ± 0.0 | 80.0 ± 0.0 | 90.0 ± 0.0 |" in short
    assert "concept tagging" not in short, "nothing was measured of it"


def test_rows_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results there"):
        page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    write_jsonl(tmp_path / "one.jsonl", [told_task("ad"), {**told_task("ad"), "truth": [0] * 100}])
    with pytest.raises(InputError, match=r"one\.jsonl.*row 2.*other rows of the task ad"):
        page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    encoder = {"kind": "body", "body": "256x1", "steps": 3, "seconds": 1.0, **MADE}
    for name in ("256x1", "256x2"):
        write_jsonl(tmp_path / "one.jsonl", [encoder, {**encoder, "body": name, "steps": 4}])
        with pytest.raises(InputError, match=f"{name} was trained for 4 steps, others for 3"):
            page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    write_jsonl(tmp_path / "one.jsonl", [encoder, {**encoder, "effort": {"seeds": [0, 1], "epochs": 1}}])
    with pytest.raises(InputError, match=r"row 2: rows of 256x1 were made otherwise .*effort\.seeds"):
        page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    (tmp_path / "one.jsonl").write_text('{"kind": "result"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="not a row"):
        page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()


def test_a_body_trained_again_elsewhere_is_told(tmp_path: Path) -> None:
    encoder = {"kind": "body", "body": "256x1", "steps": 3, "gpu": None, **MADE}
    rows = [{**encoder, "seconds": 1.0}, *result_rows("ct", tables("ct")["1"].arms[0], 200, 0.5), told_task("ct")]
    write_jsonl(tmp_path / "one.jsonl", rows)
    write_jsonl(tmp_path / "two.jsonl", [{**encoder, "seconds": 1.5}])
    (tmp_path / "two.jsonl").open("a").write('{"kind": "resu')  # a kill may cut a line off
    page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    assert "for 3 steps, but 256x1 again for a part of the runs" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_a_test_over_folds_is_made_of_all_of_them_or_not_at_all(tmp_path: Path) -> None:
    table = tables("ad")["4"]
    runs = [result_rows("ad", arm, 200, accuracy) for arm, accuracy in zip(table.arms, (0.5, 0.9, 0.9), strict=True)]
    without_fold = [[row for row in rows if row["trial"]["draw"] != 2] for rows in runs]
    write_jsonl(tmp_path / "one.jsonl", [told_task("ad"), *(row for rows in without_fold for row in rows)])
    page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    assert not [row for row in read_results("alignment", tmp_path).rows if row["kind"] == "cell"]
    write_jsonl(tmp_path / "one.jsonl", [told_task("ad"), *runs[0], *runs[1], *without_fold[2]])
    page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    cells = [row for row in read_results("alignment", tmp_path).rows if row["kind"] == "cell"]
    assert [(row["title"], row["runs"]) for row in cells] == [("0.001", 5), ("0.0001", 5)]


def test_speed_and_latency_are_borrowed(tmp_path: Path, repository: Path) -> None:
    measured = json.loads((repository / "benchmarks" / "results" / "few_examples.json").read_text(encoding="utf-8"))
    (tmp_path / "few_examples.json").write_text(json.dumps(measured), encoding="utf-8")
    write_jsonl(tmp_path / "one.jsonl", [told_task("ct"), *result_rows("ct", tables("ct")["1"].arms[0], 200, 0.5)])
    page.collect(tmp_path, tmp_path, tmp_path / "page.md")
    names = ("head_only_runs_per_minute_cpu", "latency_p50_ms_256x3")
    assert read_results("alignment", tmp_path).summary == {name: measured["summary"][name] for name in names}


def test_the_page_shows_the_results(repository: Path) -> None:
    if not (repository / "benchmarks" / "results" / "alignment.json").exists():
        pytest.skip("the evidence has not been measured yet")
    assert page.PAGE.read_text(encoding="utf-8") == page.alignment_page(read_results("alignment"))
