"""Screen variants of both training stages on one GPU, by dev scores alone, before a comparison that looks at test.

    python -m benchmarks.recipe.screen --run runs/recipe-chemprot --plan plan.yaml --out runs/screen

The run stands packed. The plan names variants by dotted keys:

    stage1: {base: {}, more masks: {pretrain.mask_probability: 0.3}}
    stage2: {base: {}, slow: {finetune.learning_rate: 1.0e-4}}
    seeds: [0, 1]

Every variant of fine-tuning starts from every variant of pre-training, unless `starts: {slow: [base]}` names fewer. Pre-training is
done by this process, one variant after the other. Fine-tuning a small model keeps a GPU busy a fraction of the time,
so several worker processes fine-tune at once, each with one network for all of its jobs, and while the next variant of
pre-training trains: budgets are best given in steps or tokens, since seconds then mean little.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.multiprocessing as multiprocessing
import yaml

from endtask.config import FinetuneSettings, Settings, load_settings
from endtask.config.overrides import with_values
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.encoders.weights import load_weights
from endtask.experiments.stage_reuse import reuse_data, reuse_stages
from endtask.io.run_layout import BEST_WEIGHTS, SETTINGS_FILE
from endtask.io.stage_folder import read_manifest
from endtask.pipeline.run import Run
from endtask.progress import set_quiet
from endtask.task import Task
from endtask.training.dev_eval import DevScores
from endtask.training.device import choose_device_context, move
from endtask.training.finetune import END_TASK, finetune_phase, steps_per_epoch
from endtask.training.initial_network import network_for
from endtask.training.metrics_file import read_metrics
from endtask.training.phase_runner import run_phase
from endtask.training.pretrain import WEIGHTS

Values = dict[str, Any]
_FIXED = ("max_length", "window_stride", "start_from", "eval_steps", "early_stopping_patience", "max_steps", "seeds")
_OF_STAGE_2 = {f"finetune.{key}" for key in FinetuneSettings.model_fields if key not in _FIXED} | {
    "model.dropout",
    "model.pooling",
}


@dataclass(frozen=True)
class Job:
    """One fine-tuning from what a variant of pre-training made."""

    stage1: str
    stage2: str
    seed: int
    run: str
    values: Values


@dataclass(frozen=True)
class Plan:
    """What to try."""

    stage1: dict[str, Values]
    stage2: dict[str, Values]
    seeds: tuple[int, ...]
    starts: dict[str, tuple[str, ...]]

    @classmethod
    def read(cls, path: Path) -> Plan:
        """From a YAML file."""
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        starts = {name: tuple(names) for name, names in tree.get("starts", {}).items()}
        for name, values in tree["stage2"].items():
            if fixed := [key for key in values if key not in _OF_STAGE_2]:
                raise SystemExit(f"{path}: stage2 {name!r}: {fixed[0]} is not fine-tuning's, or its pack would differ")
        return cls(tree["stage1"], tree["stage2"], tuple(tree["seeds"]), starts)

    def jobs(self, stage1: str, run: Path) -> list[Job]:
        """All fine-tunings from one variant of pre-training."""
        return [
            Job(stage1, name, seed, str(run), values)
            for name, values in self.stage2.items()
            if stage1 in self.starts.get(name, (stage1,))
            for seed in self.seeds
        ]


class Finetuner:
    """A worker's networks by the run whose shapes they have, each compiled once."""

    def __init__(self, base: Path, scratch: Path) -> None:
        self._base, self._scratch = base, scratch
        self._networks: dict[str, tuple[Network, DeviceContext, Task]] = {}

    def finetune(self, job: Job) -> dict[str, Any]:
        """Fine-tune once; returns the dev score of every epoch."""
        started, run = time.perf_counter(), Path(job.run)
        settings = with_values(load_settings(run / SETTINGS_FILE), job.values, job.stage2)
        network, context, task = self._network(run, settings)
        folder = self._scratch / "stage2" / job.stage1 / job.stage2 / str(job.seed)
        shutil.rmtree(folder, ignore_errors=True)  # what an earlier call left has no fingerprint
        metric = f"dev/{settings.evaluate.metric}"
        load_weights(run / "pretrain" / WEIGHTS, network)
        phase = finetune_phase(network, task, run / "pack", settings, context, seed=job.seed)
        scores = self._scores(network, task, run, settings, context, folder)
        run_phase(
            phase, folder, label="finetune", callback=scores.callback(steps_per_epoch(phase.objectives[END_TASK]))
        )
        curve = [row[metric] for row in read_metrics(folder / "metrics.jsonl") if metric in row]
        shutil.rmtree(folder)
        seconds = round(time.perf_counter() - started, 1)
        return {**asdict(job), "dev": max(curve), "dev_last": curve[-1], "curve": curve, "seconds": seconds}

    def _scores(
        self, network: Network, task: Task, run: Path, settings: Settings, context: DeviceContext, folder: Path
    ) -> DevScores:
        return DevScores(network, task, run / "pack", settings, context, folder / BEST_WEIGHTS, patience=None)

    def _network(self, run: Path, settings: Settings) -> tuple[Network, DeviceContext, Task]:
        pack = read_manifest(run / "pack")
        assert pack is not None
        train = settings.pretrain
        heads = [train.task_head, sorted(one.kind for one in train.used_objectives.values())]
        shape = json.dumps([settings.model.model_dump(mode="json"), heads, pack["fingerprint"]])
        if shape not in self._networks:
            task, context = run_in(self._base).task, choose_device_context(settings)
            network = move(network_for(task, run / "pack", settings), settings, context)
            self._networks[shape] = (network, context, task)
        return self._networks[shape]


