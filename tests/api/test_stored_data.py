"""Data in a run's folder: whole, equal bytes for equal data, and never replaced in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.api.stored_data import MemoryTable, digest_of, stored_data
from endtask.config import Settings
from endtask.errors import InputError
from tests.toy_run import hashes


def tables(*labels: str) -> list[MemoryTable]:
    return [MemoryTable("train.jsonl", "data", [{"text": f"text {n}", "label": one} for n, one in enumerate(labels)])]


def store(folder: Path, *labels: str, replace: bool = False, reads: bool = True) -> None:
    """Store data as `fit` does, with a block that does no more than to read it."""
    with stored_data(tables(*labels), Settings(output_dir=str(folder)), replace=replace):
        if reads:
            (folder / "read").mkdir(exist_ok=True)


def test_equal_data_gives_equal_bytes(tmp_path: Path) -> None:
    store(tmp_path / "one", "a", "b")
    store(tmp_path / "two", "a", "b")
    before = hashes(tmp_path / "one" / "data")
    assert list(before) == ["train.jsonl"]
    assert hashes(tmp_path / "two" / "data") == before
    inode = (tmp_path / "one" / "data" / "train.jsonl").stat().st_ino
    store(tmp_path / "one", "a", "b")
    assert (tmp_path / "one" / "data" / "train.jsonl").stat().st_ino == inode  # not written again
    assert digest_of(tables("a", "b")) == digest_of(tables("a", "b")) != digest_of(tables("a", "c"))


def test_other_data_is_refused_unless_the_run_starts_anew(tmp_path: Path) -> None:
    run = tmp_path / "run"
    store(run, "a", "b")
    before = hashes(run, "data/*", "settings.yaml")
    with pytest.raises(InputError, match=r"run: this run was made with other data \(start='read' redoes"):
        store(run, "a", "c")
    assert hashes(run, "data/*", "settings.yaml") == before
    store(run, "a", "c", replace=True)
    assert hashes(run / "previous" / "data") == {"train.jsonl": before["data/train.jsonl"]}
    assert hashes(run / "data") != hashes(run / "previous" / "data")


def test_an_error_undoes_what_was_written(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = Settings(output_dir=str(run))
    wrong = InputError("the label is missing", path=run / "data" / "train.jsonl", row=2)
    with (
        pytest.raises(InputError, match=r"^data, row 2: the label is missing$"),
        stored_data(tables("a"), settings, replace=False),
    ):
        raise wrong
    assert not run.exists()
    store(run, "a")
    before = hashes(run, "data/*")
    with pytest.raises(InputError, match=r"^data, row 2"), stored_data(tables("b"), settings, replace=True):
        raise wrong
    assert hashes(run, "data/*", "previous/**/*") == before


def test_a_killed_process_leaves_nothing_half_written(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt), stored_data(tables("a"), Settings(output_dir=str(run)), replace=False):
        raise KeyboardInterrupt
    assert (run / "data" / "train.jsonl").exists()
    (run / ".data.tmp").mkdir()
    (run / ".data.tmp" / "half").write_text("half")
    store(run, "a")
    assert [path.name for path in (run / "data").iterdir()] == ["train.jsonl"]


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"the folder has other files \(thesis\.txt\)"):
        store(tmp_path, "a")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
