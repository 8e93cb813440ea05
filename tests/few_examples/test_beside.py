"""Auxiliary tasks that learn beside the end task: their rows, their turns, and what becomes of the end task."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from endtask.encoders.auxiliary_heads import add_task_heads
from endtask.encoders.batch import lay_out
from endtask.errors import InputError
from endtask.few_examples import Plan, few_examples
from endtask.few_examples.arm import ArmWork
from endtask.few_examples.bench import batches_of
from endtask.few_examples.beside import Beside, FurtherRows, fitting_beside
from endtask.few_examples.body_runs import BodyRuns
from endtask.few_examples.draws import Rows, make_draws
from endtask.few_examples.plan import Key
from endtask.objectives.task_base import TaskObjective
from endtask.records import Example
from endtask.task import Task
from endtask.task.split import group_key
from endtask.tokenization.packing import pack_task_texts
from tests.aligned_toy import linked_rows
from tests.few_examples.conftest import make_run
from tests.few_examples.test_head_runs import CPU, Arm
from tests.tiny import MAX_LENGTH, make_texts, make_tokenizer
from tests.toy_kinds import write_kind
from tests.toy_run import hashes, write_rows

KINDS: tuple[str, ...] = ("token_classification", "regression", "multilabel", "pair")


def answered(kind: str, name: str, text: str, number: int) -> Example:
    words = tuple(text.split())
    if kind == "token_classification":
        return Example(name, text, tuple("long" if len(word) > 5 else "short" for word in words), tokens=words)
    if kind == "regression":
        return Example(name, text, len(words) + number / 7)
    if kind == "multilabel":
        return Example(name, text, tuple(["even", "long"][: 1 + (len(words) > 3)]) if number % 2 == 0 else ())
    return Example(name, text, "no" if number % 2 else "yes", text_pair=f"stone {number % 2}")


def further_task(kind: str) -> Task:
    parts = {
        split: [
            answered(kind, f"{split}{n}", text, n) for n, text in enumerate(make_texts(count, seed=seed, longest=6))
        ]
        for seed, (split, count) in enumerate({"train": 40, "dev": 8, "test": 8}.items(), start=10)
    }
    return Task.from_examples(kind, parts, task_type=kind)


class Together(Arm):
    """The arm of another test, with a auxiliary task of each kind beside it."""

    def __init__(self, kind: str, plan: Plan, folder: Path, kinds: tuple[str, ...] = KINDS) -> None:
        super().__init__(kind, "lean", plan, folder / "texts")
        make_tokenizer().save_pretrained(folder / "tokenizer")
        rows = Rows.of(self.task)
        self.auxiliary = {name: further_task(name) for name in kinds}
        add_task_heads(self.network, replace(self.task, auxiliary=dict(self.auxiliary)), seed=3)
        self.rows = [FurtherRows(name, one, rows, self.bench.draws, plan) for name, one in self.auxiliary.items()]
        self.beside = [Beside(one, folder / "tokenizer", MAX_LENGTH, plan, folder / one.name) for one in self.rows]

    def runs(self, trained: str, *, alone: bool = False) -> BodyRuns:
        return BodyRuns(self.bench, self.network, self.texts, CPU, trained, () if alone else self.beside)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["text", "token_classification"])
def test_where_no_body_is_shared_the_others_change_nothing(kind: str, tmp_path: Path) -> None:
    plan = Plan(samples=2, seeds=(0,), epochs=4, batch_size=8, dropout=0.0, learning_rates=(1e-2,))
    arm = Together(kind, plan, tmp_path)
    keys = list(plan.keys((12, 20), "head"))
    results = {}
    for alone in (True, False):
        found = arm.runs("head", alone=alone).train(keys, arm.network.reset_task_head)
        results[alone] = [one for some in found for one in some]
    assert results[True] == results[False]


def test_a_body_that_is_shared_learns_from_all(tmp_path: Path) -> None:
    plan = Plan(samples=1, seeds=(0,), epochs=2, batch_size=8, learning_rates=(1e-2,))
    arm = Together("text", plan, tmp_path)
    (key,) = plan.keys((12,), "all")
    before = {name: weight.detach().clone() for name, weight in arm.network.named_parameters()}
    found = {}
    for alone in (True, False):
        ((found[alone],),) = arm.runs("transformer", alone=alone).train([key], None)
    assert found[True].surprise != pytest.approx(found[False].surprise, abs=1e-4)
    again = Together("text", plan, tmp_path / "again")
    assert list(again.runs("transformer").train([key], None)) == [[found[False]]]
    moved = set()
    for _ in arm.runs("transformer").train([key], None):
        moved = {name for name, weight in arm.network.named_parameters() if not torch.equal(weight, before[name])}
    heads = {name.split(".")[1] for name in moved if name.startswith("heads.")}
    assert heads == {"task", *(one.head for one in arm.beside)}
    assert not any(name.startswith("encoder.embeddings.") for name in moved)
    assert all(torch.equal(weight, before[name]) for name, weight in arm.network.named_parameters())


def plain_losses(arm: Together, key: Key, folder: Path) -> list[float]:
    """Held-out losses of all epochs of an end task of texts beside one of pairs, by torch alone: one, the other, ..."""
    network, bench, (auxiliary,) = arm.network, arm.bench, arm.rows
    other = pack_task_texts(auxiliary.task.train, make_tokenizer(), MAX_LENGTH, folder)
    classes = np.asarray(auxiliary.task.label_numbers("train"))
    sides = [
        (arm.texts, bench.units.classes, bench.learned(key), bench.batches(key), "task"),
        (
            other,
            classes,
            auxiliary.learned(key.labels, key.draw),
            batches_of(arm.plan, key, auxiliary.name),
            "task_pair",
        ),
    ]
    learns = {
        n: w for n, w in network.named_parameters() if n.startswith(("encoder.", "heads.task.", "heads.task_pair."))
    }
    groups = [
        {"params": [w for w in learns.values() if (w.ndim > 1) == matrix], "weight_decay": 0.01 * matrix}
        for matrix in (True, False)
    ]
    optimizer, losses = torch.optim.AdamW(groups, lr=key.rate, betas=(0.9, 0.98), eps=1e-6), []
    layout = network.layout(MAX_LENGTH)
    network.eval()  # without dropout the same
    for step in range(arm.plan.epochs * sides[0][3].batches_per_epoch):
        for texts, right, rows, batches, head in sides:
            chosen = rows[batches.positions(step)]
            batch = lay_out(texts, chosen, layout)
            logits = network.task_logits(network(batch), batch, head)
            functional.cross_entropy(logits, torch.from_numpy(right[chosen])).backward()
            torch.nn.utils.clip_grad_norm_(learns.values(), 1.0)
            optimizer.step()
            network.zero_grad()
        if (step + 1) % sides[0][3].batches_per_epoch == 0:
            held_out = bench.held_out(key)
            batch = lay_out(arm.texts, held_out, layout)
            with torch.no_grad():
                logits = network.task_logits(network(batch), batch)
            losses.append(functional.cross_entropy(logits, torch.from_numpy(bench.units.classes[held_out])).item())
    return losses


def test_turns_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    plan = Plan(samples=1, seeds=(0,), epochs=4, batch_size=5, dropout=0.0, learning_rates=(3e-3,))
    arm = Together("text", plan, tmp_path, ("pair",))
    (key,) = plan.keys((12,), "all")
    ((result,),) = arm.runs("all").train([key], None)
    losses = plain_losses(arm, key, tmp_path / "plain")
    assert result.epoch == int(np.argmin(losses)) + 1
    assert np.log(result.held_out_perplexity) == pytest.approx(min(losses), abs=1e-5)


def test_an_epoch_reads_every_row_of_every_task_once(tmp_path: Path) -> None:
    plan = Plan(samples=2, seeds=(0,), epochs=3, batch_size=5)
    arm = Together("token_classification", plan, tmp_path)
    for key in plan.keys((12, 20), "all"):
        phase = arm.runs("all").phase(key)
        tasks = {name: one for name, one in phase.objectives.items() if isinstance(one, TaskObjective)}
        assert list(tasks) == ["task", *KINDS]
        wanted = {"task": arm.bench.learned(key)}
        wanted |= {one.name: one.learned(key.labels, key.draw) for one in arm.rows}
        assert all(len(set(rows.tolist())) == key.labels for rows in wanted.values())
        epoch, more = divmod(phase.steps, plan.epochs)
        assert more == 0
        for start in range(0, phase.steps, epoch):
            read: Counter[tuple[str, int]] = Counter()
            for step in range(start, start + epoch):
                (turn,) = phase.weighting.schedule(step)
                assert turn.weight == 1
                read.update((turn.objective, int(row)) for row in tasks[turn.objective].stream.positions(turn.step))
            assert read == {(name, int(row)): 1 for name, rows in wanted.items() for row in rows}


def task_of(texts: list[int], groups: list[int] | None, name: str) -> Task:
    """Rows whose texts, or groups, may stand in another task too; a third is dev, a third test."""
    rows = [
        Example(f"{name}{n}", f"word {text}", "ab"[n % 2], group=None if groups is None else str(groups[n]))
        for n, text in enumerate(texts)
    ]
    third = len(rows) // 3
    return Task.from_examples(name, {"train": rows[2 * third :], "dev": rows[:third], "test": rows[third : 2 * third]})


_TEXTS = st.lists(st.integers(0, 40), min_size=18, max_size=18)


@given(_TEXTS, _TEXTS, st.none() | _TEXTS, st.sampled_from([None, 2]), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_rows_beside_are_those_of_its_own_draws_that_say_nothing_about_what_is_scored(
    texts: list[int], others: list[int], groups: list[int] | None, folds: int | None, seed: int
) -> None:
    end, auxiliary = task_of(texts, groups, "end"), task_of(others, groups, "further")
    plan, rows = Plan(samples=2, folds=folds, seed=seed), Rows.of(end)
    draws = make_draws(rows, plan)
    own = make_draws(Rows.of(auxiliary), Plan(samples=2, seed=seed))
    found = FurtherRows("further", auxiliary, rows, draws, plan)
    for number, draw in enumerate(draws):
        seen = [rows.examples[row] for row in (*draw.test, *draw.held_out(4, 2))]
        expected = []
        for row in own[number].order:
            one = auxiliary.train[row]
            if not any(group_key(one) == group_key(other) or one.text == other.text for other in seen):
                expected.append(int(row))
        assert found.learned(4, number).tolist() == expected[:4]


def test_numbers_of_labels_for_which_a_task_has_too_few_rows() -> None:
    end, auxiliary = task_of(list(range(300)), None, "end"), task_of(list(range(300, 510)), None, "further")
    rows = Rows.of(end)
    draws = make_draws(rows, Plan())
    beside = [FurtherRows("further", auxiliary, rows, draws, Plan())]
    assert fitting_beside((50, 70, 80), Plan(), beside) == (50, 70)
    message = r"--tasks all --labels 80: the auxiliary task 'further' has 70 rows to draw from \(fewer --labels"
    for plan, labels in ((Plan(labels=(50, 80)), (50, 80)), (Plan(), (80,))):
        with pytest.raises(InputError, match=message):
            fitting_beside(labels, plan, beside)


@pytest.fixture(scope="module")
def both_run(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose pre-training knows no labels, with two auxiliary tasks."""
    data = tmp_path_factory.mktemp("both")
    tasks = {
        kind: {"path": str(write_kind(data / kind, kind) / "task")} for kind in ("token_classification", "regression")
    }
    return make_run(toy, data / "run", tasks=tasks, finetune={"max_length": 16, "tasks": "all"})


