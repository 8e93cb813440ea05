"""Optional packages: an error line that names the extra to install where one is missing."""

from __future__ import annotations

from importlib.util import find_spec

from endtask.errors import InputError


def missing_packages(*packages: str) -> list[str]:
    """Return the packages that are not installed.

    >>> missing_packages("json", "no_such_package")
    ['no_such_package']
    """
    return [name for name in packages if find_spec(name) is None]


def require(*packages: str, extra: str, purpose: str) -> None:
    """Raise an InputError that names the extra where a package is not installed.

    >>> require("no_such_package", extra="onnx", purpose="ONNX export")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: ONNX export needs no_such_package, which is not installed (pip install 'endtask[onnx]')
    """
    missing = missing_packages(*packages)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        message = f"{purpose} needs {' and '.join(missing)}, which {verb} not installed"
        raise InputError(message, hint=f"pip install 'endtask[{extra}]'")
