"""Auxiliary tasks that alternate with the end task: their rows, their schedule, and the end task's results."""

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

from endtask.encoders.batch import lay_out
from endtask.encoders.network import add_task_heads
from endtask.errors import InputError
from endtask.experiments.few_shot.auxiliary_tasks import AuxiliaryRows, AuxiliaryTask, labels_for_all
from endtask.experiments.few_shot.few_shot import few_shot
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.few_shot_trials import FewShotTrials
from endtask.experiments.few_shot.few_shot_variants import VariantTrainer
from endtask.experiments.few_shot.label_draws import TaskRows, make_draws
from endtask.experiments.few_shot.trial_rows import batches_of
from endtask.objectives.task_losses import TaskObjective
from endtask.records import Example
from endtask.task import Task
from endtask.task.split import group_key
from endtask.tokenization.packing import pack_task_texts
from tests.aligned_toy import linked_rows
from tests.experiments.few_shot.conftest import make_run
from tests.experiments.few_shot.test_few_shot_trials import CPU, Toy
from tests.tiny import MAX_LENGTH, make_texts, make_tokenizer
from tests.toy_run import hashes, write_rows
from tests.toy_task_types import write_toy_of_type

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


class Together(Toy):
    """The toy of another test, with an auxiliary task of each kind."""

    def __init__(self, kind: str, plan: FewShotSpec, folder: Path, kinds: tuple[str, ...] = KINDS) -> None:
        super().__init__(kind, "lean", plan, folder / "texts")
        make_tokenizer().save_pretrained(folder / "tokenizer")
        rows = TaskRows.of(self.task)
        self.auxiliary = {name: further_task(name) for name in kinds}
        add_task_heads(self.network, replace(self.task, auxiliary=dict(self.auxiliary)), seed=3)
        self.auxiliary_rows = [
            AuxiliaryRows(name, one, rows, self.rows.draws, plan) for name, one in self.auxiliary.items()
        ]
        self.auxiliary = [
            AuxiliaryTask(one, folder / "tokenizer", MAX_LENGTH, plan, folder / one.name) for one in self.auxiliary_rows
        ]

    def runs(self, trained: str, *, alone: bool = False) -> FewShotTrials:
        return FewShotTrials(self.rows, self.network, self.texts, CPU, trained, () if alone else self.auxiliary)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["text", "token_classification"])
def test_where_no_encoder_is_shared_the_others_change_nothing(kind: str, tmp_path: Path) -> None:
    plan = FewShotSpec(samples=1, seeds=(0,), epochs=2, batch_size=8, dropout=0.0, learning_rates=(1e-2,))
    toy = Together(kind, plan, tmp_path)
    keys = list(plan.trials((12,), "head"))
    results = {}
    for alone in (True, False):
        found = toy.runs("head", alone=alone).train(keys, toy.network.reset_task_head)
        results[alone] = list(found)
    assert results[True] == results[False]


def test_an_encoder_that_is_shared_learns_from_all(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=1, seeds=(0,), epochs=2, batch_size=8, learning_rates=(1e-2,))
    toy = Together("text", plan, tmp_path)
    (key,) = plan.trials((12,), "all")
    before = {name: weight.detach().clone() for name, weight in toy.network.named_parameters()}
    found = {}
    for alone in (True, False):
        (found[alone],) = toy.runs("transformer", alone=alone).train([key], None)
    assert found[True].losses != pytest.approx(found[False].losses, abs=1e-4)
    again = Together("text", plan, tmp_path / "again")
    assert list(again.runs("transformer").train([key], None)) == [found[False]]
    moved = set()
    for _ in toy.runs("transformer").train([key], None):
        moved = {name for name, weight in toy.network.named_parameters() if not torch.equal(weight, before[name])}
    heads = {name.split(".")[1] for name in moved if name.startswith("heads.")}
    assert heads == {"task", *(one.head for one in toy.auxiliary)}
    assert not any(name.startswith("encoder.embeddings.") for name in moved)
    assert all(torch.equal(weight, before[name]) for name, weight in toy.network.named_parameters())


