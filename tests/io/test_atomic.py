"""Files and folders are complete or absent, also after a failure."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from endtask.io import atomic
from endtask.io.atomic import (
    atomic_file,
    atomic_folder,
    remove_folder,
    remove_leftovers,
    replace_folder,
    write_json,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_the_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    with atomic_file(path) as aside:
        aside.write_text("new")
        assert not path.exists()
        assert aside.parent == path.parent  # a rename works inside one file system only
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_middle_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def write_half() -> None:
        with atomic_file(path) as aside:
            aside.write_text("ne")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("failing", ["write_text", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write_half(aside: Path, *_: object, **__: object) -> None:
        aside.write_bytes(b"ne")
        full()

    if failing == "write_text":
        monkeypatch.setattr(Path, "write_text", write_half)
    else:
        monkeypatch.setattr(atomic.os, failing, full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(path, "new")
    monkeypatch.undo()
    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    program = (
        "import os, sys; from endtask.io.atomic import atomic_file\n"
        "with atomic_file(sys.argv[1]) as aside:\n"
        "    aside.write_text('ne'); os.kill(os.getpid(), 9)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert finished.returncode == -9
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 2
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["file.txt"]


def test_what_safetensors_writes_aside_is_a_leftover_too(tmp_path: Path) -> None:
    """A process killed in the middle of a checkpoint leaves a file as large as the checkpoint."""
    script = "from safetensors.numpy import save_file; import numpy, resource, signal, sys;"
    script += "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"  # killed by SIGXFSZ as it writes
    script += "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); save_file({'a': numpy.zeros(9999)}, sys.argv[1])"
    (tmp_path / "deep").mkdir()
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "deep" / "file.safetensors")], check=False)
    assert ended.returncode == -signal.SIGXFSZ
    assert names(tmp_path / "deep") != []
    remove_leftovers(tmp_path)
    assert [name for name in names(tmp_path / "deep") if name != "file.safetensors"] == []


def test_a_folder_is_deleted_whole_or_left_as_a_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("work", "work/deep"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".file.1.tmp").write_text("x")

    def stopped(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", stopped)
        with pytest.raises(KeyboardInterrupt):
            remove_folder(tmp_path / "work")
    assert names(tmp_path) == [".work.tmp"]
    remove_leftovers(tmp_path)
    assert names(tmp_path) == []
    (tmp_path / "work").mkdir()
    (tmp_path / ".work.tmp").mkdir()
    remove_folder(tmp_path / "work")
    remove_folder(tmp_path / "work")
    assert names(tmp_path) == []


def test_json_is_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"text": "zwölf", "numbers": [1, 2.5]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"text": "zwölf", "numbers": [1, 2.5]}
    assert "zwölf" in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"score": float("nan")})
    assert names(tmp_path) == ["value.json"]


def make_folder(folder: Path, content: str) -> Path:
    folder.mkdir()
    (folder / "file.txt").write_text(content)
    return folder


@pytest.mark.parametrize("before", ["nothing", "an old folder", "an old folder and a leftover"])
def test_a_folder_is_replaced(tmp_path: Path, before: str) -> None:
    folder = tmp_path / "stage"
    if before != "nothing":
        make_folder(folder, "old")
    if before.endswith("leftover"):
        make_folder(tmp_path / ".stage.old", "older")
    replace_folder(make_folder(tmp_path / "stage.partial", "new"), folder)
    assert (folder / "file.txt").read_text() == "new"
    assert names(tmp_path) == ["stage"]


def test_a_replacement_killed_between_its_two_renames_can_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, aside = make_folder(tmp_path / "stage", "old"), make_folder(tmp_path / "stage.partial", "new")
    rename = os.replace

    def killed_at_the_second(source: Path, target: Path) -> None:
        if source == aside:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(atomic.os, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        replace_folder(aside, folder)
    monkeypatch.undo()
    replace_folder(aside, folder)
    assert (folder / "file.txt").read_text() == "new"
    assert names(tmp_path) == ["stage"]


_NO_PROCESS = 1 << 23
"""More than the number of any process on Linux."""


def test_a_folder_appears_at_the_end_in_place_of_an_older_one(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    for content in ("first", "second"):
        with atomic_folder(target) as aside:
            write_text(aside / "deep.txt", content)
            assert not target.exists() or (target / "deep.txt").read_text() == "first"
        assert (target / "deep.txt").read_text() == content
        assert names(target.parent) == ["folder"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_middle_leaves_the_old_folder(tmp_path: Path, error: type[BaseException]) -> None:
    write_text(tmp_path / "other", "")

    def write_half() -> None:
        with atomic_folder(tmp_path / "folder") as aside:
            write_text(aside / "half", "")
            raise error

    with pytest.raises(error):
        write_half()
    assert names(tmp_path) == ["other"]


def test_folders_that_killed_processes_left_are_deleted_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    # the second, with this process's number, is what a killed container leaves for the next one
    kept = [f".folder.{os.getppid()}.tmp", f".other.{_NO_PROCESS}.tmp"]
    for name in (f".folder.{_NO_PROCESS}.tmp", f".folder.{os.getpid()}.tmp", *kept):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "file").write_text("half")
    with atomic_folder(tmp_path / "folder") as aside:
        assert names(aside) == []
    assert names(tmp_path) == sorted([*kept, "folder"])
