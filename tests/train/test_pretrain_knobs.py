"""What stage 1 can be told beyond the papers: a mix that changes, texts by rank, an average of the weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from endtask.errors import InputError
from endtask.files.selection_table import write_selection
from endtask.files.stage_folder import StageFolder
from endtask.models.weights import load_tensors
from endtask.records import Document, Selected
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.pack import pack
from endtask.text.packed import PackedTexts
from endtask.train import pretrain as pretrain_module
from endtask.train.joint import masking_of
from endtask.train.metrics_file import read_metrics
from endtask.train.pretrain import BEST_STAGE_1, WEIGHTS, pretrain, pretrain_phase
from endtask.weighting.annealed_interleave import AnnealedInterleave
from tests.tiny import make_texts

from .conftest import MakeStage, changed
from .test_phase_run import Killed, same, stop_after

Turns = list[str]


@pytest.fixture
def turns_of(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Turns]:
    """Run stage 1 up to its training, and say whose turn each step is."""
    numbers = count()

    def call(budget: str, **training: Any) -> Turns:
        found: Turns = []

        def look(phase: Any, folder: Path, **options: Any) -> Any:
            found.extend(phase.weighting.turns(step)[0].objective for step in range(phase.steps))
            raise Killed

        monkeypatch.setattr(pretrain_module, "run_phase", look)
        settings = changed(run_settings, budget=budget, train=training)
        with pytest.raises(Killed):
            pretrain(task, packed, settings, make_stage(f"pretrain-{next(numbers)}"))
        return found

    return call


def test_the_share_of_task_batches_moves_to_its_last_value(turns_of: Callable[..., Turns]) -> None:
    turns = turns_of("400steps", rho1=9, rho1_end=1)
    assert len(turns) == 400
    quarters = [turns[start : start + 100].count("internal") for start in range(0, 400, 100)]
    assert quarters == pytest.approx([15, 25, 35, 45], abs=1)


def test_an_automatic_rho1_may_end_elsewhere(turns_of: Callable[..., Turns]) -> None:
    """32 rows ask for 99 external batches per task batch, 400 steps for no more than 3."""
    turns = turns_of("400steps", rho1="auto", rho1_end=0)
    rule = AnnealedInterleave("external", "internal", 3, 0, 400)
    assert turns == [rule.turns(step)[0].objective for step in range(400)]
    assert turns[-20:].count("internal") >= 19


def test_a_plan_counts_the_mean_of_the_mix(turns_of: Callable[..., Turns], packed: Path) -> None:
    plain, annealed = turns_of("30ktok", rho1=1), turns_of("30ktok", rho1=1, rho1_end=1)
    assert plain == annealed
    more = turns_of("30ktok", rho1=9, rho1_end=0)
    lengths = {name: PackedTexts(packed / name).lengths.mean() for name in ("external", "internal")}
    read = sum(8 * lengths[name] for name in more)
    assert read == pytest.approx(0.75 * 30_000, rel=0.05), "stage 1's part of the budget"


def test_steps_that_end_before_the_first_task_batch_are_warned_of(
    turns_of: Callable[..., Turns], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "internal" not in turns_of("5steps", rho1=99, rho1_end=40)
    assert "5 steps end before the first task batch (train.rho1 is 99)" in capsys.readouterr().err
    assert "internal" in turns_of("5steps", rho1=99, rho1_end=0)
    assert "end before the first task batch" not in capsys.readouterr().err


@pytest.fixture
def ranked(task: Task, run_settings: Settings, tmp_path: Path) -> Path:
    """Packed passages whose rank falls as their place rises, but for the last two, which are best."""
    ranks = [*range(300, 20, -1), 1, 2]
    selected = [
        Selected(Document(str(n), text, "corpus"), n, rank, 1.0, 1, ("train0",), "rule")
        for n, (rank, text) in enumerate(zip(ranks, make_texts(len(ranks), seed=4), strict=True))
    ]
    write_selection(tmp_path / "selection.parquet", selected)
    pack(task, tmp_path / "selection.parquet", run_settings, tmp_path / "pack")
    return tmp_path / "pack"


def ranks_by_step(task: Task, packed: Path, settings: Settings, order: str) -> list[np.ndarray]:
    """The ranks of the texts that each step of an epoch reads."""
    phase = pretrain_phase(task, packed, changed(settings, train={"order": order}))
    stream = phase.objectives["external"].stream  # type: ignore[attr-defined]
    ranks = PackedTexts(packed / "external").ranks
    assert ranks is not None
    return [ranks[stream.positions(step)] for step in range(stream.plan.batches_per_epoch)]


def test_external_texts_come_by_rank_if_asked(task: Task, ranked: Path, run_settings: Settings) -> None:
    found = {
        order: ranks_by_step(task, ranked, run_settings, order) for order in ("best_first", "best_last", "shuffled")
    }
    everything = sorted(np.concatenate(found["shuffled"]).tolist())
    means = {}
    for order, batches in found.items():
        assert sorted(np.concatenate(batches).tolist()) == everything
        means[order] = [float(batch.mean()) for batch in batches]
    steps = range(len(means["best_first"]))
    assert np.corrcoef(steps, means["best_first"])[0, 1] > 0.98
    assert np.corrcoef(steps, means["best_last"])[0, 1] < -0.98
    assert abs(np.corrcoef(steps, means["shuffled"])[0, 1]) < 0.6
    assert max(found["best_first"][0]) < 60, "among the best of 282"
    assert max(found["best_last"][-1]) < 60


def test_packed_texts_without_ranks_cannot_be_put_in_order(task: Task, ranked: Path, run_settings: Settings) -> None:
    (ranked / "external" / "ranks.npy").unlink()
    with pytest.raises(InputError, match=r"train\.order.*best_first needs ranks.*--from pack"):
        pretrain_phase(task, ranked, changed(run_settings, train={"order": "best_first"}))
    assert pretrain_phase(task, ranked, run_settings).objectives


KNOBS = {
    "rho1": 3,
    "rho1_end": 1,
    "order": "best_first",
    "average_decay": 0.7,
    "lr_scheduler_type": "warmup_stable_decay",
    "head_learning_rate": 1e-2,
    "seed": 7,
    "eval_steps": 5,
}


def test_with_every_knob_stage_1_is_resumed_exactly(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(run_settings, budget="16steps", train={**KNOBS, "checkpoint_steps": 3})

    def folder(name: str) -> StageFolder:
        return StageFolder(tmp_path / name, "pretrain", "fingerprint", {}, {})

    unbroken = folder("unbroken")
    counts = pretrain(task, packed, settings, unbroken)
    weights = load_tensors(unbroken.partial / WEIGHTS)[0]
    for checkpoints in (1, 3, 5):
        stopped, again = folder(f"stopped-{checkpoints}"), folder(f"stopped-{checkpoints}")
        monkeypatch.setattr(stopped, "keep_time", stop_after(checkpoints))
        with pytest.raises(Killed):
            pretrain(task, packed, settings, stopped)
        assert pretrain(task, packed, settings, again) == counts
        assert same(load_tensors(again.partial / WEIGHTS)[0], weights)
        assert same(load_tensors(again.partial / BEST_STAGE_1)[0], load_tensors(unbroken.partial / BEST_STAGE_1)[0])


def test_stage_1_leaves_the_average(task: Task, packed: Path, run_settings: Settings, tmp_path: Path) -> None:
    """The best weights on dev are averages too: those of the last step are the stage's own."""
    found = {}
    for decay in (None, 0.9):
        training = {"average_decay": decay, "eval_steps": 16}
        stage = StageFolder(tmp_path / str(decay), "pretrain", "fingerprint", {}, {})
        pretrain(task, packed, changed(run_settings, budget="16steps", train=training), stage)
        found[decay] = [load_tensors(stage.partial / name)[0] for name in (WEIGHTS, BEST_STAGE_1)]
        assert same(*found[decay])
    losses = [
        [row.get("external/mlm") for row in read_metrics(tmp_path / str(decay) / "pretrain.partial" / "metrics.jsonl")]
        for decay in found
    ]
    assert losses[0] == losses[1], "training itself goes as without"
    assert not same(found[None][0], found[0.9][0])


def test_whole_words_are_hidden_if_asked(task: Task, packed: Path, run_settings: Settings) -> None:
    def hidden(words: bool) -> list[int]:
        settings = changed(run_settings, train={"mask_words": words})
        batch = pretrain_phase(task, packed, settings).objectives["external"].batch(0)
        return [int(position) for position in batch.masked_positions]  # type: ignore[attr-defined]

    assert masking_of(packed, run_settings).word_starts is None
    assert len(hidden(True)) == len(hidden(False))
    assert hidden(True) != hidden(False)
