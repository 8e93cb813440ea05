"""Compiled code is cached in the user's cache folder, or not at all if nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest

from endtask.progress import set_quiet
from endtask.retrieval import compiled as module
from endtask.retrieval.compiled import cache_folder, compiled

PROGRAM = """
import numba, numpy
before = numba.config.CACHE_DIR
from endtask.retrieval.compiled import cache_folder
from endtask.retrieval.bm25.join import KeySet
assert KeySet().add(numpy.array([7, 8, 7], dtype=numpy.uint64)).tolist() == [True, True, False]
assert numba.config.CACHE_DIR == before
print(cache_folder())
"""


def run_program(**environment: str) -> tuple[str, str]:
    """A kernel in a process of its own; what it printed, and what was said to the person who waits."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**inherited, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_code_is_kept_under_the_users_cache_folder(tmp_path: Path) -> None:
    if sys.platform in ("win32", "darwin"):
        pytest.skip("XDG_CACHE_HOME is for other systems")
    folder, said = run_program(XDG_CACHE_HOME=str(tmp_path))
    assert Path(folder).parent == tmp_path / "endtask"
    assert "compiling kernels" in said
    kept = sorted(path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc"))
    assert kept
    assert all(path.is_relative_to(folder) for path in kept)
    times = [path.stat().st_mtime_ns for path in kept]
    assert run_program(XDG_CACHE_HOME=str(tmp_path)) == (folder, ""), "the second time there is nothing to wait for"
    assert [path.stat().st_mtime_ns for path in kept] == times
    assert not list(Path(module.__file__).parent.rglob("*.nbi")), "nor beside the code"


@pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_it_works_where_nothing_can_be_kept(tmp_path: Path, name: str) -> None:
    if sys.platform in ("win32", "darwin") and name == "XDG_CACHE_HOME":
        pytest.skip("XDG_CACHE_HOME is for other systems")
    (tmp_path / "file").write_text("no folder can stand below a file, not even for root")
    folder, said = run_program(**{name: str(tmp_path / "file" / "cache")})
    assert folder == "None"
    assert "compiling kernels" in said


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Numba's own setting for where to keep things."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    set_quiet(True)
    cache_folder.cache_clear()
    yield tmp_path
    cache_folder.cache_clear()


def add(numbers):  # type: ignore[no-untyped-def]
    """Sums."""
    total = 0
    for number in numbers:
        total += number
    return total


def test_numbas_own_setting_is_respected_and_left_alone(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "somewhere else")
    kernel = compiled("int64(int64[::1])")(add)
    assert not list(own_cache.rglob("*.nbi")), "nothing is compiled before the first call"
    assert kernel(np.arange(5)) == 10
    assert kernel.__doc__ == "Sums."
    assert numba.config.CACHE_DIR == "somewhere else"
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == own_cache
    assert list(folder.rglob("*add-*.nbi"))


def test_only_the_types_named_are_taken(own_cache: Path) -> None:
    kernel = compiled("int64(int64[::1])")(add)
    with pytest.raises(TypeError, match="No matching definition"):
        kernel(np.arange(5.0))


def test_numbas_folder_comes_back_after_a_failure(own_cache: Path) -> None:
    folder = numba.config.CACHE_DIR
    kernel = compiled("int64(unicode_type)")(lambda text: text.no_such_thing())
    with pytest.raises(numba.TypingError):
        kernel("x")
    assert folder == numba.config.CACHE_DIR
