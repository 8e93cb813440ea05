"""Fine-tuning over rates and seeds, and each setting against a simpler computation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from endtask.config import Settings
from endtask.encoders.weights import load_tensors, load_weights, save_weights
from endtask.evaluation.probabilities import class_probabilities
from endtask.evaluation.task_metrics import Measure
from endtask.io.run_layout import BEST_WEIGHTS, SEED_RESULT
from endtask.io.stage_files import MANIFEST
from endtask.io.stage_folder import StageFolder
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training import finetune as finetune_module
from endtask.training.finetune import finetune
from endtask.training.finetune_pacing import PLAN
from endtask.training.finetune_phase import finetune_phase
from endtask.training.initial_network import network_for
from endtask.training.metrics_file import read_metrics
from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS
from tests.tiny import make_texts
from tests.toy_run import hashes

from .conftest import CPU, MakeStage, changed, packed_in

Pretrained = tuple[Path, dict[str, Any]]
Tune = Callable[..., dict[str, Any]]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def tune(pretrained: Pretrained, task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage) -> Tune:
    """Fine-tune with other settings, in the stage's folder or another."""

    def call(stage: StageFolder | None = None, *, root: dict[str, Any] | None = None, **finetuning: Any) -> Any:
        settings = changed(run_settings, finetune=finetuning, **(root or {}))
        return finetune(task, packed, pretrained[0], settings, stage or make_stage("finetune"))

    return call


def files_of(stage: StageFolder) -> dict[str, str]:
    """Every file of an unfinished stage but the manifest, which keeps times."""
    return {name: value for name, value in hashes(stage.partial).items() if name != MANIFEST}


def give_scores(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> Iterator[float]:
    """Let dev scores be these, one after the other."""
    stream = iter(scores)
    monkeypatch.setattr(Measure, "all_scores", lambda *_: {"macro_f1": next(stream)})
    return stream


def test_the_best_rate_stands_where_readers_look(tune: Tune, make_stage: MakeStage) -> None:
    counts = tune(learning_rate=[1e-7, 1e-2, 1e-6], root={"model": {"dropout": 0.0}}, epochs=6)
    folder = make_stage("finetune").partial
    assert counts["learning_rate"] == 1e-2
    assert [row["learning_rate"] for row in counts["rates"]] == [1e-7, 1e-2, 1e-6]
    assert {path.name for path in folder.iterdir()} == {"seed-0", "seed-1", "rate-1e-07", "rate-1e-06", MANIFEST}
    assert [result["seed"] for result in counts["seeds"]] == [0, 1]
    every = {path: json.loads(path.read_text()) for path in folder.rglob(SEED_RESULT)}
    assert len(every) == 6
    for path, result in every.items():
        chosen = path.parent.parent == folder
        assert (result["learning_rate"] == 1e-2) == chosen
        assert (path.parent / BEST_WEIGHTS).exists() == chosen
        assert (path.parent / "metrics.jsonl").exists()
        assert (result in counts["seeds"]) == chosen
    for row in counts["rates"]:
        scores = [one["dev"]["macro_f1"] for one in every.values() if one["learning_rate"] == row["learning_rate"]]
        assert row["dev_mean"] == pytest.approx(np.mean(scores))
        assert row["dev_std"] == pytest.approx(np.std(scores, ddof=1))
    assert counts["tokens"] == sum(result["tokens"] for result in every.values()), "what lost was paid for too"


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ([0.9, 0.1, 0.6, 0.6], 2e-3),  # one high score is not the best mean
        ([0.5, 0.7, 0.7, 0.5], 1e-3),  # the earlier of equals
        ([0.5, 0.7, 0.5, 0.6], 1e-3),
    ],
)
def test_the_mean_over_the_seeds_decides(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, scores: list[float], chosen: float
) -> None:
    give_scores(monkeypatch, scores)
    counts = tune(learning_rate=[1e-3, 2e-3], epochs=1)
    assert counts["learning_rate"] == chosen
    assert [result["dev"]["macro_f1"] for result in counts["seeds"]] == (scores[:2] if chosen == 1e-3 else scores[2:])


def test_a_rate_named_twice_is_tried_once(tune: Tune, make_stage: MakeStage) -> None:
    counts = tune(learning_rate=[1e-3, 1e-3], max_steps=2)
    assert [row["learning_rate"] for row in counts["rates"]] == [1e-3]
    assert (make_stage("finetune").partial / "seed-0" / BEST_WEIGHTS).exists()


