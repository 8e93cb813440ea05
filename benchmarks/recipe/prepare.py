"""Prepare the evidence for the recipe where the corpus is; a GPU then trains.

    .venv/bin/python -m benchmarks.recipe.prepare final chemprot sciie citation_intent      # here, 4 minutes each
    endtask compare --bundle runs/recipe/chemprot/final.tar.zst --devices 0,0,0 --results chemprot-final.json   # GPU
    .venv/bin/python -m benchmarks.recipe.prepare random chemprot                           # then chemprot-random.json
    .venv/bin/python -m benchmarks.recipe.prepare ladder chemprot                           # four bundles
    endtask compare --bundle runs/recipe/chemprot/low.tar.zst --results chemprot-low.json                       # GPU

The small pretrained encoder needs no corpus, and its weights are larger than a bundle:

    endtask compare --preset finetune-small-pretrained --task data/chemprot --set model.path=CHECKPOINT \
        --set evaluate.metric=micro_f1 --finetune-seeds 0,1,2 --no-baselines --results chemprot-pretrained.json # GPU
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.recipe.cells import (
    CELL,
    LONG,
    NO_CORPUS,
    PAPER,
    SEEDS,
    TASKS,
    base_settings,
    different,
    flat,
    ladder_cells,
)
from endtask.bundle import write_bundle
from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.experiments import compare

ROOT = Path(__file__).resolve().parents[2]
BASELINES = {"majority": {}, "tfidf": {}, "no_corpus": NO_CORPUS}
"""Text at random costs as much as the recipe, and has a bundle of its own."""
LOWER = {"paper": ("paper",), "low": ("engine", "size", "masked-lm", "rate")}
"""The rungs that read more text, by their bundle; the others are one bundle of their own."""


def comparisons(settings: Settings, paper: Settings, long: Settings) -> dict[str, dict[str, Any]]:
    """All comparisons by the name of their bundle: the final ones, and those of the ladder, with one pre-training each."""
    rungs = ladder_cells(paper, settings)
    apart = [name for names in LOWER.values() for name in names]
    bundles = {**LOWER, "high": tuple(name for name in rungs if name not in apart)}
    ladder = {
        bundle: {"variants": {name: rungs[name] for name in names}, "seeds": [SEEDS[0]], "baselines": []}
        for bundle, names in bundles.items()
    }
    once = {"seeds": list(SEEDS), "finetune_seeds": [SEEDS[0]]}  # a model for each seed of pre-training
    return {
        "final": {"variants": {CELL: {}}, **once, "baselines": BASELINES},
        "random": {"variants": {"random": {"select.selector": "random"}}, **once, "baselines": []},
        **ladder,
        "long": {"variants": {LONG: different(flat(long), flat(settings))}, "seeds": [SEEDS[0]], "baselines": []},
    }


def prepare(task: str, names: list[str], data: Path, out: Path) -> None:
    """Do everything up to the tokens, and write the bundles."""
    settings = base_settings(task, data)
    known = comparisons(settings, *(base_settings(task, data, preset) for preset in (PAPER, LONG)))
    for name in names:
        folder = out / task / name
        compare(with_values(settings, {"output_dir": str(folder)}, name), known[name], until="pack")
        bundle = write_bundle(folder, folder.with_name(f"{name}.tar.zst"))
        print(json.dumps({"file": str(bundle.file), "bytes": bundle.bytes}))


def main() -> None:
    """Prepare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("final", "random", "ladder", "paper", "low", "high", "long"))
    parser.add_argument("tasks", nargs="+", choices=TASKS)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "recipe", help="where everything goes")
    given = parser.parse_args()
    names = ["paper", "low", "high", "long"] if given.step == "ladder" else [given.step]
    try:
        for task in given.tasks:
            prepare(task, names, given.data, given.out)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
