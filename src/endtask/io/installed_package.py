"""Find a model inside an installed Python package, or one that endtask ships, without running any package's code."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

from endtask.errors import InputError, nearest

PACKAGE_PREFIX = "package:"
_CONFIG, _WEIGHTS = "config.json", "*.safetensors"
_SUBFOLDER = "model"
_SHIPPED = Path(__file__).parents[1] / "pretrained"
"""Models that endtask ships, one folder each; `package:NAME` finds them before any package."""


def package_folder(path: str, *, key: str) -> Path:
    """Return the folder of `package:NAME` with config.json and safetensors: the package's folder, or `model` in it.

    >>> package_folder("package:jsn", key="model.path")
    Traceback (most recent call last):
        ...
    endtask.errors.InputError: package:jsn, key 'model.path': no such package is installed (did you mean 'json'?)
    """
    name = module_name(path)
    if not name.isidentifier():  # a dot is an error too: to find a submodule, Python would run the package
        raise InputError(f"{name!r} is not the name of a package", key=key, hint=f"write {PACKAGE_PREFIX}NAME")
    folders = _folders(name)
    if folders is None:
        raise InputError("no such package is installed", path=path, key=key, hint=_install_hint(name))
    folder = _folder_with_model(folders)
    if folder is None:
        searched = f"in its own folder or in {_SUBFOLDER} inside it"
        raise InputError(f"the package holds no {_CONFIG} with {_WEIGHTS}, {searched}", path=path, key=key)
    return folder


def package_model(path: str) -> Path | None:
    """Return the folder of `package_folder`, or None if there is no such package or it has no model.

    >>> package_model("package:json") is None
    True
    """
    return _folder_with_model(_folders(module_name(path)) or [])


def module_name(path: str) -> str:
    """Return the import name of a package; PyPI's hyphens become underscores.

    >>> module_name("package:some-model")
    'some_model'
    """
    return path.removeprefix(PACKAGE_PREFIX).replace("-", "_")


def _folders(name: str) -> list[Path] | None:
    """Return the folders of a package (empty for a single-file module), or None if it is not installed."""
    if name.isidentifier() and (_SHIPPED / name).is_dir():
        return [_SHIPPED / name]
    try:
        spec = find_spec(name)
    except ValueError:  # a loaded module without a file, such as __main__
        return []
    if spec is None:
        return None
    return [Path(folder) for folder in spec.submodule_search_locations or ()]


def _folder_with_model(folders: list[Path]) -> Path | None:
    candidates = [folder / name for folder in folders for name in ("", _SUBFOLDER)]
    return next((path for path in candidates if (path / _CONFIG).is_file() and any(path.glob(_WEIGHTS))), None)


def _install_hint(name: str) -> str:
    # Do not suggest to install a misspelled name: anybody may have published a package under it.
    close = nearest(name, (module.name for module in iter_modules()))
    return f"did you mean {close!r}?" if close else f"pip install {name.replace('_', '-')}"
