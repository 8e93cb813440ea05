"""How the demo was shaped: variants of its preset, judged on its dev split; the test split is never scored.

    .venv/bin/python -m benchmarks.demo_recipe FOLDER [PROCESSES]

Reading, retrieval and packing are done once and copied; each variant then trains on its own.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.results_file import write_results
from endtask.config import load_settings
from endtask.pipeline.run import run

TASK_ONLY = ["select.selector=none", "budget=900ktok", "finetune.budget_share=0.6"]
VARIANTS: dict[str, list[str]] = {
    "demo": [],
    "bert (first token)": ["model.architecture=bert"],
    "two layers": ["model.num_hidden_layers=2"],
    "256 wide": ["model.hidden_size=256", "model.num_attention_heads=4"],
    "a quarter of the tokens": ["budget=1Mtok", "finetune.budget_share=0.4"],
    "twice the tokens": ["budget=5.4Mtok", "finetune.budget_share=0.111"],
    "rho1 = 1": ["pretrain.weighting.rho1=1"],
    "rho1 = 9": ["pretrain.weighting.rho1=9"],
    "rho1 = 19, rho2 = 20": ["pretrain.weighting.rho1=19", "pretrain.objectives.task.rho2=20"],
    "masked LM alone": ["pretrain.weighting.rho1=1000000"],
    "learning rate 1e-3": ["pretrain.learning_rate=1e-3"],
    "15% masked": ["pretrain.mask_probability=0.15"],
    "40% masked": ["pretrain.mask_probability=0.4"],
    "3% of the corpus": ["select.budget=3%"],
    "12% of the corpus": ["select.budget=12%"],
    "task only": [*TASK_ONLY, "tokenizer.path={shared}/pack/tokenizer"],
    "task only, own tokenizer": TASK_ONLY,
    "task only, no pre-training to speak of": [
        *TASK_ONLY,
        "budget=600ktok",
        "finetune.budget_share=0.95",
        "tokenizer.path={shared}/pack/tokenizer",
        "finetune.learning_rate=1e-3",
    ],
    "task only, bert": [*TASK_ONLY, "tokenizer.path={shared}/pack/tokenizer", "model.architecture=bert"],
}


def measure(name: str, shared: Path, folder: Path) -> dict[str, Any]:
    """Train one variant in a process of its own; returns its dev scores and cost."""
    target = folder / name.replace(" ", "-").replace(",", "").replace("%", "pc").replace("=", "")
    if not target.exists():
        shutil.copytree(shared, target)
    overrides = [change.format(shared=shared) for change in VARIANTS[name]]
    # A variant that changes the selection redoes what follows from it.
    start = ["--from", "select"] if any(change.startswith("select.") for change in overrides) else []
    if "select.selector=none" in overrides:
        start = ["--from", "retrieve"]
    command = [sys.executable, "-m", "endtask", "run", "--preset", "demo", "--output", str(target), "--json", "-q"]
    for change in overrides:
        command += ["--set", change]
    done = subprocess.run([*command, "--until", "finetune", *start], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    stages = json.loads(done.stdout)["stages"]
    scores = [seed["dev"]["accuracy"] for seed in stages["finetune"]["seeds"]]
    return {
        "variant": name,
        "changes": VARIANTS[name],
        "dev_accuracy": scores,
        "dev_mean": statistics.fmean(scores),
        "tokens": stages["pretrain"]["tokens"],
        "steps": stages["pretrain"]["steps"],
        "flops": stages["pretrain"]["flops"],
        "parameters": stages["pretrain"]["parameters"],
        "device": stages["pretrain"]["device"],
    }


def main() -> None:
    """Measure all variants and write the results file."""
    folder = Path(sys.argv[1])
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    shared = folder / "shared"
    run(load_settings(preset="demo", given={"output_dir": str(shared)}), until="pack")
    with ThreadPoolExecutor(processes) as pool:
        rows = list(pool.map(lambda name: measure(name, shared, folder), VARIANTS))
    for row in sorted(rows, key=lambda row: -row["dev_mean"]):
        print(f"{row['dev_mean']:.3f}  {row['variant']}")
    summary = {row["variant"]: row["dev_mean"] for row in rows}
    print(write_results("demo_recipe", f"python -m benchmarks.demo_recipe FOLDER {processes}", rows, summary))


if __name__ == "__main__":
    main()
