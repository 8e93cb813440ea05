"""The contents of a bundle, and the errors before it is written."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import endtask
from endtask.bundle import unbundle, write_bundle
from endtask.bundle.archive import Header
from endtask.bundle.items import Item
from endtask.bundle.unpack import bundle_header
from endtask.bundle.write import Hashes, write_items
from endtask.config import SizeBudget
from endtask.errors import InputError
from tests.toy_run import hashes, toy_settings, write_rows

LARGE = SizeBudget.parse("1GB")


def test_what_is_in_it(finished_run: Path, tmp_path: Path) -> None:
    made = write_bundle(finished_run, tmp_path / "a.tar.zst")
    assert made.bytes == made.file.stat().st_size < 60_000
    header = bundle_header(made.file)
    assert (header.kind, header.runs) == ("tokens", (".",))
    assert {path.split("/")[0] for path in header.files} == {
        "settings.yaml", "read", "retrieve", "select", "pack", "external_inputs", "external_inputs.json",
    }  # fmt: skip
    assert [path for path in header.files if path.split("/")[0] in ("retrieve", "select")] == [
        "retrieve/manifest.json",
        "select/manifest.json",
    ]
    text = bundle_header(write_bundle(finished_run, tmp_path / "b.tar.zst", kind="text").file)
    assert "select/selection.parquet" in text.files
    assert not [path for path in text.files if path.startswith("pack/")]


def test_the_run_itself_is_not_touched(own_run: Path, tmp_path: Path) -> None:
    before = hashes(own_run)
    write_bundle(own_run, tmp_path / "a.tar.zst")
    assert hashes(own_run) == before
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_over_the_limit_nothing_is_written(own_run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        write_bundle(own_run, max_size=3000)
    line = str(caught.value)
    assert f"{own_run}.tar.zst: would be " in line
    assert "more than the limit of 3 kB; the largest parts: " in line
    assert "--max-size 1MB allows it" in line
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    assert write_bundle(own_run, max_size=10**6).file.exists()


@pytest.mark.parametrize(
    ("part", "way"),
    [
        (
            "tokens of the selection",
            "a smaller select.budget selects less; a larger tokenizer.vocab_size gives fewer tokens;",
        ),
        ("selected text", "a smaller select.budget selects less text;"),
        ("checkpoint", "a smaller model.path, or the same in half precision;"),
        ("task", "--max-size"),
    ],
)
def test_the_largest_part_and_what_shrinks_it(tmp_path: Path, part: str, way: str) -> None:
    noise = random.Random(0).randbytes(300_000)
    items = [Item("large", noise, part), Item("small", b"settings", "settings")]
    header = Header("0", "tokens", (".",), {item.path: Hashes().of(item) for item in items})
    with pytest.raises(InputError, match=rf"the largest parts: {part} [0-9.]+ kB, small files .* \({way}"):
        write_items(tmp_path / "a.tar.zst", header, items, 10_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "last"), [("tokens", "pack"), ("text", "select")])
def test_a_run_that_is_not_prepared(own_run: Path, kind: str, last: str) -> None:
    for stage in ("model", "evaluate", "finetune", "pretrain", "pack", "select"):
        shutil.rmtree(own_run / stage)
        if stage == last:
            break
    with pytest.raises(InputError, match=rf"the stage {last} has not finished \(endtask run .*run --until {last}\)"):
        write_bundle(own_run, kind=kind)  # type: ignore[arg-type]


def test_settings_that_changed_since(own_run: Path, toy: Path) -> None:
    tree = toy_settings(toy, own_run, tokenizer={"vocab_size": 77})
    (own_run / "settings.yaml").write_text(json.dumps(tree))
    with pytest.raises(InputError, match=r"settings or data changed since the stage pack was done .*--from pack"):
        write_bundle(own_run)


def test_a_task_that_changed_since(toy: Path, tmp_path: Path) -> None:
    shutil.copytree(toy, tmp_path / "toy")
    run = endtask.run(toy_settings(tmp_path / "toy", tmp_path / "run"), until="select").folder
    write_rows(tmp_path / "toy" / "task" / "dev.jsonl", [{"text": "soup", "label": "food"}])
    with pytest.raises(InputError, match="settings or data changed since the stage read was done"):
        write_bundle(run, kind="text")


def test_the_corpus_need_not_be_there_any_more(toy: Path, tmp_path: Path) -> None:
    shutil.copytree(toy, tmp_path / "toy")
    run = endtask.run(toy_settings(tmp_path / "toy", tmp_path / "run"), until="pack").folder
    (tmp_path / "toy" / "corpus.jsonl").unlink()
    there = unbundle(write_bundle(run).file, tmp_path / "there")
    assert (
        endtask.run(there, until="pack").stages["pack"]
        == json.loads((run / "pack/manifest.json").read_text())["counts"]
    )


def test_folders_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        write_bundle(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no run here"):
        write_bundle(tmp_path / "empty")


def test_names_that_cannot_be_written(own_run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not the name of a bundle \(use a name that ends in .tar.zst\)"):
        write_bundle(own_run, tmp_path / "run.zip")
    with pytest.raises(InputError, match="no such folder"):
        write_bundle(own_run, tmp_path / "absent" / "run.tar.zst")
    (tmp_path / "mine.zst").write_bytes(b"my own")
    with pytest.raises(InputError, match="the file exists and is not a bundle"):
        write_bundle(own_run, tmp_path / "mine.zst")
    assert (tmp_path / "mine.zst").read_bytes() == b"my own"
    first = write_bundle(own_run, tmp_path / "run.tar.zst", kind="text")
    assert write_bundle(own_run, tmp_path / "run.tar.zst").bytes != first.bytes, "a bundle may be made anew"


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    items = [Item("a", tmp_path / "a", "task")]
    header = Header("0", "tokens", (".",), {"a": Hashes().of(items[0])})
    for content in (b"after!", b"cut"):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(InputError, match="changed while it was read"):
            write_items(tmp_path / "x.tar.zst", header, items, LARGE)
    (tmp_path / "a").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        write_items(tmp_path / "x.tar.zst", header, items, LARGE)
    assert list(tmp_path.iterdir()) == []


def test_a_path_too_long_for_a_tar(tmp_path: Path) -> None:
    items = [Item(f"{'long' * 80}/x", b"content", "task")]
    header = Header("0", "tokens", (".",), {item.path: Hashes().of(item) for item in items})
    with pytest.raises(InputError, match="is not a valid name in a bundle: name is too long"):
        write_items(tmp_path / "x.tar.zst", header, items, LARGE)