SMALL = {"labels": (12, 24), "samples": 2, "seeds": (0,), "epochs": 2, "batch_size": 8, "train": ("transformer",)}


def test_all_tasks_are_a_line_of_their_own_and_resume_run_by_run(
    both_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = few_examples([both_run], Plan.model_validate(SMALL), tmp_path / "alone")
    plan = Plan.model_validate({**SMALL, "train": ("head", "transformer"), "tasks": ("main", "all")})
    outcome = few_examples([both_run], plan, tmp_path / "out")
    assert [(row.train, row.tasks) for row in outcome.rows] == [
        ("head", "main"),
        ("transformer", "main"),
        ("transformer", "all"),
    ]
    assert outcome.rows[-1].name == "run, transformer, new head, all tasks"
    assert outcome.rows[-1].cells != outcome.rows[-2].cells
    assert outcome.notes == ("All tasks: in turn with the end task, from as many labels of each: tags, score.",)
    made = hashes(outcome.folder / "runs" / "run")
    assert len(made) == 3 * 4
    main = {name: value for name, value in made.items() if name.startswith("transformer-new/")}
    assert hashes(alone.folder / "runs" / "run") == main  # who learns beside it in other lines changes nothing

    asked: list[int] = []
    train = ArmWork.train
    monkeypatch.setattr(ArmWork, "train", lambda self, arm, keys: asked.append(len(keys)) or train(self, arm, keys))
    grown = few_examples([both_run], Plan.model_validate({**SMALL, "tasks": ("main", "all")}), tmp_path / "alone")
    assert asked == [4]
    one, *_ = sorted((grown.folder / "runs" / "run" / "transformer-new-all-tasks").glob("*.json"))
    one.unlink()
    few_examples([both_run], Plan.model_validate({**SMALL, "tasks": ("main", "all")}), tmp_path / "alone")
    assert asked == [4, 1]
    assert hashes(grown.folder / "runs" / "run") == {name: made[name] for name in made if "head-new" not in name}


def test_tasks_that_are_not_there_or_too_small_are_refused(both_run: Path, plain_run: Path, tmp_path: Path) -> None:
    plan = Plan.model_validate({**SMALL, "tasks": ("all",)})
    with pytest.raises(InputError, match=r"--tasks all: the run has no auxiliary tasks \(--tasks main, or"):
        few_examples([plain_run], plan, tmp_path / "out")
    many = plan.model_copy(update={"labels": (50,), "held_out": "dev"})
    with pytest.raises(InputError, match="--tasks all --labels 50: the auxiliary task 'tags' has 48 rows to draw from"):
        few_examples([both_run], many, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def aligned_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tagging tasks and one of scores, after pre-training that learned where links are."""
    folder = tmp_path_factory.mktemp("aligned")
    data = write_kind(folder / "data", "token_classification")
    shutil.copytree(data / "task", folder / "twin")
    return make_run(
        data,
        folder / "run",
        corpus={"sources": []},
        aligned={"sources": [{"path": str(write_rows(folder / "linked.jsonl", linked_rows()))}], "span_labels": "bio"},
        select={"selector": "none"},
        tasks={
            "twin": {"path": str(folder / "twin")},
            "regression": {"path": str(write_kind(folder / "score", "regression") / "task")},
        },
        finetune={"max_length": 16, "tasks": "all"},
        train={
            "max_length": 32,
            "batch_size": 8,
            "weighting": "equal",
            "objectives": {"links": {"kind": "hyperlinks"}},
        },
    )


def test_a_further_head_is_kept_where_one_fits_and_new_elsewhere(
    aligned_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, torch.Tensor]] = []
    phase = BodyRuns.phase

    def seen(self: BodyRuns, key: Key) -> object:
        started.append({name: value.detach().clone() for name, value in self._network.state_dict().items()})
        return phase(self, key)

    monkeypatch.setattr(BodyRuns, "phase", seen)
    plan = {**SMALL, "labels": (4,), "samples": 1, "seeds": (0, 1), "epochs": 1, "tasks": ("all",), "head": ("keep",)}
    few_examples([aligned_run], Plan.model_validate(plan), tmp_path / "out")
    first, second = started
    encoder = "heads.{}.classifier.weight"
    for weights in started:
        aligned = weights[encoder.format("aligned_links")]
        assert torch.equal(weights[encoder.format("task")], aligned[[1, 2, 0]])  # B-sky, I-sky, O
        assert torch.equal(weights[encoder.format("task_twin")], aligned[[1, 2, 0]])
    assert not torch.equal(first[encoder.format("task_score")], second[encoder.format("task_score")])


def test_results_say_which_tasks_learned(both_run: Path, tmp_path: Path) -> None:
    plan = Plan.model_validate({**SMALL, "labels": (4,), "samples": 1, "epochs": 1, "tasks": ("all",)})
    outcome = few_examples([both_run], plan, tmp_path / "out")
    kept = json.loads((outcome.folder / "few-examples.json").read_text(encoding="utf-8"))["outcome"]
    assert [row["tasks"] for row in kept["rows"]] == ["all"]
    assert kept["plan"]["tasks"] == ["all"]
