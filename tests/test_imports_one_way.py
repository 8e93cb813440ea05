"""Imports go one way: each folder of the package imports only what stands below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "endtask"

ORDER = (
    "__main__",
    "cli",
    "__init__",
    "demo",
    "experiments",
    "bundle",
    "pipeline",
    "export",
    "serving",
    "reporting",
    "selectors",
    "training",
    "task_types",
    "weighting",
    "objectives",
    "evaluation",
    "gradients",
    "encoders",
    "retrieval",
    "tokenization",
    "task",
    "corpus",
    "config",
    "io",
    "registry",
    "records",
    "seeds",
    "progress",
    "errors",
)
"""From the top down. A part that the settings name is imported by its registry, which no import statement shows."""

LEVEL_OF = {name: level for level, name in enumerate(ORDER)}


def folders_of(package: Path) -> set[str]:
    """The folders and single modules of the package."""
    folders = {entry.name for entry in package.iterdir() if entry.is_dir() and any(entry.rglob("*.py"))}
    return folders | {entry.stem for entry in package.glob("*.py")}


def imported_folders(path: Path, package: Path, folders: set[str]) -> Iterator[tuple[int, str]]:
    """Each (line, folder) that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _folder_of(node.lineno, alias.name.split("."), folders)
        elif isinstance(node, ast.ImportFrom):
            inside = [package.name, *path.relative_to(package).parent.parts]
            start = inside[: len(inside) - node.level + 1] if node.level else []
            base = [*start, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                yield from _folder_of(node.lineno, [*base, alias.name], folders)


def _folder_of(line: int, dotted: list[str], folders: set[str]) -> Iterator[tuple[int, str]]:
    if dotted[0] == PACKAGE:
        yield line, dotted[1] if len(dotted) > 1 and dotted[1] in folders else "__init__"


def violations(package: Path) -> list[str]:
    """One line for every folder without a place in the order and every import that does not go down."""
    folders = folders_of(package)
    found = [f"{name}: give it a place in {Path(__file__).name}" for name in sorted(folders - LEVEL_OF.keys())]
    for path in sorted(package.rglob("*.py")):
        folder = path.relative_to(package).parts[0].removesuffix(".py")
        for line, target in imported_folders(path, package, folders):
            if target != folder and LEVEL_OF.get(target, 99) <= LEVEL_OF.get(folder, -1):
                found.append(f"{path.relative_to(package)}:{line}: {folder} may not import {target}")
    return found


def test_the_package_holds_the_order(repository: Path) -> None:
    package = repository / "src" / PACKAGE
    assert len(folders_of(package)) >= 4
    assert violations(package) == []


def make_package(folder: Path, files: dict[str, str]) -> Path:
    package = folder / PACKAGE
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    "import_line",
    [
        "import endtask.pipeline",
        "from endtask.pipeline import run",
        "from endtask import pipeline",
        "from ..pipeline import run",
        "from .. import pipeline",
        "def late():\n    from endtask import pipeline",
    ],
)
def test_an_import_upwards_is_found_however_it_is_written(tmp_path: Path, import_line: str) -> None:
    files = {"pipeline/__init__.py": "", "task/__init__.py": "", "task/read.py": import_line}
    assert violations(make_package(tmp_path, files)) == [
        f"task/read.py:{import_line.count(chr(10)) + 1}: task may not import pipeline"
    ]


def test_an_import_of_the_package_itself_counts_as_the_top(tmp_path: Path) -> None:
    package = make_package(tmp_path, {"__init__.py": "Task = 1", "task/read.py": "from endtask import Task"})
    assert violations(package) == ["task/read.py:1: task may not import __init__"]


def test_downwards_and_inside_a_folder_is_fine(tmp_path: Path) -> None:
    text = "import json\nfrom endtask.errors import InputError\nfrom . import other\nfrom .other import x"
    package = make_package(tmp_path, {"errors.py": "", "task/other.py": "x = 1", "task/read.py": text})
    assert violations(package) == []


def test_a_folder_without_a_place_is_named(tmp_path: Path) -> None:
    package = make_package(tmp_path, {"attic/box.py": ""})
    assert violations(package) == ["attic: give it a place in test_imports_one_way.py"]
