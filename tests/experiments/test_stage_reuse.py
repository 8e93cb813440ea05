"""Stages shared between runs: only equal and complete ones, without a second copy on disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from endtask.config import resolve
from endtask.errors import InputError
from endtask.experiments.stage_reuse import is_reused, reuse_data, reuse_stages
from endtask.io.processes import run_lock
from endtask.io.stage_files import read_manifest
from endtask.pipeline.run import Run
from tests.experiments.search_stubs import Stubs
from tests.toy_run import hashes, toy_settings

BEFORE_TRAINING = ["read", "retrieve", "select", "pack"]


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs().install(monkeypatch)


@pytest.fixture
def make(toy: Path, tmp_path: Path, stubs: Stubs) -> Any:
    def run(name: str, **changes: Any) -> Run:
        return Run(resolve(toy_settings(toy, tmp_path / name, **{"device": "auto", **changes})))

    return run


@pytest.fixture
def source(make: Any) -> Path:
    run: Run = make("source")
    return run.execute(until="pack").folder


def test_equal_stages_are_linked_and_not_done_again(make: Any, source: Path, stubs: Stubs) -> None:
    target: Run = make("target", pretrain={"weighting": {"rho1": 3}, "max_length": 16})
    assert reuse_stages(target, [source]) == dict.fromkeys(BEFORE_TRAINING, source)
    for stage in BEFORE_TRAINING:
        manifest = read_manifest(target.folder / stage)
        assert manifest is not None
        assert manifest["reused_from"] == "../source"
        assert is_reused(target.folder / stage)
        assert not is_reused(source / stage)
    files = [name for name in hashes(source / "pack") if name != "manifest.json"]
    assert sorted(files) == ["output.txt", "tokenizer/tokenizer.json"]
    assert all((target.folder / "pack" / name).samefile(source / "pack" / name) for name in files)
    stubs.calls.clear()
    target.execute(until="finetune")
    assert stubs.calls == ["target pretrain", "target finetune"]
    assert not is_reused(target.folder / "pretrain")
    assert reuse_stages(target, [source]) == {}


def test_sharing_ends_where_settings_differ(make: Any, source: Path) -> None:
    target: Run = make("target", select={"budget": "20%"})
    assert list(reuse_stages(target, [source])) == ["read", "retrieve"]
    assert not (target.folder / "select").exists()


def test_of_several_sources_each_stage_comes_from_the_first_that_has_it(make: Any, source: Path) -> None:
    other: Run = make("other", tokenizer={"vocab_size": 100})
    other.execute(until="pretrain")
    target: Run = make("target", tokenizer={"vocab_size": 100})
    given = reuse_stages(target, [source, other.folder])
    assert [folder.name for folder in given.values()] == ["source", "source", "source", "other", "other"]


def test_what_is_redone_in_one_run_stays_in_the_other(make: Any, source: Path) -> None:
    target: Run = make("target")
    reuse_stages(target, [source])
    before = hashes(target.folder / "pack")
    shutil.rmtree(source)
    assert hashes(target.folder / "pack") == before


def test_another_disk_gets_copies(make: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    target: Run = make("target")
    assert list(reuse_stages(target, [source])) == BEFORE_TRAINING
    copy, original = target.folder / "pack" / "output.txt", source / "pack" / "output.txt"
    assert not copy.samefile(original)
    assert copy.read_bytes() == original.read_bytes()


@pytest.mark.parametrize("at", [0, 3])
def test_a_kill_while_linking_leaves_no_stage(
    make: Any, source: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    link, done = os.link, 0

    def killed(*places: Any) -> None:
        nonlocal done
        if done == at:
            raise KeyboardInterrupt
        done += 1
        link(*places)

    monkeypatch.setattr(os, "link", killed)
    target: Run = make("target")
    with pytest.raises(KeyboardInterrupt):
        reuse_stages(target, [source])
    monkeypatch.setattr(os, "link", link)
    again: Run = make("target")
    reuse_stages(again, [source])
    assert all(again.stage_folders()[stage].is_finished() for stage in BEFORE_TRAINING)
    assert hashes(again.folder / "pack", "*.txt", "*/*") == hashes(source / "pack", "*.txt", "*/*")
    assert not list(again.folder.glob("*.partial"))


def test_own_work_is_never_replaced(make: Any, source: Path, stubs: Stubs) -> None:
    target: Run = make("target")
    stubs.trouble["target pack"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        target.execute(until="pack")
    assert reuse_stages(target, [source]) == {}
    assert (target.folder / "pack.partial").exists()
    changed: Run = make("target", select={"budget": "20%"})
    assert reuse_stages(changed, [source]) == {}
    assert not is_reused(target.folder / "select")


def test_a_folder_of_other_things_is_left_to_the_run(make: Any, source: Path) -> None:
    target: Run = make("target")
    target.folder.mkdir()
    (target.folder / "thesis.txt").write_text("mine")
    assert reuse_stages(target, [source]) == {}
    assert [entry.name for entry in target.folder.iterdir()] == ["thesis.txt"]
    with pytest.raises(InputError, match="has other files"):
        target.execute(until="pack")


def test_a_run_at_work_is_left_alone(make: Any, source: Path) -> None:
    target: Run = make("target")
    target.folder.mkdir()
    with run_lock(target.folder), pytest.raises(InputError, match="another process"):
        reuse_stages(target, [source])


def test_a_run_that_reads_the_corpus_borrows_none_from_one_that_does_not(make: Any) -> None:
    domain = {"kind": "mlm", "texts": "domain"}
    unread, read, same = (
        make(name, select={"name": "none"}, pretrain={"weighting": "equal", "max_length": 16, "objectives": objectives})
        for name, objectives in (
            ("unread", {"task": {"kind": "task"}, "dapt": {**domain, "weight": 0}}),
            ("read", {"task": {"kind": "task"}, "dapt": domain}),
            ("same", {"dapt": domain}),
        )
    )
    reuse_data(unread, read)
    assert unread.corpus is None
    assert read.corpus is not None
    reuse_data(read, same)
    assert same.corpus is read.corpus
