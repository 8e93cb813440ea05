"""One process per run folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.io.processes import run_lock

TRY_LOCK = (
    "import sys; from pathlib import Path\n"
    "from endtask.errors import InputError; from endtask.io.processes import run_lock\n"
    "try:\n"
    "    with run_lock(Path(sys.argv[1])): print('got it')\n"
    "except InputError as error: print(error)\n"
)
HOLD_AND_DIE = (
    "import os, sys; from pathlib import Path; from endtask.io.processes import run_lock\n"
    "with run_lock(Path(sys.argv[1])): os.kill(os.getpid(), 9)\n"
)


def run_python(program: str, folder: Path) -> str:
    finished = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    return finished.stdout.strip()


def test_a_second_process_is_refused_and_told_who_works(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        answer = run_python(TRY_LOCK, tmp_path)
    assert answer == f"{tmp_path}: another process works on this run (process {os.getpid()})"
    assert run_python(TRY_LOCK, tmp_path) == "got it"


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    with run_lock(tmp_path), pytest.raises(InputError, match="another process"), run_lock(tmp_path):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    run_python(HOLD_AND_DIE, tmp_path)
    assert (tmp_path / ".lock-holder").exists()
    with run_lock(tmp_path):
        assert (tmp_path / ".lock-holder").read_text().strip() == str(os.getpid())
    assert not (tmp_path / ".lock-holder").exists()


def test_an_error_inside_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), run_lock(tmp_path):
        raise ValueError("inside")
    with run_lock(tmp_path):
        assert (tmp_path / ".lock-holder").exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match="cannot be written"), run_lock(tmp_path / "file"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_forbidden_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written"), run_lock(tmp_path):
        pass
