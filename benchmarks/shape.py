"""Count the shape of the code: lines, files, settings, imports, and the seconds of both test lanes.

python -m benchmarks.shape                 # counts only; the file keeps the seconds of the last timed run
python -m benchmarks.shape --time          # run `make quick` and `make test` too, and record how long they take
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.results_file import RESULTS, read_results, write_results

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "endtask"
_SETTING = re.compile(r"^\| `[a-zA-Z_.\[\]]+` \|.*\|.*\|.*\|$", re.MULTILINE)
_NAME_COMPARISON = re.compile(r"\b(kind|type|name|architecture|selector|weighting|metric) (==|!=|in|not in) [\"(]")


def modules() -> dict[str, Path]:
    """Return the modules of the package by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a module imports, inside functions too."""
    return {name for name in _imported_names(path) if name in known}


def _imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def counts() -> dict[str, Any]:
    """Return all counts of the summary."""
    known = modules()
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in known.items()}
    imported = {name: imports(path, known) - {name} for name, path in known.items()}
    importers = Counter(target for targets in imported.values() for target in targets)
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in known.values()]
    benchmarks = [path for path in (ROOT / "benchmarks").rglob("*.py") if "results" not in path.parts]
    return {
        "source_lines": sum(lines.values()),
        "source_files": len(lines),
        "largest_file": max(lines.values()),
        "settings_rows": len(_SETTING.findall(page)),
        "largest_fan_in": max(importers.values()),
        "largest_fan_out": max(map(len, imported.values())),
        "name_comparisons": sum(len(_NAME_COMPARISON.findall(text)) for text in texts),
        "benchmark_lines": sum(path.read_text(encoding="utf-8").count("\n") for path in benchmarks),
    }


def seconds_of(target: str) -> float:
    """Run a make target, which must succeed, and return its duration."""
    started = time.perf_counter()
    subprocess.run(["make", target], cwd=ROOT, check=True)
    return round(time.perf_counter() - started, 1)


def main() -> None:
    """Write benchmarks/results/shape.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", action="store_true", help="time `make quick` and `make test`")
    parser.add_argument("--quick-seconds", type=float, help="record this time of `make quick`, measured before")
    parser.add_argument("--test-seconds", type=float, help="record this time of `make test`, measured before")
    args = parser.parse_args()
    summary = counts()
    before = read_results("shape").summary if (RESULTS / "shape.json").exists() else {}
    measured = {"quick_seconds": args.quick_seconds, "test_seconds": args.test_seconds}
    for name, target in (("quick_seconds", "quick"), ("test_seconds", "test")):
        summary[name] = seconds_of(target) if args.time else measured[name] or before.get(name)
    rows = [{"module": name, "lines": path.read_text(encoding="utf-8").count("\n")} for name, path in modules().items()]
    print(write_results("shape", "python -m benchmarks.shape", rows, summary))
    print(summary)


if __name__ == "__main__":
    main()
