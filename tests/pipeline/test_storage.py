"""Finished stages at the address `cluster.storage`: another machine goes on after them and ends in the same bits."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import endtask
from endtask.config import resolve
from endtask.corpus import cloud
from endtask.errors import InputError
from endtask.experiments.compare import compare
from endtask.experiments.search import search
from endtask.experiments.search_space import GridSearch
from endtask.io.run_layout import STAGES
from endtask.io.stage_files import read_manifest, write_manifest
from endtask.pipeline import storage
from endtask.pipeline.run import Run
from endtask.pipeline.stages import STAGES as ALL_STAGES
from endtask.pipeline.storage import Storage
from tests.toy_run import hashes, results, toy_settings

fsspec = pytest.importorskip("fsspec")

FILE = "pack/tokenizer/tokenizer.json"


@pytest.fixture(scope="module")
def uploaded(toy: Path, finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an address that has all stages of a run; read only."""
    folder = tmp_path_factory.mktemp("uploaded")
    run = shutil.copytree(finished_run, folder / "run")
    endtask.run(stored(toy, run, folder / "bucket"))
    return folder / "bucket"


@pytest.fixture
def bucket(uploaded: Path, tmp_path: Path) -> Path:
    """A copy of the folder of the address that a test may change."""
    return Path(shutil.copytree(uploaded, tmp_path / "bucket"))


def stored(toy: Path, output: Path, address: Path | str, **changes: Any) -> dict[str, Any]:
    """Settings of a run that is stored at an address, or in a folder."""
    address = f"file://{address}" if isinstance(address, Path) else address
    return toy_settings(toy, output, cluster={"storage": address}, **changes)


def stages_in(folder: Path) -> list[str]:
    return [stage for stage in STAGES if (folder / stage / "manifest.json").is_file()]


def lines(run: Path, end: str) -> list[str]:
    """The stages whose line in the log has these words."""
    found = [line[20:] for line in (run / "run.log").read_text(encoding="utf-8").splitlines()]
    return [line.partition(":")[0] for line in found if end in line]


