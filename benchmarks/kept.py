"""Results files of comparisons as they came back, predictions included, kept so that later runs are judged beside them.

They lie packed in `benchmarks/results/raw/NAME`; a GPU rarely trains all of an evidence in one go.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from benchmarks.results_file import RESULTS, read_results
from endtask.files.atomic import whole_file

PACKED = ".json.gz"


def keep(came_back: Path, name: str, results: Path = RESULTS) -> Path:
    """Add the JSON files of a folder to those kept under a name; of two with one name the one with more in it stays."""
    kept = results / "raw" / name
    kept.mkdir(parents=True, exist_ok=True)
    for file in sorted(came_back.glob("*.json")):
        target = kept / f"{file.stem}{PACKED}"
        new = read_tree(file)
        if not target.exists() or _amount(new) >= _amount(read_tree(target)):
            with whole_file(target) as aside:
                aside.write_bytes(gzip.compress(json.dumps(new, separators=(",", ":")).encode(), mtime=0))
    return kept


def read_tree(file: Path) -> Any:
    """What a JSON file holds, packed or not."""
    content = file.read_bytes()
    return json.loads(gzip.decompress(content) if file.name.endswith(PACKED) else content)


def known_rows(name: str, results: Path = RESULTS, **wanted: str) -> list[dict[str, Any]]:
    """The rows of the results file of that name, if there is one, that have these values."""
    if not (results / f"{name}.json").exists():
        return []
    rows: list[dict[str, Any]] = read_results(name, results).rows
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _amount(tree: Any) -> int:
    """How many runs a results file tells of, or rows a list has."""
    return len(tree["runs"] if isinstance(tree, dict) else tree)