def test_rates_and_seeds_leave_no_trace_in_one_another(tune: Tune, tmp_path: Path) -> None:
    """Each ends in the bits that it has alone."""
    together = StageFolder(tmp_path / "together", "finetune", "", {}, {})
    best = tune(together, learning_rate=[1e-4, 1e-2], seeds=[3, 4])["learning_rate"]
    for rate in (1e-4, 1e-2):
        alone = StageFolder(tmp_path / f"alone-{rate}", "finetune", "", {}, {})
        tune(alone, learning_rate=rate, seeds=[4])
        folder = "" if rate == best else f"rate-{rate}/"
        found = files_of(together)
        expected = {name: value for name, value in files_of(alone).items() if rate == best or BEST_WEIGHTS not in name}
        assert expected == {name: found[folder + name] for name in expected}


def test_a_killed_stage_goes_on_with_the_pairs_that_are_left(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"learning_rate": [1e-3, 1e-2], "epochs": 2, "checkpoint_steps": 3}
    unbroken = StageFolder(tmp_path / "unbroken", "finetune", "", {}, {})
    expected = tune(unbroken, **options)
    trained: list[str] = []
    train = finetune_module.run_stage_phase

    def watched(phase: Any, folder: Path, *given: Any, **options: Any) -> Any:
        trained.append(options["label"])
        return train(phase, folder, *given, **options)

    monkeypatch.setattr(finetune_module, "run_stage_phase", watched)
    killed = StageFolder(tmp_path / "killed", "finetune", "", {}, {})
    for end in (
        lambda: _die_at(monkeypatch, StageFolder, "save_time", call=2),  # inside the first pair
        lambda: _die_at(monkeypatch, finetune_module, "write_json", call=1),  # trained, but not yet on record
        lambda: _die_at(monkeypatch, finetune_module, "load_weights", call=3),  # between two pairs
        lambda: _die_at(monkeypatch, Path, "rename", call=2),  # one of two seeds moved
    ):
        undo = end()
        with pytest.raises(Killed):
            tune(killed, **options)
        undo()
    assert tune(killed, **options) == expected
    assert files_of(killed) == files_of(unbroken)
    done = [f"finetune rate {rate} seed {seed}" for rate in ("0.001", "0.01") for seed in (0, 1)]
    assert list(dict.fromkeys(trained)) == done
    assert trained.count(done[-1]) == 1, "all was trained when it was killed while moving"


def test_a_finetuning_under_a_time_budget_resumes_with_its_decisions(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"root": {"budget": "3s"}, "epochs": 30, "checkpoint_steps": 3, "seeds": [0]}
    killed, again = (StageFolder(tmp_path / name, "finetune", "", {}, {}) for name in ("killed", "again"))
    undo = _die_at(monkeypatch, StageFolder, "save_time", call=4)
    with pytest.raises(Killed):
        tune(killed, **options)
    undo()
    expected = tune(killed, **options)
    again.start()
    again.set_plan(**killed.plan)  # the same decisions without a kill
    (again.partial / "seed-0").mkdir()
    shutil.copy(killed.partial / "seed-0" / PLAN, again.partial / "seed-0" / PLAN)
    assert tune(again, **options) == expected
    assert files_of(killed) == files_of(again)


def _die_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, call: int) -> Callable[[], None]:
    """The `call`-th call of a function ends the process; returns what brings it back to life."""
    original, calls = getattr(owner, name), []

    def replaced(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise Killed
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, replaced)
    return lambda: setattr(owner, name, original)


def test_dev_is_scored_as_often_as_asked_and_at_the_end(tune: Tune, make_stage: MakeStage) -> None:
    counts = tune(max_steps=11, eval_steps=3, seeds=[0])
    rows = read_metrics(make_stage("finetune").partial / "seed-0" / "metrics.jsonl")
    assert [row["step"] for row in rows if "dev/macro_f1" in row] == [3, 6, 9, 11]
    assert counts["steps_per_seed"] == counts["seeds"][0]["steps"] == 11