def refused(settings: dict[str, Any], **arguments: Any) -> str:
    """The line with which a run is refused."""
    with pytest.raises(InputError) as caught:
        endtask.run(settings, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def no_stage_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every stage that is made here fail."""

    def run(*arguments: Any) -> None:
        raise AssertionError("a stage was made again")

    for stage in ALL_STAGES.values():
        monkeypatch.setattr(stage, "run", run)


def test_stages_that_were_finished_before_are_uploaded(uploaded: Path, finished_run: Path) -> None:
    there = hashes(uploaded)
    assert {name: there[name] for name in there if "/" in name} == {
        name: value for stage in STAGES for name, value in prefixed(stage, hashes(finished_run / stage)).items()
    }
    assert {name for name in there if "/" not in name} == {"settings.yaml", "report.html"}


def prefixed(stage: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{stage}/{name}": value for name, value in files.items()}


@pytest.mark.usefixtures("no_stage_runs")
def test_another_machine_fetches_what_is_finished(
    toy: Path, uploaded: Path, tmp_path: Path, finished_run: Path
) -> None:
    before = hashes(uploaded, "*/**/*")
    settings = stored(toy, tmp_path / "run", uploaded)
    assert [state for _, state in Run(resolve(settings)).plan()] == ["is fetched from cluster.storage"] * len(STAGES)
    assert endtask.run(settings).score is not None
    for stage in STAGES:
        assert hashes(tmp_path / "run" / stage) == hashes(finished_run / stage)
    assert hashes(uploaded, "*/**/*") == before
    assert lines(tmp_path / "run", ": fetched from file://") == list(STAGES)
    endtask.run(settings)
    assert lines(tmp_path / "run", ": fetched from file://") == list(STAGES)  # not again


def test_another_machine_goes_on_after_the_last_finished_stage(
    toy: Path, tmp_path: Path, finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"memory://bucket-{uuid4().hex}/runs/mine"
    endtask.run(stored(toy, tmp_path / "first", f"{address}/"), until="pack")
    shutil.rmtree(tmp_path / "first")
    endtask.run(stored(toy, tmp_path / "second", address))
    assert lines(tmp_path / "second", ": fetched from memory://") == list(STAGES[:4])
    assert lines(tmp_path / "second", ": started") == list(STAGES[4:])
    assert results(tmp_path / "second") == results(finished_run)
    shutil.rmtree(tmp_path / "second")
    endtask.run(stored(toy, tmp_path / "third", address))
    assert results(tmp_path / "third") == results(finished_run)
    assert lines(tmp_path / "third", ": started") == []
    assert address not in "".join(path.read_text() for path in (tmp_path / "third").glob("*/manifest.json"))


@pytest.mark.parametrize("stage", STAGES)
def test_it_is_in_no_fingerprint(toy: Path, stage: str, finished_run: Path) -> None:
    settings = resolve(stored(toy, finished_run, "s3://bucket/runs/mine"))
    assert Run(settings).stage_folders()[stage].is_finished()


def interrupt(settings: dict[str, Any], after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with Ctrl-C in the middle of a copy, after some copies."""
    copy, count = storage.copy_bytes, [0]

    def copy_bytes(source: Any, target: Any, advance: Any) -> None:
        count[0] += 1
        if count[0] > after:
            target.write(source.read(3))
            raise KeyboardInterrupt
        copy(source, target, advance)

    with monkeypatch.context() as patch:
        for module in (storage, cloud):  # uploads, downloads
            patch.setattr(module, "copy_bytes", copy_bytes)
        with pytest.raises(KeyboardInterrupt):
            endtask.run(settings)


@pytest.mark.usefixtures("no_stage_runs")
@pytest.mark.parametrize("after", [0, 1, 4, 9])
def test_an_interrupted_upload_is_completed_by_the_same_command(
    toy: Path, own_run: Path, uploaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    settings, bucket = stored(toy, own_run, tmp_path / "bucket"), tmp_path / "bucket"
    interrupt(settings, after, monkeypatch)
    complete = [stage for stage in STAGES if hashes(bucket / stage) == hashes(uploaded / stage)]
    assert stages_in(bucket) == complete != list(STAGES)
    endtask.run(settings)
    assert hashes(bucket, "*/**/*") == hashes(uploaded, "*/**/*")


@pytest.mark.usefixtures("no_stage_runs")
@pytest.mark.parametrize("after", [1, 6, 15])
def test_an_interrupted_download_is_completed_by_the_same_command(
    toy: Path, uploaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    settings, run = stored(toy, tmp_path / "run", uploaded), tmp_path / "run"
    interrupt(settings, after, monkeypatch)
    assert stages_in(run) == [stage for stage in STAGES if hashes(run / stage) == hashes(uploaded / stage)]
    endtask.run(settings)
    assert hashes(run, *(f"{stage}/**/*" for stage in STAGES)) == hashes(uploaded, "*/**/*")
    assert not list(run.glob("*.partial"))


@pytest.mark.usefixtures("no_stage_runs")
def test_only_missing_stages_are_uploaded(toy: Path, own_run: Path, bucket: Path, uploaded: Path) -> None:
    (bucket / "select" / "manifest.json").unlink()
    (bucket / "select" / "selection.parquet").write_bytes(b"half")
    times = {path: path.stat().st_mtime_ns for path in bucket.rglob("*/*") if path.is_file()}
    endtask.run(stored(toy, own_run, bucket))
    assert hashes(bucket, "*/**/*") == hashes(uploaded, "*/**/*")
    changed = {path.relative_to(bucket).parts[0] for path in times if path.stat().st_mtime_ns != times[path]}
    assert changed == {"select"}


def test_a_stage_without_a_manifest_is_made_here(toy: Path, bucket: Path, tmp_path: Path) -> None:
    (bucket / "retrieve" / "manifest.json").unlink()
    run = Run(resolve(stored(toy, tmp_path / "run", bucket)))
    assert [state for _, state in run.plan()] == ["is fetched from cluster.storage", *["to do"] * 7]


@pytest.mark.parametrize(("plan", "fetched"), [({"steps": 3}, []), ({}, STAGES[4:])])
def test_what_was_begun_here_goes_on_here(
    toy: Path, own_run: Path, uploaded: Path, plan: dict[str, int], fetched: list[str]
) -> None:
    for stage in STAGES[5:]:
        shutil.rmtree(own_run / stage)
    begun = own_run / "pretrain.partial"
    (own_run / "pretrain").rename(begun)
    write_manifest(begun, {**(read_manifest(begun) or {}), "status": "running", "plan": plan})
    stages = Run(resolve(stored(toy, own_run, uploaded))).stage_folders()
    assert Storage(f"file://{uploaded}", stages).fetchable(STAGES) == list(fetched)


def test_an_address_with_another_run_is_refused_before_anything_is_made(
    toy: Path, bucket: Path, tmp_path: Path
) -> None:
    before = hashes(bucket)
    line = refused(stored(toy, tmp_path / "run", bucket, budget="8steps"))
    assert f"file://{bucket}" in line
    assert "--from pretrain" in line
    assert hashes(bucket) == before
    assert stages_in(tmp_path / "run") == []


def test_a_redo_replaces_the_stages_there(toy: Path, bucket: Path, uploaded: Path, tmp_path: Path) -> None:
    settings = stored(toy, tmp_path / "run", bucket, budget="8steps")
    endtask.run(settings, start="pretrain", until="pretrain")
    assert lines(tmp_path / "run", ": fetched from") == list(STAGES[:4])
    assert stages_in(bucket) == list(STAGES[:5])
    assert hashes(bucket / "pretrain") == hashes(tmp_path / "run" / "pretrain") != hashes(uploaded / "pretrain")
    endtask.run(settings)
    assert stages_in(bucket) == list(STAGES)
    assert hashes(bucket, "*/**/*") == hashes(tmp_path / "run", *(f"{stage}/**/*" for stage in STAGES))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def change(file: Path) -> None:
    file.write_bytes(b"x" + file.read_bytes()[1:])


def leave_the_folder(file: Path) -> None:
    manifest = read_manifest(file.parent) or {}
    write_manifest(file.parent, {**manifest, "files": {**manifest["files"], "../../outside": [1, "x"]}})


def remove_records(file: Path) -> None:
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps({"fingerprint": manifest["fingerprint"], "status": "finished"}))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (FILE, truncate),
        (FILE, change),
        (FILE, Path.unlink),
        ("pack/manifest.json", truncate),
        ("pack/manifest.json", leave_the_folder),
        ("pack/manifest.json", remove_records),
    ],
)
def test_damage_at_the_address_is_named_and_not_used(
    toy: Path, bucket: Path, tmp_path: Path, file: str, damage: Callable[[Path], None]
) -> None:
    damage(bucket / file)
    line = refused(stored(toy, tmp_path / "run", bucket))
    assert line.startswith(f"file://{bucket / file}, key 'cluster.storage': damaged: ")
    assert "--from pack" in line
    assert not (tmp_path / "run" / "pack").exists()
    assert not (tmp_path / "outside").exists()


