"""Turn a labelled task and a large pile of text into a small language model made for that task.

>>> import endtask
>>> sorted(endtask.__all__)
['Corpus', 'InputError', 'Model', 'Settings', 'Task', 'fit', 'load', 'load_settings', 'run']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from endtask.api.fit import fit
    from endtask.api.model import Model, load
    from endtask.config import Settings, load_settings
    from endtask.corpus import Corpus
    from endtask.errors import InputError
    from endtask.pipeline.run import run
    from endtask.task import Task

__all__ = ["Corpus", "InputError", "Model", "Settings", "Task", "fit", "load", "load_settings", "run"]

_MODULES = {
    "Corpus": "endtask.corpus",
    "InputError": "endtask.errors",
    "Model": "endtask.api.model",
    "Settings": "endtask.config",
    "Task": "endtask.task",
    "fit": "endtask.api.fit",
    "load": "endtask.api.model",
    "load_settings": "endtask.config",
    "run": "endtask.pipeline.run",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that the command can handle signals before its slow imports."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
