"""A stage is skipped, resumed or redone by its fingerprint."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from endtask.errors import InputError
from endtask.io import stage_folder
from endtask.io.digests import fingerprint
from endtask.io.stage_files import MANIFEST, read_manifest
from endtask.io.stage_folder import StageFolder


def stage(run: Path, mark: str = "f1") -> StageFolder:
    return StageFolder(run, "1-retrieve", mark, {"top_k": 5}, {"corpus": "abc"})


def finish_one(run: Path, mark: str = "f1", content: str = "result") -> StageFolder:
    work = stage(run, mark)
    (work.start() / "out.txt").write_text(content)
    work.finish({"rows": 3})
    return work


def test_a_finished_stage_is_recognised(tmp_path: Path) -> None:
    assert not stage(tmp_path).is_finished()
    finish_one(tmp_path)
    assert stage(tmp_path).is_finished()
    assert not stage(tmp_path, "f2").is_finished()
    assert [entry.name for entry in tmp_path.iterdir()] == ["1-retrieve"]


def test_the_manifest_tells_the_story(tmp_path: Path) -> None:
    finish_one(tmp_path)
    manifest = read_manifest(tmp_path / "1-retrieve")
    assert manifest is not None
    assert manifest["status"] == "finished"
    assert manifest["settings"] == {"top_k": 5}
    assert manifest["inputs"] == {"corpus": "abc"}
    assert manifest["counts"] == {"rows": 3}
    assert manifest["seconds"] >= 0
    assert {"python", "numpy"} <= manifest["versions"].keys()


class FakeCuda:
    """Two GPUs, on the second of which more was held."""

    def __init__(self, *held: int) -> None:
        self.held, self.was_reset = list(held), 0

    def is_initialized(self) -> bool:
        return bool(self.held)

    def device_count(self) -> int:
        return len(self.held)

    def reset_peak_memory_stats(self, number: int) -> None:
        self.was_reset += 1

    def max_memory_reserved(self, number: int) -> int:
        return self.held[number]


def test_the_most_memory_of_a_gpu_is_told_and_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(10, 30)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    first = stage(tmp_path)
    first.start()
    first.save_time()
    assert cuda.was_reset == 2  # each GPU once
    cuda.held = [20, 5]  # after a kill: a process that needs less
    resumed = stage(tmp_path)
    resumed.start()
    resumed.finish({"rows": 3})
    manifest = read_manifest(tmp_path / "1-retrieve")
    assert manifest is not None
    assert manifest["gpu_bytes"] == 30


def test_without_a_gpu_at_work_nothing_is_told_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=FakeCuda()))
    finish_one(tmp_path)
    manifest = read_manifest(tmp_path / "1-retrieve")
    assert manifest is not None
    assert "gpu_bytes" not in manifest


def test_a_source_tree_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert stage_folder.package_version() == metadata.version("endtask")
    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(stage_folder, "_library_versions", stage_folder._library_versions.__wrapped__)
    assert stage_folder.package_version() == "0+unknown"
    assert stage_folder.versions().keys() == {"python", "endtask"}


def test_unfinished_work_stands_apart_from_finished(tmp_path: Path) -> None:
    folder = stage(tmp_path).start()
    assert folder.name == "1-retrieve.partial"
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest["status"] == "running"
    assert not stage(tmp_path).is_finished()


def test_a_killed_stage_goes_on(tmp_path: Path) -> None:
    killed = stage(tmp_path)
    folder = killed.start()
    (folder / "half.txt").write_text("half")
    (folder / ".half.txt.123.tmp").write_text("a file in the writing")
    killed.set_plan(steps=100)
    again = stage(tmp_path)
    assert again.start() == folder
    assert again.plan == {"steps": 100}
    assert sorted(entry.name for entry in folder.iterdir()) == ["half.txt", "manifest.json"]


def test_time_adds_up_over_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(stage_folder.time, "monotonic", lambda: clock[0])
    first = stage(tmp_path)
    first.start()
    clock[0] += 7
    first.save_time()
    clock[0] += 1000  # between the kill and the new start
    again = stage(tmp_path)
    again.start()
    clock[0] += 5
    again.finish({})
    manifest = read_manifest(tmp_path / "1-retrieve")
    assert manifest is not None
    assert manifest["seconds"] == 12


def test_other_settings_begin_anew_and_keep_the_finished_stage(tmp_path: Path) -> None:
    finish_one(tmp_path)
    (stage(tmp_path, "f2").start() / "half.txt").write_text("half")
    folder = stage(tmp_path, "f3").start()
    assert not (folder / "half.txt").exists()
    assert (tmp_path / "1-retrieve" / "out.txt").read_text() == "result"
    finish_one(tmp_path, "f3", "other")
    assert (tmp_path / "1-retrieve" / "out.txt").read_text() == "other"


def test_a_killed_clean_up_is_not_taken_for_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (stage(tmp_path, "f1").start() / "half.txt").write_text("half")

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage_folder.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        stage(tmp_path, "f2").start()
    monkeypatch.undo()
    folder = stage(tmp_path, "f1").start()
    assert [entry.name for entry in folder.iterdir()] == ["manifest.json"]


def test_a_rename_that_was_interrupted_is_done_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Path, __: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage_folder, "replace_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        finish_one(tmp_path)
    monkeypatch.undo()
    again = stage(tmp_path)
    assert not again.is_finished()
    again.recover()
    assert again.is_finished()
    assert (tmp_path / "1-retrieve" / "out.txt").read_text() == "result"
    assert not (tmp_path / "1-retrieve.partial").exists()


def test_fingerprints_follow_values_not_their_order() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert len({fingerprint(1), fingerprint("1"), fingerprint([1]), fingerprint(1, 1)}) == 4


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "3",
        '"finished"',
        "{}",
        '{"status": "finished"}',
        '{"fingerprint": "1"}',
        '{"fingerprint": "1", "status": "finished", "left_out": 3}',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_what_is_no_manifest_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"manifest.json: damaged: not a manifest"):
        read_manifest(tmp_path)
