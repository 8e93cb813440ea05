"""Compare methods that use auxiliary images over several seeds, with a paired permutation test.

.venv/bin/python -m examples.digits                                    # scikit-learn's digits, some minutes on one core
.venv/bin/python -m examples.digits --images cifar100.npz --seeds 3    # your own copy of CIFAR-100
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.results_file import write_results
from endtask.config import Settings
from endtask.errors import InputError
from endtask.training.device import choose_device
from examples.digits.images import ImageTask, divide, read_digits, read_images, usual_classes
from examples.digits.methods import METHODS, Plan, learn
from examples.digits.results import Row, as_text, row_of, summary_of


def compare(tasks: Sequence[ImageTask], plan: Plan, seeds: int, device: torch.device) -> list[Row]:
    """Train every method with every seed on every task, and return a row for each run."""
    rows = []
    for task in tasks:
        for seed in range(seeds):
            rows += [_run(method, task, plan, seed, device) for method in METHODS]
            print(f"{len(task.train)} train images, seed {seed} done", flush=True)
    return rows


def _run(method: str, task: ImageTask, plan: Plan, seed: int, device: torch.device) -> Row:
    started = time.process_time()
    outcome = learn(method, task, plan, seed=seed, device=device)
    return row_of(method, seed, task, plan, outcome, time.process_time() - started)


def main() -> None:
    """Run the comparison of the command line."""
    parser = _parser()
    args = parser.parse_args()
    torch.set_num_threads(1)  # more threads are slower with images this small
    try:
        images = read_digits() if args.images is None else read_images(args.images)
        classes = args.classes or usual_classes(images)
        tasks = [divide(images, classes, per_class=amount, seed=0) for amount in args.per_class]
        device = choose_device(Settings(device=args.device))
        rows = compare(tasks, replace(Plan(), steps=args.steps), args.seeds, device)
        summary = summary_of(rows)
        print(as_text(summary["methods"]))
        if args.results is not None:
            command = f"python -m examples.digits {shlex.join(sys.argv[1:])}"
            print(write_results("digits", command, rows, dict(summary), args.results))
    except InputError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.digits", description="TARTAN on images.")
    parser.add_argument("--images", type=Path, help="a .npz or .parquet of images and labels; unset: digits")
    parser.add_argument("--classes", type=int, nargs="+", help="the task's (3 5 8; of 100 classes: medium mammals)")
    parser.add_argument(
        "--per-class", type=_count, nargs="+", default=[20], help="images of each class for train, and for dev (20)"
    )
    parser.add_argument("--seeds", type=_count, default=10)
    parser.add_argument("--steps", type=_count, default=Plan.steps)
    parser.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda", "mps"))
    parser.add_argument("--results", type=Path, help="write all results to digits.json in this folder")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


if __name__ == "__main__":
    main()
