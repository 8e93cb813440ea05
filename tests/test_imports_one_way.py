"""Imports go one way: each folder of the package imports only folders below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "endtask"

ORDER = (
    "__main__",
    "cli",
    "__init__",
    "sklearn",
    "demo",
    "web",
    "analysis",
    "api",
    "experiments",
    "bundle",
    "planning",
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
    "executors",
    "config",
    "io",
    "registry",
    "records",
    "seeds",
    "processes",
    "progress",
    "terminal",
    "errors",
)
"""From the top down. A part that the settings name is imported by its registry, which no import statement shows."""

LEVEL_OF = {name: level for level, name in enumerate(ORDER)}


def folders_of(package: Path) -> set[str]:
    """The folders and single modules of the package."""
    folders = {entry.name for entry in package.iterdir() if entry.is_dir() and any(entry.rglob("*.py"))}
    return folders | {entry.stem for entry in package.glob("*.py")}


def imported_names(path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Each (line, dotted name) that a module imports, inside functions and for type checking too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = [package.name, *path.relative_to(package).parent.parts]
            start = parents[: len(parents) - node.level + 1] if node.level else []
            base = [*start, *(node.module.split(".") if node.module else [])]
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


def imported_folders(path: Path, package: Path, folders: set[str]) -> Iterator[tuple[int, str]]:
    """Each (line, folder) that a module imports."""
    for line, name in imported_names(path, package):
        parts = name.split(".")
        if parts[0] == package.name:
            yield line, parts[1] if len(parts) > 1 and parts[1] in folders else "__init__"


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


def modules_of(package: Path) -> dict[str, Path]:
    """The modules of the package by dotted name; a folder's name is that of its `__init__`."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported_modules(path: Path, package: Path, modules: dict[str, Path]) -> set[str]:
    """The other modules of the package that a module imports; `from folder import name` may import either."""
    imported = set()
    for _, name in imported_names(path, package):
        module = name if name in modules else name.rpartition(".")[0]
        if module in modules and modules[module] != path:
            imported.add(module)
    return imported


def circle(package: Path) -> list[str]:
    """The modules of a circle of imports, each of which the next one imports; empty where there is none."""
    modules = modules_of(package)
    sorter = TopologicalSorter({name: imported_modules(path, package, modules) for name, path in modules.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle(repository: Path) -> None:
    assert circle(repository / "src" / PACKAGE) == []


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


@pytest.mark.parametrize(
    "import_line",
    [
        "import endtask.task.read",
        "from endtask.task import read",
        "from endtask.task.read import Rows",
        "from . import read",
        "from .read import Rows",
        "def late():\n    from endtask.task.read import Rows",
        "if TYPE_CHECKING:\n    from endtask.task.read import Rows",
    ],
)
def test_a_circle_is_found_however_it_is_written(tmp_path: Path, import_line: str) -> None:
    files = {
        "task/__init__.py": "",
        "task/read.py": "from endtask.task.split import carve",
        "task/split.py": import_line,
    }
    package = make_package(tmp_path, files)
    assert set(circle(package)) == {"endtask.task.read", "endtask.task.split"}


def test_a_circle_of_three_modules_is_found(tmp_path: Path) -> None:
    files = {"a.py": "from endtask.b import x", "b.py": "import endtask.folder.c", "folder/c.py": "from ..a import y"}
    assert sorted(circle(make_package(tmp_path, files))[1:]) == ["endtask.a", "endtask.b", "endtask.folder.c"]


def test_a_folder_that_exports_its_modules_is_no_circle(tmp_path: Path) -> None:
    files = {
        "task/__init__.py": "from endtask.task.read import Rows",
        "task/read.py": "from endtask.task import split\nfrom endtask.task.split import carve",
        "task/split.py": "import json",
    }
    assert circle(make_package(tmp_path, files)) == []


def test_a_module_that_imports_from_the_folder_that_exports_it_is_a_circle(tmp_path: Path) -> None:
    files = {
        "task/__init__.py": "from endtask.task.read import Rows",
        "task/read.py": "from endtask.task import Splits",
    }
    assert set(circle(make_package(tmp_path, files))) == {"endtask.task", "endtask.task.read"}
