"""Training by two processes that torchrun starts: the losses of one process, and restarts that change nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import endtask
from endtask.training.metrics_file import read_metrics
from tests.cluster.more_runs import pretrain
from tests.toy_run import results, toy_settings

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
        reason="this build of torch has no gloo, by which processes on a CPU exchange gradients",
    ),
]
FOLDER = Path(__file__).parent
MLM_AND_TASK = {"mlm": {"kind": "mlm", "texts": "selection"}, "task": {"kind": "task", "texts": "task"}}
CASES: dict[str, dict[str, Any]] = {
    "equal": {"weighting": "equal", "objectives": MLM_AND_TASK, "gradient_accumulation_steps": 2},
    "tlm": {"weighting": {"name": "interleave", "rho1": 2}},
    "meta": {"weighting": {"name": "meta", "every": 2}, "objectives": MLM_AND_TASK},
    "fsdp": {"weighting": {"name": "interleave", "rho1": 2}, "eval_steps": 4},
    "up": {"weighting": "equal", "objectives": MLM_AND_TASK},
    "down": {"weighting": "equal", "objectives": MLM_AND_TASK},
}
"""Settings of pre-training. `up` is begun by one process and ended by two, `down` by two and by one."""
STEPS = {"equal": 50, "tlm": 15, "meta": 15, "fsdp": 9, "up": 10, "down": 10}
TOGETHER = "together"
"""A run by two processes to its end, which nothing disturbs."""


def settings_of(case: str, toy: Path, output: Path) -> dict[str, Any]:
    tree = toy_settings(toy, output, budget=f"{STEPS.get(case, 10)}steps")
    tree["distributed"] = "fsdp" if case == "fsdp" else "ddp"
    tree["model"]["dropout"] = 0.0  # its masks depend on the number of processes
    tree["pretrain"].update(CASES.get(case, {}), dropout=0.0, checkpoint_steps=4)
    return tree


def run_command(*arguments: str | Path, **variables: str) -> str:
    """Run a module of Python in a process of its own, and return its output."""
    root = FOLDER.parent.parent
    paths = os.pathsep.join([str(root), str(root / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return done.stdout


@pytest.fixture(scope="module")
def packed(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run up to the stage before training."""
    folder = tmp_path_factory.mktemp("packed") / "run"
    endtask.run(settings_of("equal", toy, folder), until="pack")
    return folder


def copied(packed: Path, toy: Path, output: Path) -> Path:
    """Copy the run, and return the settings file of the case that the folder is named after."""
    shutil.copytree(packed, output)
    path = Path(f"{output}.json")
    path.write_text(json.dumps(settings_of(output.name.partition("-")[2], toy, output)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(toy: Path, packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs by one process, `one-CASE`, and by two, `two-CASE`, up to pre-training, and one to its end."""
    folder = tmp_path_factory.mktemp("runs")
    files = {name: copied(packed, toy, folder / name) for case in CASES for name in (f"one-{case}", f"two-{case}")}
    for case in CASES:
        pretrain(str(files[f"one-{case}"]))
    pretrain(f"{files['two-up']}:stop")
    together = [f"{files[f'two-{case}']}{':stop' if case == 'down' else ''}" for case in CASES]
    command = ("endtask", "run", copied(packed, toy, folder / TOGETHER), "--nproc", "2", "--until", "finetune")
    output = run_command(*command, "--plugin", FOLDER / "more_runs.py", MORE_RUNS=" ".join(together))
    assert output.count("report:") == 1
    pretrain(str(files["two-down"]))
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_processes_have_the_losses_of_one(runs: Path, case: str) -> None:
    one, two = (read_metrics(runs / f"{name}-{case}" / "pretrain" / "metrics.jsonl") for name in ("one", "two"))
    assert len(one) == len(two) >= STEPS[case]
    for row, other in zip(one, two, strict=True):
        assert other == pytest.approx(row, abs=1e-5, rel=1e-5, nan_ok=True)


def test_the_manifest_says_how_weights_were_shared(runs: Path) -> None:
    for case in CASES:
        counts = [read_counts(runs / f"{name}-{case}") for name in ("one", "two")]
        shared = [(count.get("processes"), count.get("distributed")) for count in counts]
        last_by_one = case == "down"
        assert shared == [(None, None), (None, None) if last_by_one else (2, "fsdp" if case == "fsdp" else "ddp")]


def read_counts(run: Path) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((run / "pretrain" / "manifest.json").read_text(encoding="utf-8"))["counts"]
    return counts


def test_costs_are_those_of_the_whole_batch(runs: Path) -> None:
    one, two = (read_counts(runs / f"{name}-tlm") for name in ("one", "two"))
    for name in ("steps", "tokens", "padded_tokens", "matmul_flops", "objectives"):
        assert two[name] == one[name]


def test_a_killed_process_is_started_again_and_ends_in_the_same_weights(
    toy: Path, packed: Path, runs: Path, tmp_path: Path
) -> None:
    file = copied(packed, toy, tmp_path / "killed")
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1")
    run_command(
        *launcher, "-m", "endtask", "run", "--quiet", file, "--until", "finetune", "--plugin", FOLDER / "kill_plugin.py"
    )
    assert results(tmp_path / "killed") == results(runs / TOGETHER)


def test_influence_is_scored_by_all_processes(toy: Path, tmp_path: Path) -> None:
    select = {"name": "influence", "budget": "50%", "share_of_budget": None, "uninformed": "warn", "epochs": 1}
    outputs = {count: tmp_path / f"by-{count}" for count in ("1", "2")}
    seen = tmp_path / "seen"
    seen.mkdir()
    for count, output in outputs.items():
        settings = Path(f"{output}.json")
        settings.write_text(json.dumps(toy_settings(toy, output, select=select)), encoding="utf-8")
        command = ("endtask", "run", settings, "--until", "select", "--plugin", FOLDER / "small_shards.py")
        run_command(*command, *(("--nproc", count) if count != "1" else ()), SHARDS_SEEN=str(seen))
    shards, ranks = zip(*(note.name.split("-") for note in seen.iterdir()), strict=True)
    assert len(set(shards)) == len(shards) > 2
    assert set(ranks) == {"0", "1"}
    one, two = ((output / "select" / "selection.parquet").read_bytes() for output in outputs.values())
    assert one == two
