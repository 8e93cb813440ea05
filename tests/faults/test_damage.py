"""Every file of a finished run, damaged in every way: `verify` names it, and readers refuse it or are not misled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import endtask
from benchmarks.robustness.damages import DAMAGES, damage, damaged, files_of_stages, linked_copy
from endtask.bundle.write import write_bundle
from endtask.errors import InputError
from endtask.io.stage_files import MANIFEST, DamagedFile, read_manifest
from endtask.pipeline.verify import verify
from endtask.progress import set_quiet
from endtask.reporting.page import write_report
from endtask.reporting.results import results_of
from tests.conftest import Answer
from tests.toy_run import hashes, results

Reader = Callable[[Path], object]


def cases(run: Path) -> Iterator[tuple[Path, str, Random]]:
    """Yield each file of a run with each kind of damage."""
    for file in files_of_stages(run):
        for kind in DAMAGES:
            yield file, kind, Random(f"{file} {kind}")


@pytest.fixture
def copy(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run whose files may be replaced, but not written into."""
    set_quiet(True)
    return linked_copy(finished_run, tmp_path / "copy")


def test_verify_names_every_damaged_file(copy: Path) -> None:
    assert verify(copy).damaged == []
    for number, (file, kind, random) in enumerate(cases(copy)):
        if number % 5 and file.parts[0] != "pack":  # each file with one kind or two
            continue
        with damaged(copy / file, kind, random):
            found = verify(copy)
        assert [entry.file for entry in found.damaged] == [str(copy / file)], (file, kind)
        assert found.damaged[0].stage == file.parts[0]
        assert str(found.damaged[0].redo).startswith(f"endtask run {copy} --from {file.parts[0]}")


def page(run: Path) -> str:
    return write_report(run).read_text(encoding="utf-8")


def bundle(run: Path) -> bytes:
    return write_bundle(run, run.with_name("bundle.tar.zst")).file.read_bytes()


def run_again(run: Path) -> dict[str, str]:
    endtask.run(run)
    return results(run)


def outcome(reader: Reader, run: Path) -> object:
    """Return what a reader returns, or the error with which it refuses a run."""
    try:
        return reader(run)
    except InputError as error:
        return error


@pytest.mark.parametrize(("reader", "every"), [(page, 18), (results_of, 12), (bundle, 12), (run_again, 12)])
def test_readers_refuse_damage_or_do_not_read_it(copy: Path, reader: Reader, every: int) -> None:
    expected, refused = reader(copy), 0
    for number, (file, kind, random) in enumerate(cases(copy)):
        if number % every and (file.name != MANIFEST or kind == "append"):
            continue
        with damaged(copy / file, kind, random):
            found = outcome(reader, copy)
        if found != expected:
            assert isinstance(found, InputError), (file, kind)
            assert "\n" not in str(found)
            assert str(copy / file) in str(found), (file, kind)
            refused += 1
    assert refused >= 15  # those of the manifests


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", MANIFEST])
def test_a_damaged_model_does_not_predict(copy: Path, name: str) -> None:
    damage(copy / "model" / name, "flip", Random(name))
    with pytest.raises(DamagedFile, match=f"{name}: damaged: .*--from model makes it again"):
        endtask.load(copy)


@pytest.mark.parametrize("stage", ["retrieve", "pack", "finetune"])
def test_redoing_the_stage_heals_the_run(finished_run: Path, copy: Path, stage: str) -> None:
    """`--from STAGE` works whatever is damaged there, and ends in the same bits."""
    files = [file for file in files_of_stages(copy) if file.parts[0] == stage]
    for number, file in enumerate(files):
        damage(copy / file, list(DAMAGES)[number % len(DAMAGES)], Random(number))
    with pytest.raises(DamagedFile):
        endtask.run(copy)
    endtask.run(copy, start=stage)
    assert results(copy) == results(finished_run)
    assert verify(copy).damaged == []


def test_a_stage_does_not_read_damaged_tokens(copy: Path) -> None:
    for name in ("pretrain", "finetune", "evaluate", "model"):
        shutil.rmtree(copy / name)
    damage(copy / "pack" / "selection" / "tokens.bin", "zero", Random(0))
    before = hashes(copy, "*/**/*")
    with pytest.raises(DamagedFile, match=r"tokens.bin: damaged: its content is not what the stage pack wrote"):
        endtask.run(copy)
    assert hashes(copy, "*/**/*") == before


def test_a_changed_number_in_a_manifest_is_damage(copy: Path) -> None:
    path = copy / "finetune" / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["counts"]["seeds"][0]["seed"] = 7
    path.unlink()
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DamagedFile, match="its content changed since it was written"):
        read_manifest(path.parent)


def test_settings_that_no_stage_was_made_with(copy: Path, command: Callable[..., Answer]) -> None:
    path = copy / "settings.yaml"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    path.write_text(text.replace("batch_size: 16", "batch_size: 17"), encoding="utf-8")
    answer = command("verify", path.parent, "--json")
    assert answer.code == 1
    (found,) = json.loads(answer.out)["damaged"]
    assert found["file"] == str(path)
    assert "finetune.batch_size (16 -> 17)" in found["problem"]
    answer = command("report", path.parent)
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_the_command(finished_run: Path, copy: Path, command: Callable[..., Answer]) -> None:
    answer = command("verify", finished_run)
    assert (answer.code, answer.errors) == (0, ["verify"])
    assert answer.out.startswith(f"{finished_run}: 8 stages, ")
    assert answer.out.endswith(": no damage\n")
    damage(copy / "evaluate" / "results.json", "flip", Random(0))
    answer = command("verify", copy.parent, "--quiet")
    assert (answer.code, answer.err) == (1, "")
    first, last = answer.out.splitlines()
    assert first.startswith(f"{copy}/evaluate/results.json: damaged: its content is not what the stage evaluate wrote")
    assert last.endswith(": 1 damaged")
    assert command("verify", finished_run.parent / "absent").code == 2
