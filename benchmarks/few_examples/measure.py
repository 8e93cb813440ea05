"""The measurements: a run made in seconds, heads trained on it side by side and one by one, answers one by one."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import endtask
from benchmarks.few_examples.texts import write_task
from endtask.few_examples import Plan, few_examples
from endtask.few_examples.arm import Arm, ArmWork
from endtask.few_examples.body_runs import BodyRuns
from endtask.few_examples.draws import Rows, make_draws
from endtask.few_examples.stage_one import open_stage_one
from endtask.serving.latency import measure_latency

Row = dict[str, Any]
LABELS = 200


def make_run(folder: Path, kind: str, size: str) -> Path:
    """A whole run of a made-up task with hardly any training: its speed is that of any run."""
    task = write_task(folder / f"{kind}-task", kind)
    settings = {
        "output_dir": str(folder / f"{kind}-{size}"),
        "budget": "2steps",
        "device": "cpu",
        "task": {"path": str(task)},
        "tokenizer": {"vocab_size": 2000},
        "model": {"size": size},
        "pretrain": {"weighting": {"rho1": "inf"}, "batch_size": 8, "objectives": {"mlm": {"kind": "mlm", "texts": "task"}},
                  "weighting": "equal"},
        "finetune": {"epochs": 1, "max_steps": 1, "seeds": [0]},
    }  # fmt: skip
    return endtask.run(settings).folder


def side_by_side(run: Path, kind: str, size: str, runs: int, epochs: int) -> Row:
    """All runs by the command's own function: tokenising, the encoder's pass, training, scoring and the page."""
    plan = Plan(labels=(LABELS,), samples=runs // 2, epochs=epochs, patience=None)
    with tempfile.TemporaryDirectory() as output:
        start = time.perf_counter()
        outcome = few_examples([run], plan, Path(output) / "out")
        seconds = time.perf_counter() - start
    (cell,) = outcome.rows[0].cells
    return {"what": "side by side", "kind": kind, "size": size, "runs": cell.runs, "epochs": epochs, "seconds": seconds}


def one_by_one(run: Path, kind: str, size: str, runs: int, epochs: int) -> Row:
    """The same runs through the whole network, as a training loop does that keeps no vectors."""
    plan = Plan(labels=(LABELS,), samples=max(1, runs // 2), epochs=epochs, patience=None)
    one = open_stage_one(run)
    rows = Rows.of(one.task)
    with tempfile.TemporaryDirectory() as scratch:
        work = ArmWork(one, rows, make_draws(rows, plan), plan, (LABELS,), Path(scratch))
        keys = list(plan.keys((LABELS,), "head"))[:runs]
        loop: BodyRuns = work.body_runs(Arm(one, "head", "new"))
        start = time.perf_counter()
        done = sum(len(results) for results in loop.train(keys, work.reset_head))
        seconds = time.perf_counter() - start
    return {"what": "one by one", "kind": kind, "size": size, "runs": done, "epochs": epochs, "seconds": seconds}


def latency(run: Path, kind: str, size: str) -> Row:
    """Milliseconds for one text of the task."""
    texts = endtask.Task.read(run.parent / f"{kind}-task").test
    found = measure_latency(run, [example.text if example.text_pair is None else (example.text, example.text_pair)
                                  for example in texts])  # fmt: skip
    return {"what": "latency", "kind": kind, "size": size, **found}
