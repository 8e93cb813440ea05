"""Kernels that Numba compiles for fixed types and caches between runs in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.progress import say

try:
    import numba
except ImportError:  # a machine that only trains what another one prepared may lack it
    numba = None  # type: ignore[assignment]

_compiling = threading.RLock()


def njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that kernels call, compiled by Numba; without Numba as it is, which no kernel calls."""
    inner: Callable[..., Any] = function if numba is None else numba.njit(function)
    return inner


def has_numba() -> bool:
    """Return whether kernels can be compiled."""
    return numba is not None


def compiled(signature: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Compile a function for `signature` at its first call; it releases the interpreter's lock.

    No `fastmath` and no parallel loops, so results do not depend on the machine or the number of threads.
    """
    return lambda function: Kernel(function, signature)


class Kernel:
    """A function that is compiled, or loaded from the cache, at its first call."""

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self._signature = signature
        self._kernel: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._kernel is None:
            with _compiling:
                self._kernel = self._kernel or self._compile()
        return self._kernel(*arguments)

    def _compile(self) -> Callable[..., Any]:
        if numba is None:
            raise InputError("Numba is not installed here", hint="pip install numba; training a bundle needs none")
        folder = cache_folder()
        # Numba names the cached code of a function after its file and its name.
        if folder is None or not any(folder.rglob(f"*.{self.function.__name__}-*.nbi")):
            _log_once()
        with _numba_caches_in(folder):
            compile_now = numba.njit(self._signature, nogil=True, cache=folder is not None)
            kernel: Callable[..., Any] = compile_now(self.function)
        return kernel


@cache
def _log_once() -> None:
    say("compiling kernels (once after installing; 10 to 30 seconds)")


@cache
def cache_folder() -> Path | None:
    """Return the folder of compiled code, or None if nothing can be written.

    Numba checks only the kernel's own file for changes, so the folder's name has a hash of all code a kernel may call.
    """
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))
    try:
        folder = _base_folder() / f"kernels-{hashlib.blake2b(sources, digest_size=6).hexdigest()}"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # nothing can be written, or the user has no home folder
        return None


def _base_folder() -> Path:
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Path(os.environ["NUMBA_CACHE_DIR"])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "endtask"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "endtask"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "endtask"


@contextmanager
def _numba_caches_in(folder: Path | None) -> Iterator[None]:
    """Set Numba's global cache folder inside the block, and restore it for other users of Numba."""
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder or before)
    try:
        yield
    finally:
        config.CACHE_DIR = before
