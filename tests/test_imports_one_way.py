"""Imports go one way: each room of the package knows only the rooms below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "endtask"

# From the top down. A room is a module or folder in the package; `__init__` is the package's own file.
LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"__main__"}),
    frozenset({"cli"}),
    frozenset({"demo", "__init__"}),
    frozenset(
        {
            "bundle",
            "experiments",
            "latency",
            "run",
            "ahead",
            "stages",
            "predict",
            "check",
            "preview",
            "align",
        }
    ),
    frozenset({"report", "export", "evaluate", "train", "select", "retrieve", "outside"}),
    frozenset({"models", "objectives", "weighting", "text", "gradients"}),
    frozenset({"task", "corpus"}),
    frozenset({"settings"}),
    frozenset({"files", "parent", "progress", "seeds", "versions"}),
    frozenset({"records", "errors"}),
)

# Neighbours on one level that may know each other, in this direction only: (importing module or room, room).
NEIGHBOURS = frozenset(
    {
        ("bundle", "run"),
        ("check", "ahead"),
        ("experiments", "run"),
        ("experiments", "stages"),
        ("export", "evaluate"),
        ("gradients", "models"),
        ("latency", "predict"),
        ("models", "text"),
        ("objectives", "models"),
        ("objectives", "text"),
        ("preview", "run"),
        ("preview", "stages"),
        ("report", "evaluate"),
        ("report.why", "retrieve"),
        ("run", "ahead"),
        ("run", "stages"),
        ("select", "retrieve"),
        ("select.influence.fit", "train"),
        ("select.influence.limits", "train"),
        ("task.demo", "corpus"),
        ("train", "evaluate"),
    }
)

# Folders of the package that hold data and no code.
DATA_FOLDERS = frozenset({"presets"})

LEVEL_OF = {room: depth for depth, rooms in enumerate(LEVELS) for room in rooms}


def rooms_of(package: Path) -> set[str]:
    """The rooms that stand in the package's folder."""
    folders = {entry.name for entry in package.iterdir() if entry.is_dir() and any(entry.rglob("*.py"))}
    return folders | {entry.stem for entry in package.glob("*.py")}


def module_name(path: Path, package: Path) -> str:
    """The module's name in the package, such as `train.loop`; a folder's own file has the folder's name."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def imported_rooms(path: Path, package: Path, rooms: set[str]) -> Iterator[tuple[int, str]]:
    """Each (line, room) that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _room_of(node.lineno, alias.name.split("."), rooms)
        elif isinstance(node, ast.ImportFrom):
            inside = [package.name, *path.relative_to(package).parent.parts]
            start = inside[: len(inside) - node.level + 1] if node.level else []
            base = [*start, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                yield from _room_of(node.lineno, [*base, alias.name], rooms)


def _room_of(line: int, dotted: list[str], rooms: set[str]) -> Iterator[tuple[int, str]]:
    if dotted[0] == PACKAGE:
        yield line, dotted[1] if len(dotted) > 1 and dotted[1] in rooms else "__init__"


def violations(package: Path) -> list[str]:
    """One line for every room without a level and every import that does not go down."""
    rooms = rooms_of(package)
    strangers = sorted(rooms - LEVEL_OF.keys() - DATA_FOLDERS)
    found = [f"{room}: a new room; give it a level in {Path(__file__).name}" for room in strangers]
    for path in sorted(package.rglob("*.py")):
        module = module_name(path, package)
        room = module.partition(".")[0]
        for line, target in imported_rooms(path, package, rooms):
            if target == room or room not in LEVEL_OF or target not in LEVEL_OF:
                continue
            neighbors = {(room, target), (module, target)} & NEIGHBOURS
            if LEVEL_OF[target] <= LEVEL_OF[room] and not neighbors:
                found.append(f"{path.relative_to(package)}:{line}: {room} may not import {target}")
    return found


def test_the_package_holds_the_order(repository: Path) -> None:
    package = repository / "src" / PACKAGE
    assert len(rooms_of(package)) >= 4
    assert violations(package) == []


def test_neighbours_stand_on_one_level_and_never_know_each_other() -> None:
    for module, target in NEIGHBOURS:
        room = module.partition(".")[0]
        assert LEVEL_OF[room] == LEVEL_OF[target]
        assert (target, room) not in NEIGHBOURS


def make_package(folder: Path, files: dict[str, str]) -> Path:
    package = folder / PACKAGE
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    "import_line",
    [
        "import endtask.pipeline.run",
        "from endtask.pipeline.run import run",
        "from endtask import run",
        "from ..run import run",
        "from .. import run",
        "def late():\n    from endtask import run",
    ],
)
def test_an_import_upwards_is_found_however_it_is_written(tmp_path: Path, import_line: str) -> None:
    package = make_package(tmp_path, {"run.py": "", "task/__init__.py": "", "task/read.py": import_line})
    assert len(found := violations(package)) == 1
    assert "task may not import run" in found[0]


def test_an_import_of_the_package_itself_counts_as_the_top(tmp_path: Path) -> None:
    package = make_package(tmp_path, {"__init__.py": "Task = 1", "task/read.py": "from endtask import Task"})
    assert violations(package) == ["task/read.py:1: task may not import __init__"]


def test_downwards_and_inside_a_room_is_fine(tmp_path: Path) -> None:
    text = "import json\nfrom endtask.errors import InputError\nfrom . import other\nfrom .other import x"
    package = make_package(tmp_path, {"errors.py": "", "task/other.py": "x = 1", "task/read.py": text})
    assert violations(package) == []


def test_neighbours_are_kept_apart_unless_listed(tmp_path: Path) -> None:
    line = "from endtask.corpus import Corpus"
    files = {"corpus/__init__.py": "", "task/docstrings_task.py": line, "task/read.py": line}
    assert violations(make_package(tmp_path, files)) == ["task/read.py:1: task may not import corpus"]


def test_a_room_without_a_level_is_named(tmp_path: Path) -> None:
    package = make_package(tmp_path, {"attic/box.py": ""})
    assert violations(package) == ["attic: a new room; give it a level in test_imports_one_way.py"]
