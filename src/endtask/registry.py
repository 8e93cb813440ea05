"""Registries: how selectors, objectives, weightings, encoders, metrics and task types are found by name.

A part registers itself where it is defined:

    @selectors.register("dsir")
    class Dsir(Selector): ...

The registry finds the parts of the package in its folders. Users add their own through an entry point
(`endtask.selectors`, ...) or with `--plugin FILE.py`. Code never comes from a run folder, a bundle or a settings file.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Collection
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from endtask.errors import InputError, did_you_mean

PLUGINS_VARIABLE = "ENDTASK_PLUGINS"
"""The environment variable that names plug-in files, so that worker processes load what the command line loaded."""
PLUGIN_MODULE = "endtask_plugin_"

P = TypeVar("P")


class Registry(Generic[P]):
    """The parts of one kind by name; a part of the package is imported when it is first requested.

    `package` is the folder with the parts of the package. The registry looks for a part named `dsir` in `package.dsir`
    first, so that choosing a part does not import all others.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._parts: dict[str, type[P]] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[type[P]], type[P]]:
        """Return a decorator that makes a class known by `name`; a second class of the same name is an error."""

        def add(part: type[P]) -> type[P]:
            known = self._parts.get(name)
            if known is not None and (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
                raise InputError(f"there are two {self.kind}s named {name!r}: {_origin(known)} and {_origin(part)}")
            self._parts[name] = part
            part.name = name  # type: ignore[attr-defined]
            return part

        return add

    def get(self, name: str) -> type[P]:
        """Return the part of this name; raises `InputError` with the nearest right spelling."""
        if name not in self._parts:
            self._find(name)
        if name not in self._parts:
            raise InputError(f"there is no {self.kind} {name!r}", hint=did_you_mean(name, self.names()))
        return self._parts[name]

    def names(self) -> tuple[str, ...]:
        """Return all names in alphabetical order."""
        self._load_all()
        return tuple(sorted({*self._parts, *(point.name for point in self._entry_points())}))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.names()

    def forget(self, modules: Collection[str]) -> None:
        """Remove the parts that these modules registered."""
        self._parts = {name: part for name, part in self._parts.items() if part.__module__ not in modules}

    def _find(self, name: str) -> None:
        module = f"{self.package}.{name}"
        if name.isidentifier() and importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
        for point in self._entry_points():
            if point.name == name and name not in self._parts:
                self.register(name)(point.load())
        if name not in self._parts:
            self._load_all()

    def _load_all(self) -> None:
        load_plugins_of_environment()
        if self._complete:
            return
        package = importlib.import_module(self.package)
        for module in pkgutil.walk_packages(package.__path__, f"{self.package}."):
            importlib.import_module(module.name)
        self._complete = True

    def _entry_points(self) -> metadata.EntryPoints:
        return _entry_points(f"endtask.{self.kind.replace(' ', '_')}s")


@cache  # reads the metadata of every installed package
def _entry_points(group: str) -> metadata.EntryPoints:
    return metadata.entry_points(group=group)


def load_plugin(path: str | Path) -> None:
    """Run a Python file that registers parts; loading the same file again does nothing."""
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise InputError("no such plug-in file", path=path)
    name = PLUGIN_MODULE + hashlib.blake2b(str(file).encode(), digest_size=6).hexdigest()
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError("not a Python file", path=path, hint="a plug-in is a file such as my_selector.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"cannot be loaded: {type(error).__name__}: {error}", path=path) from error
    known = os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)
    os.environ[PLUGINS_VARIABLE] = os.pathsep.join(dict.fromkeys([*filter(None, known), str(file)]))


def load_plugins_of_environment() -> None:
    """Load the plug-ins that `ENDTASK_PLUGINS` names."""
    for path in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        load_plugin(path)


def code_digest(part: type) -> str | None:
    """Return a hash of the file that defines a part from outside the package; None for parts of the package."""
    if part.__module__.partition(".")[0] == "endtask":
        return None
    file = getattr(sys.modules.get(part.__module__), "__file__", None)
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=12).hexdigest() if file else part.__module__


def _origin(part: type) -> str:
    file = getattr(sys.modules.get(part.__module__), "__file__", None)
    return str(file or part.__module__)


selectors: Registry[Any] = Registry("selector", "endtask.selectors")
objectives: Registry[Any] = Registry("objective", "endtask.objectives")
weightings: Registry[Any] = Registry("weighting", "endtask.weighting")
encoders: Registry[Any] = Registry("encoder", "endtask.encoders")
metrics: Registry[Any] = Registry("metric", "endtask.evaluation.metrics")
task_types: Registry[Any] = Registry("task type", "endtask.task_types")
"""The kinds of parts. They are defined here, below everything else, so that the settings can use them."""

row_formats: Registry[Any] = Registry("row format", "endtask.io.rows")
document_formats: Registry[Any] = Registry("document format", "endtask.corpus.formats")
"""File formats, which readers find by suffix and content: tables of rows, and files of documents."""

REGISTRIES = (selectors, objectives, weightings, encoders, metrics, task_types, row_formats, document_formats)
