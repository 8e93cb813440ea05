"""Compare the ways to use auxiliary images, over several seeds, with a paired permutation test.

.venv/bin/python -m examples.digits                                    # scikit-learn's digits, about two minutes
.venv/bin/python -m examples.digits --images cifar100.npz --seeds 3    # your own copy of CIFAR-100
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from endtask.errors import InputError
from endtask.evaluate.significance import metric_permutation
from examples.digits.images import CONFUSABLE_DIGITS, MEDIUM_MAMMALS, Images, divide, read_digits, read_images
from examples.digits.methods import METHODS, Outcome, Plan, learn


def compare(images: Images, classes: Sequence[int], per_class: int, plan: Plan, seeds: int, device: str) -> str:
    """Train every method with every seed; a table of mean test accuracies and what speaks for a difference."""
    task = divide(images, classes, per_class=per_class, seed=0)
    found: dict[str, list[Outcome]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        for method in METHODS:
            found[method].append(learn(method, task, plan, seed=seed, device=torch.device(device)))
        print(f"seed {seed} done", flush=True)
    lines = [f"{len(task.train)} train, {len(task.dev)} dev, {len(task.test)} test images of {len(classes)} classes; "]
    lines[0] += f"{len(task.auxiliary)} others; {seeds} seeds"
    lines += [_line(method, found, task.test) for method in METHODS]
    ends = [outcome.task_weights[-1] for outcome in found["meta"]]
    lines.append(
        f"weight of the task after the last step of meta: {np.mean(ends):.2f} ({min(ends):.2f}-{max(ends):.2f})"
    )
    return "\n".join(lines)


def _line(method: str, found: dict[str, list[Outcome]], test: Images) -> str:
    runs = {name: np.stack([outcome.predicted for outcome in outcomes]) for name, outcomes in found.items()}
    scores = 100 * (runs[method] == test.labels).mean(axis=1)
    line = f"{method:<10}{scores.mean():6.2f} +- {scores.std(ddof=min(1, len(scores) - 1)):.2f}"
    if method == "agnostic":
        return line
    p = metric_permutation(runs[method], runs["agnostic"], test.labels, "accuracy")
    return f"{line}   against agnostic p = {p:.4f}"


def main() -> None:
    """Run as asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.digits", description="TARTAN on images.")
    parser.add_argument("--images", type=Path, help="a .npz or .parquet of images and labels; unset: digits")
    parser.add_argument("--classes", type=int, nargs="+", help="the task's (3 5 8; of 100 classes: medium mammals)")
    parser.add_argument("--per-class", type=int, help="images of each class for train, and for dev (20)", default=20)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)  # for images this small, sharing the work costs more than the work
    try:
        images = read_digits() if given.images is None else read_images(given.images)
        usual = MEDIUM_MAMMALS if int(images.labels.max()) == 99 else CONFUSABLE_DIGITS
        plan = replace(Plan(), steps=given.steps)
        print(compare(images, given.classes or usual, given.per_class, plan, given.seeds, given.device))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