def test_a_redo_repairs_damage(toy: Path, bucket: Path, uploaded: Path, tmp_path: Path) -> None:
    truncate(bucket / FILE)
    truncate(bucket / "pack" / "manifest.json")
    endtask.run(stored(toy, tmp_path / "run", bucket), start="pack", until="pack")
    assert hashes(bucket, FILE) == hashes(uploaded, FILE)
    assert stages_in(bucket) == list(STAGES[:4])


def test_damage_here_is_not_uploaded(toy: Path, own_run: Path, tmp_path: Path) -> None:
    truncate(own_run / FILE)
    assert "damaged" in refused(stored(toy, own_run, tmp_path / "bucket"))
    assert stages_in(tmp_path / "bucket") == list(STAGES[:3])


@pytest.mark.usefixtures("no_stage_runs")
def test_files_that_a_bundle_left_out_are_left_out(toy: Path, own_run: Path, tmp_path: Path) -> None:
    manifest = read_manifest(own_run / "retrieve") or {}
    write_manifest(own_run / "retrieve", {**manifest, "left_out": list(manifest["files"])})
    for name in manifest["files"]:
        (own_run / "retrieve" / name).unlink()
    for run in (own_run, tmp_path / "other"):
        endtask.run(stored(toy, run, tmp_path / "bucket"))
    assert lines(tmp_path / "other", ": fetched from file://") == list(STAGES)
    assert hashes(tmp_path / "other" / "retrieve").keys() == {"manifest.json"}


