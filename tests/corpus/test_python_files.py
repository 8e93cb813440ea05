"""Parsing on several cores gives the results of parsing one file after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.corpus import docstrings as python_files
from endtask.corpus.docstrings import docstrings_of_file


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for number in range(7):
        text = f'"""Module {number}, naïve \\ud800."""\n\ndef f():\n    """Function {number}."""\n'
        (tmp_path / f"m{number}.py").write_text(text, encoding="utf-8")
    (tmp_path / "m3.py").write_text("print 'Python 2'", encoding="utf-8")
    return sorted(tmp_path.glob("*.py"))


@pytest.mark.parametrize("cores", [1, 2])
def test_same_docstrings_for_any_number_of_workers(
    files: list[Path], cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_files, "_FEWEST_FILES_PER_WORKER", 1)
    monkeypatch.setattr(python_files, "usable_cores", lambda: cores)
    found = python_files.docstrings_of_files(files)
    assert found == [docstrings_of_file(path) for path in files]
    assert found[3] == []
    assert found[0] == [("<module>", "Module 0, naïve \ud800."), ("f", "Function 0.")]


def test_the_error_of_a_worker_is_raised(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_files, "_FEWEST_FILES_PER_WORKER", 1)
    monkeypatch.setattr(python_files, "usable_cores", lambda: 2)
    with pytest.raises(FileNotFoundError):
        python_files.docstrings_of_files([*files, files[0].with_name("absent.py")])
