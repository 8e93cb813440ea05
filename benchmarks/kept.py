"""Results files of comparisons as they came back, predictions included, kept so that later runs are judged beside them.

They lie packed in `benchmarks/results/raw/NAME`; a GPU rarely trains all of an evidence in one go.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks.results_file import RESULTS, read_results
from endtask.errors import InputError
from endtask.io.atomic import atomic_file

Tree = dict[str, Any]
PACKED = ".json.gz"
CURVES = f".curves{PACKED}"
"""The ending of what `benchmarks.curves` wrote, beside the results file of the same name."""
JUDGED_BY = ("metric", "split", "truth", "leak_free", "row_groups", "kind")
"""Keys of a results file that say by what its runs are judged."""


def keep(came_back: Path, name: str, results: Path = RESULTS) -> Path:
    """Add the JSON files of a folder to those kept under a name; of a run that stands in both the new one is kept."""
    kept = results / "raw" / name
    kept.mkdir(parents=True, exist_ok=True)
    files = sorted(came_back.glob("*.json"))
    trees = {kept / f"{file.stem}{PACKED}": read_tree(file) for file in files}  # all read before any is written
    for target, tree in trees.items():
        both = _together(read_tree(target), tree, target) if target.exists() else tree
        with atomic_file(target) as aside:
            aside.write_bytes(gzip.compress(json.dumps(both, separators=(",", ":")).encode(), mtime=0))
    return kept


def result_files(kept: Path, start: str) -> list[Path]:
    """The kept results files whose names begin so: that of the whole, and those of parts with names of their own."""
    return [file for file in _named(kept, start, PACKED) if not file.name.endswith(CURVES)]


def curve_rows(kept: Path, start: str, done: Collection[tuple[str, int]]) -> list[Tree]:
    """What `benchmarks.curves` found for the same files, of the runs (cell and seed) that have a score."""
    rows: list[Tree] = []
    for file in _named(kept, start, CURVES):  # of a run that stands in two files the first counts, as of its scores
        rows = _union(read_tree(file), rows)
    return [row for row in rows if (row["cell"], row["seed"]) in done]


def _named(kept: Path, start: str, ending: str) -> list[Path]:
    return sorted([*kept.glob(f"{start}{ending}"), *kept.glob(f"{start}-*{ending}")])


def read_tree(file: Path) -> Any:
    """What a results file or a list of rows holds, packed or not."""
    try:
        content = file.read_bytes()
        tree = json.loads(gzip.decompress(content) if file.name.endswith(PACKED) else content)
        if isinstance(tree, dict) and "trials" in tree:  # files of before name trials runs, and variants cells
            tree["runs"] = [{**trial, "cell": trial["variant"]} for trial in tree.pop("trials")]
        assert isinstance(tree["runs"] if isinstance(tree, dict) else tree, list)
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        raise _not_results(file) from None
    return tree


def read_comparison(file: Path) -> Tree:
    """What a results file holds; a list of rows is none."""
    tree = read_tree(file)
    if not isinstance(tree, dict):
        raise _not_results(file)
    return tree


def _not_results(file: Path) -> InputError:
    return InputError("not a results file of `endtask compare --results`", path=file)


def _together(old: Any, new: Any, file: Path) -> Any:
    """The runs of two results files of one comparison, or the rows of two lists."""
    if isinstance(new, list):
        return _union(old, new)
    other = next((key for key in JUDGED_BY if old.get(key) != new.get(key)), None)
    if other is not None:
        raise InputError(f"what came back is judged by another {other}", path=file, key=other)
    runs = _union(old["runs"], new["runs"])
    done = {f"{run['cell']}/seed-{run['seed']}" for run in runs}
    return {**new, "runs": runs, "missing": [key for key in new.get("missing", ()) if key not in done]}


def _union(old: list[Tree], new: list[Tree]) -> list[Tree]:
    def key(row: Tree) -> tuple[Any, ...]:
        return row["cell"], row["seed"], row.get("finetune_seed")

    return [*({key(row): row for row in old} | {key(row): row for row in new}).values()]


def known_rows(name: str, results: Path = RESULTS, **wanted: str) -> list[Tree]:
    """The rows of the results file of that name, if there is one, that have these values."""
    if not (results / f"{name}.json").exists():
        return []
    rows: list[Tree] = read_results(name, results).rows
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]