def run_in(folder: Path, overrides: list[str] | None = None) -> Run:
    """The run that a folder holds, which may have been moved."""
    given = {"output_dir": str(folder)}
    return Run(load_settings(folder / SETTINGS_FILE, given=given, overrides=overrides or []))


def work(jobs: Any, results: Any, base: Path, scratch: Path) -> None:
    """A worker: fine-tunes what it is given until it is ended."""
    set_quiet(True)
    torch.set_num_threads(1)
    finetuner = Finetuner(base, scratch)
    while True:
        job = jobs.get()
        try:
            results.put(finetuner.finetune(job))
        except Exception as error:
            results.put({**asdict(job), "error": f"{type(error).__name__}: {error}"[:300]})


def pretrain(base: Run, name: str, values: Values, scratch: Path, done: list[Path]) -> dict[str, Any]:
    """Pre-training of a variant in a run folder of its own; what it costs."""
    folder = scratch / "stage1" / name
    run = Run(with_values(base.settings, {**values, "output_dir": str(folder)}, name))
    reuse_data(base, run)
    reuse_stages(run, [base.folder, *done])
    result = run.go(until="pretrain")
    manifest = read_manifest(folder / "pretrain")
    assert manifest is not None
    losses = [row for row in read_metrics(folder / "pretrain" / "metrics.jsonl") if "external/mlm" in row]
    last = [row["external/mlm"] for row in losses[-10:]]
    counts = {key: result.stages["pretrain"][key] for key in ("steps", "tokens", "matmul_flops", "parameters")}
    loss = round(sum(last) / len(last), 4) if last else None
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "stage1": name,
        "values": values,
        "loss": loss,
        **counts,
        "seconds": manifest["seconds"],
        "gpu": gpu,
    } | {"text": str(base.settings.select.budget)}


def screen(base: Run, plan: Plan, scratch: Path, rows: TextIO, *, workers: int) -> None:
    """Run the plan; every row is written as it comes, for a machine that may be taken away."""
    context = multiprocessing.get_context("spawn")
    jobs, results = context.Queue(), context.Queue()
    arguments = (jobs, results, base.folder, scratch)
    # Daemons: whatever ends this process ends them.
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(workers)]
    for process in processes:
        process.start()
    arrivals = Arrivals(results, rows)
    arrivals.start()
    sent = 0
    done: list[Path] = []
    for name, values in plan.stage1.items():
        write(pretrain(base, name, values, scratch, done), rows)
        done.append(scratch / "stage1" / name)
        for job in plan.jobs(name, done[-1]):
            jobs.put(job)
            sent += 1
    while arrivals.count < sent and any(process.is_alive() for process in processes):
        time.sleep(0.5)


class Arrivals(threading.Thread):
    """Writes what workers have done, also while pre-training trains: the machine may be taken away."""

    def __init__(self, results: Any, rows: TextIO) -> None:
        super().__init__(daemon=True)
        self._results, self._rows, self.count = results, rows, 0

    def run(self) -> None:
        """Go on until the process ends."""
        while True:
            write(self._results.get(), self._rows)
            self.count += 1


def write(row: dict[str, Any], rows: TextIO) -> None:
    """Keep a row, and show it without what is long."""
    print(json.dumps(row, ensure_ascii=False), file=rows)
    print({key: value for key, value in row.items() if key not in ("curve", "run", "values")}, flush=True)


def main() -> None:
    """Screen what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, help="room to work [RUN/screen, where a bundle's record is found]")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    with open(asked.out / "screen.jsonl", "a", encoding="utf-8", buffering=1) as rows:
        scratch = asked.scratch or asked.run / "screen"
        screen(run_in(asked.run, asked.set), Plan.read(asked.plan), scratch, rows, workers=asked.workers)


if __name__ == "__main__":
    main()
