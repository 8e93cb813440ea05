"""Run the demo: all stages with the corpus, the same model without the corpus, and a bag of words."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from endtask.config import Settings, load_settings
from endtask.evaluation.baselines import tfidf_baseline
from endtask.evaluation.predictions import read_predictions
from endtask.evaluation.significance import metric_permutation
from endtask.evaluation.task_metrics import measure_of
from endtask.io.atomic import write_json
from endtask.io.parsing import read_json
from endtask.io.run_layout import RESULTS
from endtask.io.stage_files import read_manifest
from endtask.pipeline.run import Run, RunResult
from endtask.progress import say
from endtask.task.split import group_numbers

# Without corpus text, pre-training repeats the task's few texts; about 300 steps were best on dev.
_TASK_ONLY_BUDGET = "900ktok"
_TASK_ONLY_FINETUNE_SHARE = 0.6


@dataclass(frozen=True)
class Row:
    """A row of the demo's table."""

    name: str
    mean: float
    std: float
    seeds: int
    seconds: float
    text_megabytes: float


@dataclass(frozen=True)
class Outcome:
    """The demo's scores, and the test between the two variants."""

    rows: tuple[Row, ...]
    gain: float
    p_value: float
    seconds: float
    test_rows: int
    report: Path

    def statistics(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "report": str(self.report)}

    def table(self) -> str:
        """Return the table, the verdict and the path of the report."""
        lines = [f"{'':44} {'test accuracy':>16} {'seconds':>8} {'corpus MB':>10}"]
        for row in self.rows:
            score = f"{100 * row.mean:.1f}" + (f" ± {100 * row.std:.1f}" if row.seeds > 1 else "")
            lines.append(f"{row.name:44} {score:>16} {row.seconds:>8.0f} {row.text_megabytes:>10.1f}")
        return "\n".join([*lines, "", self.verdict(), f"report: {self.report}"])

    def verdict(self) -> str:
        """Return a sentence on what the corpus changed."""
        points = f"{100 * abs(self.gain):.1f} points"
        chance = f"paired permutation test over {self.test_rows} test rows: p = {self.p_value:.4f}"
        if self.p_value >= 0.05:
            return f"At this budget the corpus made no clear difference ({100 * self.gain:+.1f} points; {chance})."
        verb = "gained" if self.gain > 0 else "lost"
        return f"Pre-training on the retrieved corpus {verb} {points} over the same model without it ({chance})."


def run_demo(output: Path) -> Outcome:
    """Run both variants and the baseline; finished stages are not repeated."""
    with_corpus = load_settings(preset="demo", given={"output_dir": str(output / "with-corpus")})
    say("1 of 2: with the corpus")
    run = Run(with_corpus)
    first = _execute(run)
    say("2 of 2: the same model without the corpus")
    second = _execute(Run(_without_corpus(output, first)))
    outcome = _compare(run, first, second)
    write_json(output / "demo.json", outcome.statistics())
    return outcome


def _execute(run: Run) -> RunResult:
    """Run the stages. Redo the first stage whose data changed, since the corpus is the installed libraries."""
    return run.execute(start=run.first_clash())


def _without_corpus(output: Path, with_corpus: RunResult) -> Settings:
    """Return settings for the same model on the task's texts only.

    It uses the other run's tokenizer: a tokenizer learned from 240 texts would cost it several points, and the
    comparison measures pre-training.
    """
    return load_settings(
        preset="demo",
        given={
            "output_dir": str(output / "without-corpus"),
            "budget": _TASK_ONLY_BUDGET,
            "select": {"name": "none"},
            "tokenizer": {"path": str(with_corpus.folder / "pack" / "tokenizer")},
            "finetune": {"budget_share": _TASK_ONLY_FINETUNE_SHARE},
        },
    )


def _compare(run: Run, first: RunResult, second: RunResult) -> Outcome:
    task = run.task
    baseline = tfidf_baseline(task, measure_of(task, run.settings.evaluate))
    correct = baseline.predicted == np.asarray(task.label_numbers("test"))
    rows = (
        Row(baseline.description, float(correct.mean()), 0.0, 1, baseline.seconds, 0.0),
        _row("this model, without the corpus", second),
        _row("this model, with the retrieved corpus", first),
    )
    with_corpus, without = (read_predictions(result.folder / "evaluate", task.labels) for result in (first, second))
    return Outcome(
        rows=rows,
        gain=float(with_corpus.scores("accuracy").mean() - without.scores("accuracy").mean()),
        p_value=metric_permutation(
            with_corpus.predicted, without.predicted, with_corpus.truth, "accuracy", groups=group_numbers(task.test)
        ),
        seconds=sum(row.seconds for row in rows),  # of the first call; later calls only read the results
        test_rows=len(with_corpus.ids),
        report=first.folder / "report.html",
    )


def _row(name: str, result: RunResult) -> Row:
    manifests = (read_manifest(result.folder / stage) for stage in result.stages)
    seconds = sum(manifest["seconds"] for manifest in manifests if manifest)
    results = read_json(result.folder / "evaluate" / RESULTS)
    scores = [seed["scores"]["accuracy"] for seed in results["seeds"]]
    megabytes = result.stages["select"]["bytes"] / 1e6
    return Row(name, statistics.fmean(scores), statistics.stdev(scores), len(scores), seconds, megabytes)