def plain_losses(toy: Together, key: FewShotTrial, folder: Path) -> list[float]:
    """Return the held-out losses of all epochs of texts in turn with pairs, by torch alone."""
    network, trial_rows, (auxiliary,) = toy.network, toy.rows, toy.auxiliary_rows
    other = pack_task_texts(auxiliary.task.train, make_tokenizer(), MAX_LENGTH, folder)
    classes = np.asarray(auxiliary.task.label_numbers("train"))
    sides = [
        (toy.texts, trial_rows.units.classes, trial_rows.train(key), trial_rows.batches(key), "task"),
        (other, classes, auxiliary.train(key.labels, key.draw), batches_of(toy.plan, key, auxiliary.name), "task_pair"),
    ]
    learns = {
        n: w for n, w in network.named_parameters() if n.startswith(("encoder.", "heads.task.", "heads.task_pair."))
    }
    groups = [
        {"params": [w for w in learns.values() if (w.ndim > 1) == matrix], "weight_decay": 0.01 * matrix}
        for matrix in (True, False)
    ]
    optimizer, losses = torch.optim.AdamW(groups, lr=key.learning_rate, betas=(0.9, 0.98), eps=1e-6), []
    layout = network.layout(MAX_LENGTH)
    network.eval()  # without dropout the same
    for step in range(toy.plan.epochs * sides[0][3].batches_per_epoch):
        for texts, right, rows, batches, head in sides:
            chosen = rows[batches.positions(step)]
            batch = lay_out(texts, chosen, layout)
            logits = network.task_logits(network(batch), batch, head)
            functional.cross_entropy(logits, torch.from_numpy(right[chosen])).backward()
            torch.nn.utils.clip_grad_norm_(learns.values(), 1.0)
            optimizer.step()
            network.zero_grad()
        if (step + 1) % sides[0][3].batches_per_epoch == 0:
            held_out = trial_rows.held_out(key)
            batch = lay_out(toy.texts, held_out, layout)
            with torch.no_grad():
                logits = network.task_logits(network(batch), batch)
            losses.append(functional.cross_entropy(logits, torch.from_numpy(trial_rows.units.classes[held_out])).item())
    return losses


def test_turns_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=1, seeds=(0,), epochs=4, batch_size=5, dropout=0.0, learning_rates=(3e-3,))
    toy = Together("text", plan, tmp_path, ("pair",))
    (key,) = plan.trials((12,), "all")
    (result,) = toy.runs("all").train([key], None)
    losses = plain_losses(toy, key, tmp_path / "plain")
    assert result.epoch == int(np.argmin(losses)) + 1
    assert np.log(result.held_out_perplexity) == pytest.approx(min(losses), abs=1e-5)


def test_an_epoch_reads_every_row_of_every_task_once(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=2, seeds=(0,), epochs=3, batch_size=5)
    toy = Together("token_classification", plan, tmp_path)
    for key in plan.trials((12, 20), "all"):
        phase = toy.runs("all").phase(key)
        tasks = {name: one for name, one in phase.objectives.items() if isinstance(one, TaskObjective)}
        assert list(tasks) == ["task", *KINDS]
        wanted = {"task": toy.rows.train(key)}
        wanted |= {one.name: one.train(key.labels, key.draw) for one in toy.auxiliary_rows}
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
def test_auxiliary_rows_are_those_of_its_own_draws_that_say_nothing_about_what_is_scored(
    texts: list[int], others: list[int], groups: list[int] | None, folds: int | None, seed: int
) -> None:
    end, auxiliary = task_of(texts, groups, "end"), task_of(others, groups, "further")
    plan, rows = FewShotSpec(samples=2, folds=folds, seed=seed), TaskRows.of(end)
    draws = make_draws(rows, plan)
    own = make_draws(TaskRows.of(auxiliary), FewShotSpec(samples=2, seed=seed))
    found = AuxiliaryRows("further", auxiliary, rows, draws, plan)
    for number, draw in enumerate(draws):
        seen = [rows.examples[row] for row in (*draw.test, *draw.held_out(4, 2))]
        expected = []
        for row in own[number].order:
            one = auxiliary.train[row]
            if not any(group_key(one) == group_key(other) or one.text == other.text for other in seen):
                expected.append(int(row))
        assert found.train(4, number).tolist() == expected[:4]


def test_numbers_of_labels_for_which_a_task_has_too_few_rows() -> None:
    end, auxiliary = task_of(list(range(300)), None, "end"), task_of(list(range(300, 510)), None, "further")
    rows = TaskRows.of(end)
    draws = make_draws(rows, FewShotSpec())
    tasks = [AuxiliaryRows("further", auxiliary, rows, draws, FewShotSpec())]
    assert labels_for_all((50, 70, 80), FewShotSpec(), tasks) == (50, 70)
    message = r"--tasks all --labels 80: the auxiliary task 'further' has 70 rows to draw from \(fewer --labels"
    for plan, labels in ((FewShotSpec(labels=(50, 80)), (50, 80)), (FewShotSpec(), (80,))):
        with pytest.raises(InputError, match=message):
            labels_for_all(labels, plan, tasks)


