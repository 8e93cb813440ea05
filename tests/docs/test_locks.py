"""The files with hashes: every package that the project needs, in the versions of constraints.txt, with its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_BLOCK = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)[^\n]*((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)*)", re.MULTILINE)
NEW = "run `make locks`"


def locked(path: Path) -> dict[str, str]:
    """The version of every package of a file; each must have a hash."""
    text = path.read_text(encoding="utf-8")
    blocks = _BLOCK.findall(text)
    assert len(blocks) == len(re.findall(r"^[^\s#]", text, re.MULTILINE))
    assert [name for name, _, hashes in blocks if not hashes] == []
    return {canonicalize_name(name): version for name, version, _ in blocks}


def needed(repository: Path) -> set[str]:
    """The packages that the project names for users and for its tests, on any system."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    waiting, names = [*project["dependencies"], *extras["dev"]], set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name == project["name"]:
            waiting += [line for extra in requirement.extras for line in extras[extra]]
        else:
            names.add(canonicalize_name(requirement.name))
    return names


@pytest.mark.parametrize("name", ["all", "cpu"])
def test_every_package_is_locked_in_the_tested_version(repository: Path, name: str) -> None:
    found = locked(repository / "requirements" / f"{name}.txt")
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines if "==" in line}
    assert {package: version for package, version in found.items() if tested.get(package, version) != version} == {}, (
        NEW
    )
    assert needed(repository) - found.keys() == ({"torch"} if name == "cpu" else set()), NEW


def test_cpu_machines_get_no_cuda(repository: Path) -> None:
    found = locked(repository / "requirements" / "cpu.txt").keys() - {"nvidia-ml-py"}
    assert [package for package in found if re.match("nvidia-|cuda-|triton|torch$", package)] == []
