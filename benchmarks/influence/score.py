"""Score prepared candidates by influence, on a machine that has a GPU and neither the corpus nor pyarrow and numba.

    python -m benchmarks.influence.score runs/influence/chemprot/scoring.tar.zst --out scores/chemprot.npz

The archive, made by `python -m benchmarks.influence.prepare`, holds the task and the candidates' tokens. What comes out
is one number for each candidate and order (`SCORINGS` in cells.py: sizes of the scoring model, and layers), and what it
cost: a small file, from which the machine with the texts makes the orders.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from benchmarks.influence.cells import SCORINGS
from endtask.config import Settings, load_settings
from endtask.config.overrides import with_values
from endtask.gradients.scoring import Calibration
from endtask.io.atomic import atomic_file
from endtask.io.compression import zstd
from endtask.seeds import generator
from endtask.selectors.influence import influence_config
from endtask.selectors.influence.limits import target_memory
from endtask.selectors.influence.scorer import (
    CandidateUnits,
    Scorer,
    Shards,
    ShardStatistics,
    calibration_draw,
    score_units,
)
from endtask.selectors.influence.scoring_model import (
    Fold,
    class_shares,
    columns_of,
    fit,
    prepare_folds,
    scoring_settings,
)
from endtask.task import Task
from endtask.task.task import read_task
from endtask.tokenization.packed_texts import PackedTexts

SETTINGS, TASK, FOLDS, CANDIDATES = "settings.yaml", "task", "folds.json", "candidates"
_SCORED_AGAIN = 4096

Facts = dict[str, dict[str, Any]]
"""What each order cost."""


def unpack(archive: Path, folder: Path) -> None:
    """Lay the archive out in a folder, once."""
    if folder.exists():
        return
    aside = folder.with_name(f"{folder.name}.partial")
    with (
        zstd.open(archive) as plain,
        tarfile.open(fileobj=plain, mode="r|") as tar,
    ):
        tar.extractall(aside, filter="data")
    aside.rename(folder)


def folds_in(folder: Path, settings: Settings) -> list[Fold]:
    """The folds whose tokens were prepared, in a folder of their own for each size of the scoring model."""
    own = folder / f"size-{influence_config(settings).size}"
    if not own.exists():
        aside = own.with_name(f"{own.name}.partial")
        shutil.rmtree(aside, ignore_errors=True)
        kept = shutil.ignore_patterns(CANDIDATES, "size-*", "shards", TASK)
        shutil.copytree(folder, aside, ignore=kept)
        aside.rename(own)
    task = read_task(folder / TASK)
    rows = {example.id: example for example in task.train}
    parts: list[Task] = [
        replace(task, splits={split: tuple(rows[one] for one in ids) for split, ids in part.items()})
        for part in json.loads((folder / FOLDS).read_text(encoding="utf-8"))
    ]
    return prepare_folds(task, parts, folder / "none.parquet", scoring_settings(settings), own)


def score_order(folder: Path, folds: list[Fold], name: str) -> tuple[np.ndarray, dict[str, Any]]:
    """The score of every candidate, as `select.choice: budget` has it."""
    own = {"layers": [SCORINGS[name].layer], **SCORINGS[name].values}
    values = {f"select.{key}": value for key, value in own.items()}
    chosen = [replace(fold, settings=with_values(fold.settings, values, name)) for fold in folds]
    settings, started = chosen[0].settings, time.perf_counter()
    candidates = PackedTexts(folder / CANDIDATES)
    units = CandidateUnits(candidates, np.arange(len(candidates)), influence_config(settings).candidate_batch)
    scorer = Scorer(chosen, units, memory=target_memory(chosen[0].context.device))
    drawn = calibration_draw(units.count, settings.seed)
    calibration = Calibration.of(score_units(scorer, units, drawn))
    columns = columns_of([fold.task for fold in chosen], influence_config(settings).target_batch)
    work = ShardStatistics(influence_config(settings), calibration, class_shares(columns, chosen[0].task.labels))
    ready = time.perf_counter()
    shards = Shards(units, folder / "shards" / name)
    shards.score(scorer, work)
    scored = time.perf_counter() - ready
    facts = {"setup_seconds": round(ready - started, 2), "seconds": round(scored, 2), "candidates": len(candidates)}
    facts |= {"flops": float(units.tokens.sum()) * scorer.flops_per_token, **scorer.record()}
    found = np.asarray(shards.gathered("score"), dtype=np.float32)
    return found, facts | controls(scorer, units, work, found)


def controls(scorer: Scorer, units: CandidateUnits, work: ShardStatistics, scores: np.ndarray) -> dict[str, float]:
    """Of some of the candidates: what else gives the same order, in rank correlations.

    `agreement`: the scores that they would have had under other masks. `harm`: how much a candidate harms the targets
    that it harms most, against how much it helps those that it helps most. `models`: the scores of one scoring model
    against those of the other, which was fitted on the other half and judges by this one.
    """
    drawn = np.sort(generator(0, "agreement").permutation(units.count)[:_SCORED_AGAIN])
    scorer.reader.seed += 1
    products = score_units(scorer, units, drawn)
    scorer.reader.seed -= 1
    again = work.compute(products, 0)["score"]
    half = len(columns_of([scorer.folds[0].task], work.settings.target_batch))
    pairs = {
        "agreement": (again, scores[drawn]),
        "harm": (again, harm_of(products, work)),
        "models": tuple(scores_by(products, work, columns) for columns in (slice(half), slice(half, None))),
    }
    return {name: round(float(spearmanr(*pair).statistic), 4) for name, pair in pairs.items()}


def harm_of(products: Tensor, work: ShardStatistics) -> NDArray[np.generic]:
    """Scores by the opposite: the mean harm to the targets that are harmed most: (units, columns) -> (units,)."""
    calibration = replace(work.calibration, mean=-work.calibration.mean)
    return replace(work, calibration=calibration).compute(-products, 0)["score"]


def scores_by(products: Tensor, work: ShardStatistics, columns: slice) -> NDArray[np.generic]:
    """Scores by some of the columns alone: (units, columns) -> (units,)."""
    calibration = Calibration(work.calibration.mean[columns], work.calibration.deviation[columns])
    some = replace(work, calibration=calibration, shares=work.shares[columns])
    return some.compute(products[:, columns], 0)["score"]


def fitted(folder: Path, settings: Settings) -> tuple[list[Fold], dict[str, Any]]:
    """The folds with fitted scoring models, and what fitting cost."""
    started = time.perf_counter()
    folds = folds_in(folder, settings)
    counts = [fit(fold, label=f"scoring model {number} of {len(folds)}") for number, fold in enumerate(folds, start=1)]
    facts = {"fitting_seconds": round(time.perf_counter() - started, 2), "size": folds[0].settings.model.size}
    return folds, facts | {"fitted_tokens": sum(one["tokens"] for one in counts)}


def score(archive: Path, out: Path, orders: tuple[str, ...] = tuple(SCORINGS), *, device: str = "auto") -> Facts:
    """Fit each size of scoring model once, score for each order, and keep what is done after each."""
    folder = archive.with_name(archive.name.removesuffix(".tar.zst"))
    unpack(archive, folder)
    models: dict[str, tuple[list[Fold], dict[str, Any]]] = {}
    facts: Facts = {}
    scores: dict[str, np.ndarray] = {}
    for name in orders:
        size = SCORINGS[name].size
        if size not in models:
            overrides = [f"device={device}", "precision=auto", f"select.size={size}"]
            models[size] = fitted(folder, load_settings(folder / SETTINGS, overrides=overrides))
        folds, cost = models[size]
        scores[name], found = score_order(folder, folds, name)
        facts[name] = {"layer": SCORINGS[name].layer, **cost, **found}
        print(name, facts[name], flush=True)
        with atomic_file(out) as aside, open(aside, "wb") as file:
            np.savez(file, facts=np.array(json.dumps(facts)), **scores)  # type: ignore[arg-type]
    return facts


def main() -> None:
    """Score what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="an .npz file")
    parser.add_argument("--orders", nargs="+", default=list(SCORINGS), choices=list(SCORINGS))
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    print(json.dumps(score(given.archive, given.out, tuple(given.orders), device=given.device), indent=2))


if __name__ == "__main__":
    main()
