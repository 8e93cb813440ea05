"""Completion in the shell, by Typer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", **variables}
    program = [sys.executable, "-c", "import sys; from endtask.cli.main import main; main(sys.argv[1:])", *words]
    return subprocess.run(program, capture_output=True, text=True, env=environment, check=False)


def test_it_is_installed_and_completes_options(tmp_path: Path) -> None:
    installed = run(tmp_path, "--install-completion", "bash")
    assert installed.returncode == 0, installed.stderr
    assert "_ENDTASK_COMPLETE=complete_bash" in next((tmp_path / ".bash_completions").iterdir()).read_text()
    line = "endtask export runs/a --publ"
    found = run(tmp_path, _ENDTASK_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD="3")
    assert found.stdout.split() == ["--public"], found.stderr