@pytest.mark.usefixtures("no_stage_runs")
def test_a_failed_upload_is_a_line_and_the_stages_stay(toy: Path, own_run: Path, tmp_path: Path) -> None:
    (tmp_path / "bucket" / "pack").mkdir(parents=True)
    (tmp_path / "bucket" / "pack" / "tokenizer").write_text("no folder")
    before = hashes(own_run, "*/**/*")
    assert f"file://{tmp_path / 'bucket' / 'pack' / 'tokenizer'}" in refused(stored(toy, own_run, tmp_path / "bucket"))
    assert hashes(own_run, "*/**/*") == before
    assert stages_in(tmp_path / "bucket") == list(STAGES[:3])


@pytest.mark.usefixtures("no_s3fs")
def test_an_address_that_cannot_be_written_is_refused_before_anything_is_made(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    for address in (f"file://{tmp_path / 'file'}/runs", "nosuch://bucket/runs"):
        assert address in refused(stored(toy, tmp_path / "run", address))
    assert "Install s3fs" in refused(stored(toy, tmp_path / "run", "s3://bucket/runs"))
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert "pip install 'endtask[cloud]'" in refused(stored(toy, tmp_path / "run", "s3://bucket/runs"))
    assert stages_in(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://KEY:hunter2@bucket/runs", "holds credentials"),
        ("https://host/runs?X-Amz-Signature=hunter2", "holds credentials"),
        ("runs/elsewhere", "no address"),
        ("S3://KEY:hunter2@bucket/runs", "no address"),
        ("s3:/bucket/runs", "no address"),
    ],
)
def test_credentials_and_paths_are_refused(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        resolve({"cluster": {"storage": address}})
    assert "cluster.storage" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_experiments_have_no_address(toy: Path, tmp_path: Path) -> None:
    settings = resolve(stored(toy, tmp_path / "run", "memory://bucket/runs"))
    variants = {"variants": {"a": {"cluster.storage": "memory://bucket/a"}}}
    for experiment in (
        lambda: compare(settings, {}),
        lambda: compare(resolve(toy_settings(toy, tmp_path / "run")), {}, presets={"mine": settings}),
        lambda: compare(resolve(toy_settings(toy, tmp_path / "run")), variants),
        lambda: search(settings, GridSearch({"pretrain.learning_rate": (1e-3, 1e-4)})),
    ):
        with pytest.raises(InputError, match=r"cluster\.storage"):
            experiment()
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_stage_runs")
def test_s3(toy: Path, own_run: Path, s3: str, tmp_path: Path, finished_run: Path) -> None:
    assert "s3://absent/runs" in refused(stored(toy, tmp_path / "run", "s3://absent/runs"))
    endtask.run(stored(toy, own_run, f"{s3}/runs/mine"))
    endtask.run(stored(toy, tmp_path / "run", f"{s3}/runs/mine"))
    for stage in STAGES:
        assert hashes(tmp_path / "run" / stage) == hashes(finished_run / stage)
    system = fsspec.filesystem("s3")
    system.pipe_file(f"{s3}/runs/mine/{FILE}", b"{}")
    shutil.rmtree(tmp_path / "run")
    assert f"{s3}/runs/mine/{FILE}, key 'cluster.storage': damaged: " in refused(
        stored(toy, tmp_path / "run", f"{s3}/runs/mine")
    )
