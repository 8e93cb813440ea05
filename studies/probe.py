"""Is a selector's score right? Compare scores of candidates with what a step on them does to the task's loss.

    python -m studies.probe run chemprot runs/probe/chemprot --candidates FILE --model package:endtask-mini
    python -m studies.probe collect runs/probe       # writes benchmarks/results/probe.json; then `make docs`

A scoring model is fitted on half of train. For each sampled batch of candidates, a copy of it takes one step of AdamW
on the batch's masked LM, and the mean loss of held-out rows (of dev, which no score reads) is measured before and
after. A score is right if it ranks batches as the measured decrease does (Spearman); `studies.probe_scores` has them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.results_file import RESULTS, write_results
from endtask.config import Settings, load_settings
from endtask.encoders.batch import TextBatch, lay_out
from endtask.encoders.network import Network
from endtask.gradients.engine import masked_lm_losses, task_losses
from endtask.gradients.scoring import batches_by_length
from endtask.io.atomic import write_json, write_text
from endtask.io.parsing import read_json
from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import read_statistics
from endtask.objectives.masking import mask_texts
from endtask.pipeline.run import run as run_stages
from endtask.seeds import derive, generator
from endtask.selectors.base import write_rows
from endtask.selectors.influence.scorer import pack_candidates, scoring_order
from endtask.selectors.influence.scoring_model import TOKENIZER, Fold, fit, folds_of, prepare_folds, scoring_settings
from endtask.task import Task
from endtask.task.task import read_all
from endtask.tokenization.tokenizer import load_tokenizer
from studies.probe_scores import SCORES, Measured, ProbeScores, model_scores, rank_correlation, text_scores

Tree = dict[str, Any]
Closure = Callable[[], Tensor]
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_METRICS = {"chemprot": "micro_f1", "sciie": "macro_f1"}
_TOKENS = 1 << 12
"""Tokens of a forward pass."""
_FLAGS = ("probes", "state", "measured", "epochs", "learning_rate", "seed")
_ROWS = "rows.jsonl"
_BETA2, _EPSILON = 0.98, 1e-6
_STEP_MASK, _STATE_MASK = 1000, 2000
"""Masks of the measured step and of AdamW's state; those of the scores begin at 0."""


@dataclass(frozen=True)
class Plan:
    """The size of a probe."""

    probes: int = 160
    texts: int = 4  # neighboring candidates in a batch, as in the paper
    targets: int = 256  # held-out rows of train that scores read
    measured: int = 128  # rows of dev whose loss is measured
    state: int = 48  # batches whose gradients fill AdamW's second moment
    learning_rate: float = 1e-4
    epochs: int = 6  # of fitting the scoring model
    fitting_rate: float = 5e-4
    seed: int = 0


class Step:
    """One step of AdamW from fixed weights, whose second moments come from other batches; momentum starts at 0."""

    def __init__(self, weights: Sequence[nn.Parameter], squares: Sequence[Tensor], learning_rate: float) -> None:
        self._weights, self._squares, self._rate = list(weights), list(squares), learning_rate
        self._start = [weight.detach().clone() for weight in self._weights]

    def take(self, gradients: Sequence[Tensor]) -> None:
        """Change the weights."""
        optimizer = torch.optim.AdamW(self._weights, lr=self._rate, betas=(0.0, _BETA2), eps=_EPSILON, weight_decay=0.0)
        for weight, square, gradient in zip(self._weights, self._squares, gradients, strict=True):
            weight.grad = gradient.clone()
            step, first = torch.tensor(1e9), torch.zeros_like(weight)  # of a long run: no correction of the moments
            optimizer.state[weight] = {"step": step, "exp_avg": first, "exp_avg_sq": square.clone()}
        optimizer.step()

    def undo(self) -> None:
        """Restore the weights."""
        with torch.no_grad():
            for weight, start in zip(self._weights, self._start, strict=True):
                weight.copy_(start)
                weight.grad = None


