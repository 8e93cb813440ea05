"""The command in a process of its own: quiet in a pipe, streaming, and clean when interrupted."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toy_run import write_settings

ENDTASK = [sys.executable, "-m", "endtask"]


@pytest.fixture
def hears_the_keyboard() -> Iterator[None]:
    """Programs started in the background by a shell ignore Ctrl-C, and so do all that they start."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_plain_when_not_a_terminal(toy: Path, tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    ended = subprocess.run([*ENDTASK, "run", settings], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for stream in (ended.stdout, ended.stderr):
        assert b"\x1b" not in stream
        assert b"\r" not in stream
    stages = r"\w+: started|\w+: .+ \([0-9.]+ s\)|warning: (\d+% of the corpus is selected; .+|\d+ steps end before .+)"
    bars = r"read corpus|rank passages|fetch passages|count words of .+|tokenizer|tokens|pretrain|finetune seed \d"
    once = r"compiling kernels \(.+\)|the encoder starts from .+"  # kernels where no earlier test did
    known = re.compile(f"{stages}|{bars}|{once}")
    strange = [line for line in ended.stderr.decode().splitlines() if not known.fullmatch(line)]
    assert strange == []  # no bars and no warnings of the libraries either
    said = ended.stdout.decode().splitlines()
    assert sum(line.startswith("  TF-IDF + ") for line in said) == 1
    assert [line.partition(":")[0] for line in said if not line.startswith("  ")] == ["task", "report", "try it"]


@pytest.mark.long
@pytest.mark.slow
def test_bars_on_a_terminal_leave_readable_lines(toy: Path, tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    words = [*ENDTASK, "run", str(settings), "--until", "select"]
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = _read_all(ours)
    assert process.returncode == 0
    # What is left on the screen: of each line the text after the last return to its start, without colours.
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n")]
    bars = [line for line in lines if line.startswith(("read corpus", "rank passages", "fetch passages"))]
    assert [bar.split(" ")[0] for bar in bars] == ["read", "rank", "fetch"]
    assert all("100%" in bar for bar in bars)
    assert "MB/s, 200 passages" in bars[0]
    assert any(line.startswith("report: ") for line in lines)


def _read_all(descriptor: int) -> str:
    chunks = []
    while True:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(descriptor)
    return b"".join(chunks).decode()


@pytest.mark.long
@pytest.mark.slow
def test_labels_come_before_standard_input_ends(finished_run: Path) -> None:
    words = [*ENDTASK, "predict", str(finished_run)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in (b"soup bread\n", b"star moon\nball goal\n"):
            process.stdin.write(text)
            for _ in text.splitlines():
                assert re.fullmatch(rb"(food|space|sport)\t[01]\.\d{4}\n", process.stdout.readline())
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


@pytest.mark.long
@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(finished_run: Path) -> None:
    words = [*ENDTASK, "predict", str(finished_run), "--batch-size", "1"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"soup\n")
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"star\n" * 5)
        process.stdin.close()
        assert process.stderr.read() == b""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("hears_the_keyboard")
def test_interrupted_with_the_keyboard(toy: Path, tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run", budget="100000steps")
    words = [*ENDTASK, "run", str(settings)]
    checkpoint = tmp_path / "run" / "pretrain.partial" / "checkpoint.safetensors"
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "endtask: stopped; the same command resumes from here"
    assert "Traceback" not in said
    assert checkpoint.exists()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("hears_the_keyboard")
def test_interrupted_while_several_processes_read(toy: Path, tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of a terminal: only the first may say something, and none goes on."""
    sources = []
    for name in ("north", "south", "west"):
        rows = "".join(f'{{"text": "soup {name} {row} {"ball " * 40}"}}\n' for row in range(18_000))
        (tmp_path / f"{name}.jsonl").write_text(rows)
        sources.append({"path": str(tmp_path / f"{name}.jsonl")})
    changes = {"corpus": {"sources": sources}, "threads": 2, "budget": "100000steps"}
    settings = write_settings(tmp_path / "settings.json", toy, tmp_path / "run", **changes)
    words = [*ENDTASK, "run", str(settings)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not list(tmp_path.glob("run/scratch/shards/*.partial")) and process.poll() is None:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()  # ends once no process is left that could write
    assert process.returncode == 130
    assert said.splitlines()[-1] == "endtask: stopped; the same command resumes from here"
    assert "Traceback" not in said


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    program = (
        "import sys, endtask, endtask.cli.main, endtask.pipeline.run, endtask.reporting.page\n"
        "heavy = ('torch', 'transformers', 'pyarrow', 'numba', 'sklearn', 'datasets')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