def test_training_stops_when_dev_gets_no_better(
    tune: Tune, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = give_scores(monkeypatch, [0.1, 0.5, 0.5, 0.3, 0.9])
    counts = tune(max_steps=100, eval_steps=3, early_stopping_patience=2, seeds=[0])
    (result,) = counts["seeds"]
    assert (result["steps"], result["best_step"], result["dev"]["macro_f1"]) == (12, 6, 0.5)
    assert counts["steps_per_seed"] == 12, "what was done, not what was planned"
    assert next(left) == 0.9, "the fifth score was never asked for"
    rows = read_metrics(make_stage("finetune").partial / "seed-0" / "metrics.jsonl")
    assert rows[-1]["step"] == 12


def test_a_better_score_gives_new_patience(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    give_scores(monkeypatch, [0.5, 0.4, 0.6, 0.5, 0.7, 0.6])
    (result,) = tune(max_steps=6, eval_steps=1, early_stopping_patience=2, seeds=[0])["seeds"]
    assert (result["steps"], result["best_step"]) == (6, 5)


@pytest.mark.parametrize("start_from", ["last", "best"])
@pytest.mark.parametrize("head", ["new", "pretrained"])
def test_which_weights_stage_2_starts_from(
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_from: str,
    head: str,
) -> None:
    for seed, name in enumerate((WEIGHTS, BEST_PRETRAINED)):
        save_weights(tmp_path / name, network_for(task, packed, changed(run_settings, seed=seed)))
    settings = changed(
        run_settings,
        pretrain={"eval_steps": 5},
        finetune={"start_from": start_from, "head": head, "learning_rate": [1e-3, 1e-2], "max_steps": 2},
    )
    starts: list[dict[str, torch.Tensor]] = []
    train = finetune_module.run_stage_phase

    def watched(phase: Any, folder: Path, *given: Any, **options: Any) -> Any:
        starts.append({name: value.clone() for name, value in phase.network.state_dict().items()})
        return train(phase, folder, *given, **options)

    monkeypatch.setattr(finetune_module, "run_stage_phase", watched)
    finetune(task, packed, tmp_path, settings, make_stage("finetune"))
    expected, _ = load_tensors(tmp_path / (BEST_PRETRAINED if start_from == "best" else WEIGHTS))
    assert len(starts) == 4
    for start in starts:
        differ = {name for name, value in start.items() if not value.equal(expected[name])}
        assert all(name.startswith("heads.task.") for name in differ)
        assert bool(differ) == (head == "new")
    for name in starts[0]:  # pairs in the order (rate, seed): a seed has one head, whatever the rate
        assert starts[0][name].equal(starts[2][name])
        assert starts[1][name].equal(starts[3][name])


@pytest.mark.parametrize(
    ("finetuning", "message"),
    [
        ({"max_length": 32, "window_stride": 31}, "window_stride 31 would skip tokens between windows of 30"),
        ({"learning_rate": []}, "learning_rate"),
        ({"window_stride": 0}, "window_stride"),
    ],
)
def test_settings_that_cannot_be_followed(finetuning: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.model_validate({"finetune": finetuning})
    assert Settings.model_validate({"finetune": {"max_length": 32, "window_stride": 30}}).finetune.window_stride == 30


@pytest.fixture(scope="module")
def long_task() -> Task:
    """Three classes of unequal size, and texts of one to about sixty tokens."""

    def rows(split: str, count: int, seed: int) -> list[Example]:
        texts = make_texts(count, seed=seed, longest=20)
        return [Example(f"{split}{n}", texts[n], "aaab"[n % 4] if n % 8 else "c") for n in range(count)]

    return Task.from_examples("long", {"train": rows("train", 40, 1), "dev": rows("dev", 16, 2)}, test_fraction=0.0)


@pytest.fixture(scope="module")
def windowed(long_task: Task, run_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack stage's folder, long texts by windows."""
    settings = changed(run_settings, finetune={"window_stride": 5})
    return packed_in(tmp_path_factory.mktemp("windowed"), long_task, settings)


def test_every_text_counts_once_whatever_its_windows(long_task: Task, windowed: Path, run_settings: Settings) -> None:
    settings = changed(run_settings, finetune={"window_stride": 5})
    network = network_for(long_task, windowed, settings)
    phase = finetune_phase(network, long_task, windowed, settings, CPU, seed=0)
    texts = PackedTexts(windowed / "train")
    assert len(texts) > 60, "many texts must have several windows for this to show anything"
    assert phase.steps == settings.finetune.epochs * -(-len(texts) // 8)
    objective: Any = phase.objectives["task"]
    labels = np.asarray(long_task.label_numbers("train"))
    mean = float((1 / texts.windows[texts.examples]).mean())
    found: dict[int, list[tuple[int, float]]] = {}
    for step in range(-(-len(texts) // 8)):
        batch = objective.batch(step)
        owners = texts.examples[objective.stream.positions(step)]
        divided_by = mean * len(batch.labels)
        for owner, label, share in zip(owners, batch.labels.tolist(), batch.weights.tolist(), strict=True):
            found.setdefault(int(owner), []).append((label, share * divided_by))
    assert sorted(found) == list(range(40))
    for owner, windows in found.items():
        assert {label for label, _ in windows} == {labels[owner]}
        assert sum(weight for _, weight in windows) == pytest.approx(1.0, rel=1e-5)
        assert [weight for _, weight in windows] == pytest.approx([windows[0][1]] * len(windows), rel=1e-5)


def test_windows_are_trained_and_scored_as_one_text(
    long_task: Task, windowed: Path, run_settings: Settings, make_stage: MakeStage, tmp_path: Path
) -> None:
    settings = changed(run_settings, finetune={"window_stride": 5, "seeds": [0], "max_steps": 5, "eval_steps": 5})
    save_weights(tmp_path / WEIGHTS, network_for(long_task, windowed, settings))
    (result,) = finetune(long_task, windowed, tmp_path, settings, make_stage("finetune"))["seeds"]
    network = network_for(long_task, windowed, settings)
    load_weights(make_stage("finetune").partial / "seed-0" / BEST_WEIGHTS, network)
    probabilities = class_probabilities(network, PackedTexts(windowed / "dev"), batch_size=7, context=CPU)
    assert len(probabilities) == len(long_task.dev)
    right = probabilities.argmax(-1) == np.asarray(long_task.label_numbers("dev"))
    assert result["dev"]["accuracy"] == right.mean()


@pytest.mark.parametrize("start_from", ["last", "best"])
def test_without_stage_2_the_weights_are_stage_1s(
    tune: Tune,
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    start_from: str,
) -> None:
    root = {"skip_finetuning": True, "pretrain": {"eval_steps": 10}}
    counts = tune(root=root, start_from=start_from, seeds=[6, 7], learning_rate=[1e-3, 1e-2])
    folder = make_stage("finetune").partial
    assert {path.name for path in folder.iterdir()} == {"seed-6", MANIFEST}
    (result,) = counts["seeds"]
    assert result == json.loads((folder / "seed-6" / SEED_RESULT).read_text())
    assert (result["seed"], result["steps"], result["best_step"]) == (6, 0, 0)
    assert counts["steps_per_seed"] == counts["tokens"] == counts["flops"] == counts["matmul_flops"] == 0
    kept, _ = load_tensors(folder / "seed-6" / BEST_WEIGHTS)
    stage_1, _ = load_tensors(pretrained[0] / (BEST_PRETRAINED if start_from == "best" else WEIGHTS))
    assert all(value.equal(stage_1[name]) for name, value in kept.items())
    network = network_for(task, packed, run_settings)
    load_weights(folder / "seed-6" / BEST_WEIGHTS, network)
    answers = class_probabilities(network, PackedTexts(packed / "dev"), batch_size=4, context=CPU).argmax(-1)
    assert result["dev"]["accuracy"] == (answers == np.asarray(task.label_numbers("dev"))).mean()
    before = files_of(make_stage("finetune"))
    assert tune(root=root, start_from=start_from, seeds=[6, 7]) == counts
    assert files_of(make_stage("finetune")) == before, "done again after a kill, it leaves the same"
    if start_from == "best":
        assert result["dev"] == pretrained[1]["dev"], "scored before, by the same head"


def test_nothing_is_compiled_twice(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second rate and a second seed find all graphs there, dev scores in between notwithstanding."""
    graphs: list[int] = []
    counter = CompileCounter()
    compile_module, train = nn.Module.compile, finetune_module.run_stage_phase
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compile_module(self, backend=counter, **options))

    def watched(*arguments: Any, **given: Any) -> Any:
        memory = train(*arguments, **given)
        graphs.append(counter.frame_count)
        return memory

    monkeypatch.setattr(finetune_module, "run_stage_phase", watched)
    torch._dynamo.reset()
    tune(root={"compile": True}, learning_rate=[1e-3, 1e-2], epochs=2)
    assert len(graphs) == 4
    assert graphs[0] > 0, "the step must be compiled for this to show anything"
    assert set(graphs) == {graphs[0]}


@pytest.mark.long
def test_seeds_share_what_is_compiled_whatever_their_batches_hold(
    run_settings: Settings, tmp_path: Path, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths so uneven that the fullest batch of every seed is another."""
    texts = make_texts(260, seed=3, longest=30)
    rows = [Example(f"row{n}", text, "ab"[n % 2]) for n, text in enumerate(texts)]
    task = Task.from_examples("uneven", {"train": rows[:240], "dev": rows[240:]}, test_fraction=0.0)
    finetuning = {"max_length": 100, "epochs": 1, "batch_size": 16, "seeds": list(range(8))}
    settings = changed(run_settings, compile=True, finetune=finetuning)
    packed = packed_in(tmp_path, task, settings)
    save_weights(tmp_path / WEIGHTS, network_for(task, packed, settings))
    counter, compile_module = CompileCounter(), nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compile_module(self, backend=counter, **options))
    torch._dynamo.reset()
    finetune(task, packed, tmp_path, settings, make_stage("finetune"))
    assert counter.frame_count == 1