@pytest.fixture(scope="module")
def both_run(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose pre-training knows no labels, with two auxiliary tasks."""
    data = tmp_path_factory.mktemp("both")
    tasks = {
        kind: {"path": str(write_toy_of_type(data / kind, kind) / "task")}
        for kind in ("token_classification", "regression")
    }
    return make_run(toy, data / "run", tasks=tasks, finetune={"max_length": 16, "tasks": "all"})


SMALL = {"labels": (12, 24), "samples": 2, "seeds": (0,), "epochs": 2, "batch_size": 8, "train": ("transformer",)}


def test_all_tasks_are_a_line_of_their_own_and_resume_run_by_run(
    both_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = few_shot([both_run], FewShotSpec.model_validate(SMALL), tmp_path / "alone")
    plan = FewShotSpec.model_validate({**SMALL, "train": ("head", "transformer"), "tasks": ("main", "all")})
    outcome = few_shot([both_run], plan, tmp_path / "out")
    assert [(row.train, row.tasks) for row in outcome.rows] == [
        ("head", "main"),
        ("transformer", "main"),
        ("transformer", "all"),
    ]
    assert outcome.rows[-1].name == "run, transformer, new head, all tasks"
    assert outcome.rows[-1].entries != outcome.rows[-2].entries
    assert outcome.notes == (
        "All tasks: trained in turn with the end task, on as many labels of each: token_classification, regression.",
    )
    made = hashes(outcome.folder / "runs" / "run")
    assert len(made) == 3 * 4
    main = {name: value for name, value in made.items() if name.startswith("transformer-new/")}
    assert hashes(alone.folder / "runs" / "run") == main  # what other rows train changes nothing

    asked: list[int] = []
    train = VariantTrainer.train
    monkeypatch.setattr(
        VariantTrainer, "train", lambda self, variant, trials: asked.append(len(trials)) or train(self, variant, trials)
    )
    grown = few_shot([both_run], FewShotSpec.model_validate({**SMALL, "tasks": ("main", "all")}), tmp_path / "alone")
    assert asked == [4]
    one, *_ = sorted((grown.folder / "runs" / "run" / "transformer-new-all-tasks").glob("*.json"))
    one.unlink()
    few_shot([both_run], FewShotSpec.model_validate({**SMALL, "tasks": ("main", "all")}), tmp_path / "alone")
    assert asked == [4, 1]
    assert hashes(grown.folder / "runs" / "run") == {name: made[name] for name in made if "head-new" not in name}


def test_tasks_that_are_not_there_or_too_small_are_refused(both_run: Path, plain_run: Path, tmp_path: Path) -> None:
    plan = FewShotSpec.model_validate({**SMALL, "tasks": ("all",)})
    with pytest.raises(InputError, match=r"--tasks all: the run has no auxiliary tasks \(--tasks main, or"):
        few_shot([plain_run], plan, tmp_path / "out")
    many = plan.model_copy(update={"labels": (50,), "held_out": "dev"})
    with pytest.raises(
        InputError, match="--tasks all --labels 50: the auxiliary task 'token_classification' has 48 rows to draw from"
    ):
        few_shot([both_run], many, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def aligned_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tagging tasks and one of scores, after pre-training that learned where links are."""
    folder = tmp_path_factory.mktemp("aligned")
    data = write_toy_of_type(folder / "data", "token_classification")
    shutil.copytree(data / "task", folder / "twin")
    return make_run(
        data,
        folder / "run",
        corpus={"sources": []},
        aligned={"sources": [{"path": str(write_rows(folder / "linked.jsonl", linked_rows()))}]},
        select={"name": "none"},
        tasks={
            "twin": {"path": str(folder / "twin")},
            "score": {"path": str(write_toy_of_type(folder / "score", "regression") / "task")},
        },
        finetune={"max_length": 16, "tasks": "all"},
        pretrain={
            "max_length": 32,
            "batch_size": 8,
            "weighting": "equal",
            "objectives": {"links": {"kind": "hyperlinks", "span_labels": "bio"}},
        },
    )


def test_a_further_head_is_kept_where_one_fits_and_new_elsewhere(
    aligned_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, torch.Tensor]] = []
    phase = FewShotTrials.phase

    def seen(self: FewShotTrials, key: FewShotTrial) -> object:
        started.append({name: value.detach().clone() for name, value in self._network.state_dict().items()})
        return phase(self, key)

    monkeypatch.setattr(FewShotTrials, "phase", seen)
    plan = {**SMALL, "labels": (4,), "samples": 1, "seeds": (0, 1), "epochs": 1, "tasks": ("all",), "head": ("keep",)}
    few_shot([aligned_run], FewShotSpec.model_validate(plan), tmp_path / "out")
    first, second = started
    encoder = "heads.{}.classifier.weight"
    for weights in started:
        aligned = weights[encoder.format("aligned_links")]
        assert torch.equal(weights[encoder.format("task")], aligned[[1, 2, 0]])  # B-sky, I-sky, O
        assert torch.equal(weights[encoder.format("task_twin")], aligned[[1, 2, 0]])
    assert not torch.equal(first[encoder.format("task_score")], second[encoder.format("task_score")])


def test_results_say_which_tasks_learned(both_run: Path, tmp_path: Path) -> None:
    plan = FewShotSpec.model_validate({**SMALL, "labels": (4,), "samples": 1, "epochs": 1, "tasks": ("all",)})
    outcome = few_shot([both_run], plan, tmp_path / "out")
    stored = json.loads((outcome.folder / "few-shot.json").read_text(encoding="utf-8"))["outcome"]
    assert [row["tasks"] for row in stored["tables"][0]["rows"]] == ["all"]
    assert stored["spec"]["tasks"] == ["all"]
