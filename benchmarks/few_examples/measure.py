"""The measurements: a run made in seconds, heads trained on it side by side and one by one, answers one by one."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import endtask
from benchmarks.few_examples.texts import write_task
from endtask.experiments.few_shot.few_shot import few_shot
from endtask.experiments.few_shot.few_shot_spec import FewShotRow, FewShotSpec
from endtask.experiments.few_shot.few_shot_trials import FewShotTrials
from endtask.experiments.few_shot.few_shot_variants import FewShotVariant, VariantTrainer, open_pretrained
from endtask.experiments.few_shot.label_draws import TaskRows, make_draws
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
        "pretrain": {"batch_size": 8, "objectives": {"mlm": {"kind": "mlm", "texts": "task"}},
                  "weighting": "equal"},
        "finetune": {"epochs": 1, "max_steps": 1, "seeds": [0]},
    }  # fmt: skip
    return endtask.run(settings).folder


def side_by_side(run: Path, kind: str, size: str, runs: int, epochs: int) -> Row:
    """All runs by the command's own function: tokenising, the encoder's pass, training, scoring and the page."""
    plan = FewShotSpec(labels=(LABELS,), samples=runs // 2, epochs=epochs, patience=None)
    with tempfile.TemporaryDirectory() as output:
        start = time.perf_counter()
        outcome = few_shot([run], plan, Path(output) / "out")
        seconds = time.perf_counter() - start
    (entry,) = outcome.rows[0].entries
    return {
        "what": "side by side",
        "kind": kind,
        "size": size,
        "runs": entry.trials,
        "epochs": epochs,
        "seconds": seconds,
    }


def one_by_one(run: Path, kind: str, size: str, runs: int, epochs: int) -> Row:
    """The same runs through the whole network, as a training loop does that keeps no vectors."""
    plan = FewShotSpec(labels=(LABELS,), samples=max(1, runs // 2), epochs=epochs, patience=None)
    one = open_pretrained(run)
    rows = TaskRows.of(one.task)
    with tempfile.TemporaryDirectory() as scratch:
        work = VariantTrainer(one, rows, make_draws(rows, plan), plan, (LABELS,), Path(scratch))
        keys = list(plan.trials((LABELS,), "head"))[:runs]
        variant = FewShotVariant.of(FewShotRow(variant=one.name), [one], plan, "few_shot")
        loop: FewShotTrials = work.trials_of(variant, cached=False)
        start = time.perf_counter()
        done = sum(1 for _ in loop.train(keys, work.reset_head))
        seconds = time.perf_counter() - start
    return {"what": "one by one", "kind": kind, "size": size, "runs": done, "epochs": epochs, "seconds": seconds}


def latency(run: Path, kind: str, size: str) -> Row:
    """Milliseconds for one text of the task."""
    texts = endtask.Task.read(run.parent / f"{kind}-task").test
    found = measure_latency(run, [example.text if example.text_pair is None else (example.text, example.text_pair)
                                  for example in texts])  # fmt: skip
    return {"what": "latency", "kind": kind, "size": size, **found}