def gradients_of(loss: Tensor, weights: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the gradient of a loss for each weight, zeros for a weight that it does not depend on."""
    found = torch.autograd.grad(loss, list(weights), allow_unused=True)
    return [torch.zeros_like(weight) if one is None else one for weight, one in zip(weights, found, strict=True)]


def decrease(step: Step, gradients: Sequence[Tensor], loss: Callable[[], float], before: float) -> float:
    """Return how much a loss falls by a step, and restore the weights."""
    step.take(gradients)
    after = loss()
    step.undo()
    return before - after


@dataclass(frozen=True)
class Subject:
    """A fitted scoring model with its candidates, its target rows and the measured rows."""

    network: Network
    fold: Fold
    measured: Fold
    texts: Any

    @property
    def weights(self) -> list[nn.Parameter]:
        """The encoder's weights; heads are what the two losses do not share."""
        return list(self.network.encoder.parameters())

    def candidates(self, numbers: NDArray[np.int64], mask_index: int, share: float) -> TextBatch:
        """Return some candidates under a mask."""
        batch = lay_out(self.texts, numbers, self.network.layout(int(self.texts.lengths[numbers].max())))
        masking = replace(self.fold.masking, probability=share)
        return mask_texts(batch, numbers, masking, derive(self.fold.settings.seed, "probe"), mask_index)

    def masked_lm_loss(self, numbers: NDArray[np.int64], mask_index: int, share: float = 0.15) -> Tensor:
        """Return the mean masked-LM loss of some candidates."""
        batch = self.candidates(numbers, mask_index, share)
        return masked_lm_losses(self.network, self.network(batch), batch).mean()

    def task_loss(self, fold: Fold) -> Iterator[tuple[Tensor, float]]:
        """Yield the mean loss of batches of a fold's held-out rows, with each batch's share of the rows."""
        objective = fold.answers(self.network)
        texts = objective.stream.texts
        for numbers in batches_by_length(texts.lengths, _TOKENS):
            layout = self.network.layout(int(texts.lengths[numbers].max()))
            batch = objective.answered(lay_out(texts, numbers, layout), numbers)
            yield task_losses(self.network, self.network(batch), batch).mean(), len(numbers) / len(texts)

    @torch.no_grad()
    def measured_loss(self) -> float:
        """Return the mean loss of the measured rows."""
        return sum(float(loss) * share for loss, share in self.task_loss(self.measured))

    def task_gradient(self, fold: Fold) -> list[Tensor]:
        """Return the gradient of the mean loss of a fold's held-out rows."""
        total = [torch.zeros_like(weight) for weight in self.weights]
        for loss, share in self.task_loss(fold):
            for sum_, part in zip(total, gradients_of(loss, self.weights), strict=True):
                sum_ += share * part
        return total


def prepare(
    task_name: str, folder: Path, model: str | None, plan: Plan, data: Path, candidates: Path
) -> tuple[Settings, Task]:
    """Retrieve the candidates, and return the settings of the scoring model and the task."""
    given: Tree = {
        "output_dir": str(folder / "run"),
        "device": "cpu",
        "task": {"path": str(data / "tasks" / task_name)},
        "evaluate": {"metric": _METRICS.get(task_name, "macro_f1")},
        "corpus": {"sources": [{"path": str(candidates)}]},
        "tokenizer": {"vocab_size": 16000},
        "model": {"architecture": "lean", "size": "tiny"},
        "select": {"name": "influence", "budget": "20%retrieved", "share_of_budget": None, "uninformed": "warn"},
    }
    given["select"] |= {"epochs": plan.epochs, "learning_rate": plan.fitting_rate}
    if model is not None:
        given["select"]["model"] = model
    settings = load_settings(given=given)
    run_stages(settings, until="retrieve")
    return settings, read_all(settings)


def parts_of(task: Task, settings: Settings, plan: Plan) -> list[Task]:
    """Return the task twice: fitted on half of train; held out are rows of the other half, and rows of dev."""
    config = settings.select.part.config
    first = folds_of(task, config, plan.seed)[0]
    draw = generator(plan.seed, "probe", "rows")
    targets = tuple(first.dev[index] for index in sorted(draw.permutation(len(first.dev))[: plan.targets].tolist()))
    measured = tuple(task.dev[index] for index in sorted(draw.permutation(len(task.dev))[: plan.measured].tolist()))
    return [replace(first, splits={"train": first.train, "dev": rows}) for rows in (targets, measured)]


def sampled_units(table: Path, task: Task, plan: Plan) -> NDArray[np.int64]:
    """Return random batches of neighboring candidates: (probes + state, texts)."""
    statistics = read_statistics(table)
    order = scoring_order(np.arange(len(statistics.rank)), table, statistics, task.train)
    count = len(order) // plan.texts
    drawn = generator(plan.seed, "probe", "units").permutation(count)[: plan.probes + plan.state]
    return order[: count * plan.texts].reshape(count, plan.texts)[drawn]


def probe(task_name: str, folder: Path, model: str | None, plan: Plan, data: Path, candidates: Path) -> Tree:
    """Measure all batches of a task, and return scores and decreases."""
    started = time.monotonic()
    settings, task = prepare(task_name, folder, model, plan, data, candidates)
    table = folder / "run" / "retrieve" / RETRIEVED
    units = sampled_units(table, task, plan)
    subject, held_out = fitted(settings, task, table, units, folder, plan)
    numbers = np.searchsorted(np.unique(units), units)  # positions in the table of sampled candidates
    probes, state = numbers[: plan.probes], numbers[plan.probes :]
    weights = subject.weights
    squares = second_moments(subject, state)
    step = Step(weights, squares, plan.learning_rate)
    scorer = ProbeScores.of(subject, squares, state, _EPSILON)
    before = subject.measured_loss()
    rows = read_rows(folder)
    for number, unit in enumerate(probes[len(rows) :], start=len(rows)):
        gradients = gradients_of(subject.masked_lm_loss(unit, _STEP_MASK), weights)
        value = decrease(step, gradients, subject.measured_loss, before)
        rows.append(Measured(value, model_scores(scorer, subject, unit, gradients)))
        write_text(folder / _ROWS, "".join(f"{json.dumps(row)}\n" for row in rows))
        if number % 20 == 19:
            print(f"{task_name}: {number + 1} of {plan.probes}, {time.monotonic() - started:.0f} s", flush=True)
    of_texts = text_scores(table, task, settings, units[: plan.probes], [row.decrease for row in rows])
    return {
        "task": task_name,
        "model": model or "random weights",
        "plan": vars(plan),
        "held_out": held_out,
        "loss_before": before,
        "seconds": round(time.monotonic() - started, 1),
        "decrease": [row.decrease for row in rows],
        "scores": {**{name: [row.scores[name] for row in rows] for name in rows[0].scores}, **of_texts},
    }


def read_rows(folder: Path) -> list[Measured]:
    """Return the batches that a stopped probe has measured."""
    file = folder / _ROWS
    return [Measured(*json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def fitted(
    settings: Settings, task: Task, table: Path, units: NDArray[np.int64], folder: Path, plan: Plan
) -> tuple[Subject, Tree]:
    """Fit the scoring model, and return it with its held-out score."""
    model_settings = scoring_settings(settings)
    folds = prepare_folds(task, parts_of(task, settings, plan), table, model_settings, folder / "influence")
    counts = fit(folds[0], label="scoring model", on_checkpoint=lambda: None)
    network = folds[0].fitted_network()
    network.eval()
    sampled = folder / "sampled.parquet"
    write_rows(table, np.unique(units), sampled)
    tokenizer = load_tokenizer(folder / "influence" / TOKENIZER)
    texts = pack_candidates(sampled, tokenizer, model_settings.pretrain.max_length, folder / "candidates")
    return Subject(network, folds[0], folds[1], texts), counts["held_out"]


def second_moments(subject: Subject, state: NDArray[np.int64]) -> list[Tensor]:
    """Return the mean squared gradient of some batches for each weight, as AdamW has it after many steps."""
    total = [torch.zeros_like(weight) for weight in subject.weights]
    for unit in state:
        gradients = gradients_of(subject.masked_lm_loss(unit, _STATE_MASK), subject.weights)
        for sum_, gradient in zip(total, gradients, strict=True):
            sum_ += gradient.square() / len(state)
    return total


def collect(folder: Path, results: Path = RESULTS) -> Path:
    """Write the results file from the probes in the folders of tasks."""
    rows: list[Tree] = []
    for file in sorted(folder.glob("*/probe.json")):
        found = read_json(file)
        decreases = np.asarray(found["decrease"])
        common = {"task": found["task"], "model": found["model"]}
        for name, values in found["scores"].items():
            row = {"kind": "score", **common, "score": name, **rank_correlation(np.asarray(values), decreases)}
            rows.append({**row, "reads": SCORES[name].reads})
        kept = {key: found[key] for key in ("plan", "held_out", "loss_before", "seconds")}
        measured = {
            "mean": float(decreases.mean()),
            "std": float(decreases.std()),
            "helped": float((decreases > 0).mean()),
        }
        rows.append({"kind": "probe", **common, **kept, "decrease": measured})
    summary = {f"{row['task']}_{row['score']}": row["spearman"] for row in rows if row["kind"] == "score"}
    return write_results("probe", "python -m studies.probe", rows, summary, results)


def main() -> None:
    """Probe a task, or collect the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    one = steps.add_parser("run")
    one.add_argument("task")
    one.add_argument("folder", type=Path)
    one.add_argument("--data", type=Path, default=_DATA, help="the sample data")
    one.add_argument(
        "--candidates", type=Path, required=True, help="texts to retrieve from, such as a selection.parquet"
    )
    one.add_argument("--model", help="checkpoint of the scoring model; unset: random weights")
    sizes = (
        ("probes", int),
        ("state", int),
        ("measured", int),
        ("epochs", int),
        ("learning-rate", float),
        ("seed", int),
    )
    for name, kind in sizes:
        one.add_argument(f"--{name}", type=kind, default=getattr(Plan, name.replace("-", "_")))
    every = steps.add_parser("collect")
    every.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.step == "collect":
        print(collect(args.folder))
        return
    values = {name: getattr(args, name) for name in _FLAGS}
    found = probe(args.task, args.folder, args.model, Plan(**values), args.data, args.candidates)
    write_json(args.folder / "probe.json", found)
    print(json.dumps({"seconds": found["seconds"], "held_out": found["held_out"]}))


if __name__ == "__main__":
    main()
