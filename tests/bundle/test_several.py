"""Several runs in one bundle: shared files are stored once and restored as hard links."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from endtask.bundle import unbundle, write_bundle
from endtask.bundle.archive import HEADER, parse_header
from endtask.bundle.unpack import bundle_header
from endtask.config import resolve
from endtask.config.loading import merge
from endtask.errors import InputError
from endtask.experiments.stage_reuse import reuse_stages
from endtask.io.atomic import write_json
from endtask.pipeline.run import Run
from tests.experiments.search_stubs import Stubs
from tests.toy_run import hashes, toy_settings, write_toy

LARGE = "many words\n" * 5000


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs().install(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "data")


def make_run(data: Path, folder: Path, **changes: Any) -> Run:
    tree = toy_settings(data, folder, device="auto")
    merge(tree, changes)
    return Run(resolve(tree))


@pytest.fixture
def comparison(data: Path, tmp_path: Path, stubs: Stubs) -> Path:
    """Two variants with two seeds each; one cell has a pack of its own."""
    folder = tmp_path / "compared"
    first = make_run(data, folder / "variants" / "a" / "seed-0")
    first.execute(until="select")
    first.execute(until="pack")
    (first.folder / "pack" / "tokens.bin").write_text(LARGE)
    variants = {"a/seed-1": {"pretrain": {"seed": 1}}, "b/seed-0": {"tokenizer": {"vocab_size": 99}}}
    for name, changes in variants.items():
        run = make_run(data, folder / "variants" / name, **changes)
        reuse_stages(run, [first.folder])
        run.execute(until="pack")
    write_json(folder / "compare.json", {"asked": "much"})
    (folder / "compare.html").write_text("made anew")
    (folder / ".lock").write_text("")
    return folder


def members(bundle: Path) -> list[str]:
    """As any other program sees it."""
    plain = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(bundle.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        return archive.getnames()


def test_what_runs_share_is_there_once(comparison: Path, tmp_path: Path) -> None:
    tokenizer = comparison / "tokenizer" / "settings.yaml"  # of a shared tokenizer, an input of the runs
    tokenizer.parent.mkdir()
    tokenizer.write_bytes((comparison / "variants" / "a" / "seed-0" / "settings.yaml").read_bytes())
    made = write_bundle(comparison)
    assert made.file == tmp_path / "compared.tar.zst"
    assert made.runs == ("variants/a/seed-0", "variants/a/seed-1", "variants/b/seed-0")
    stored = members(made.file)
    assert stored[0] == "bundle.json"
    assert [name for name in stored if name.endswith("pack/tokens.bin")] == ["variants/a/seed-0/pack/tokens.bin"]
    folder = unbundle(made.file, tmp_path / "there")
    tokens = [folder / "variants" / "a" / seed / "pack" / "tokens.bin" for seed in ("seed-0", "seed-1")]
    assert tokens[0].samefile(tokens[1])
    assert tokens[0].read_text() == LARGE
    settings = [folder / run / "settings.yaml" for run in made.runs]
    assert not settings[0].samefile(settings[1]), "whoever edits one edits one"


def test_all_runs_go_on(comparison: Path, data: Path, tmp_path: Path, stubs: Stubs) -> None:
    folder = unbundle(write_bundle(comparison).file, tmp_path / "there")
    for file in sorted(data.rglob("*.jsonl")):
        file.unlink()
    stubs.calls.clear()
    for place in ("a/seed-0", "a/seed-1", "b/seed-0"):
        changes = {"a/seed-1": {"pretrain": {"seed": 1}}, "b/seed-0": {"tokenizer": {"vocab_size": 99}}}.get(place, {})
        make_run(data, folder / "variants" / place, **changes).execute(until="pretrain")
    assert stubs.calls == ["seed-0 pretrain", "seed-1 pretrain", "seed-0 pretrain"]
    new = make_run(data, folder / "variants" / "c" / "seed-0", pretrain={"weighting": {"rho1": 3}})
    given = reuse_stages(new, [folder / "variants" / "a" / "seed-0"])
    assert list(given) == ["read", "retrieve", "select", "pack"]
    new.execute(until="pretrain")
    header = parse_header((folder / HEADER).read_bytes(), HEADER)
    assert header.runs[0] == "variants/a/seed-0"


def test_records_beside_the_runs_travel_and_pages_do_not(comparison: Path, tmp_path: Path) -> None:
    folder = unbundle(write_bundle(comparison).file, tmp_path / "there")
    assert (folder / "compare.json").read_bytes() == (comparison / "compare.json").read_bytes()
    beside = sorted(entry.name for entry in folder.iterdir())
    assert beside == ["bundle.json", "compare.json", "external_inputs", "external_inputs.json", "variants"]


def test_nothing_else_beside_the_runs_travels(comparison: Path, tmp_path: Path) -> None:
    for place in (comparison, comparison / "variants", comparison / "corpus" / "deep"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("credentials.json", "corpus.jsonl", "notes.yaml", "search.json"):
            (place / name).write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (comparison / "variants" / "a" / "compare.json").symlink_to(tmp_path / "secret.json")
    header = bundle_header(write_bundle(comparison).file)
    beside = [path for path in header.files if "/seed-" not in path and not path.startswith("external_inputs")]
    assert beside == ["compare.json", "search.json", "variants/search.json"]


def test_a_run_too_deep_to_find_its_data_again(comparison: Path, data: Path) -> None:
    deep = make_run(data, comparison / "variants" / "a" / "deeper" / "seed-0")
    deep.execute(until="select")
    with pytest.raises(InputError, match=r"variants/a/deeper/seed-0: the run is over 3 folders below"):
        write_bundle(comparison)
    assert not comparison.with_name("compared.tar.zst").exists()


@pytest.mark.parametrize("name", ["a\\b", "a\nb", "bundle.json"])
def test_names_that_whoever_unpacks_would_refuse(comparison: Path, name: str) -> None:
    (comparison / "variants" / "a").rename(comparison / name)
    with pytest.raises(InputError, match="is not a valid name in a bundle") as caught:
        write_bundle(comparison)
    assert str(caught.value).isprintable()


def test_without_hard_links_there_are_copies(comparison: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    made = write_bundle(comparison)
    monkeypatch.setattr(os, "link", link)
    folder = unbundle(made.file, tmp_path / "there")
    tokens = [folder / "variants" / "a" / seed / "pack" / "tokens.bin" for seed in ("seed-0", "seed-1")]
    assert not tokens[0].samefile(tokens[1])
    assert tokens[0].read_bytes() == tokens[1].read_bytes()


def test_a_run_that_is_not_far_enough_is_named(
    comparison: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = make_run(data, comparison / "variants" / "late" / "seed-0", select={"budget": "20%"})
    late.execute(until="select")
    made = write_bundle(comparison)
    assert "variants/late/seed-0: the stage pack has not finished" in " ".join(capsys.readouterr().err.split())
    folder = unbundle(made.file, tmp_path / "there")
    assert (folder / "variants" / "late" / "seed-0" / "select" / "output.txt").exists(), "pack can be done there"
    assert not (folder / "variants" / "late" / "seed-0" / "retrieve" / "output.txt").exists()


def test_runs_made_from_different_versions_of_the_corpus(comparison: Path, data: Path) -> None:
    with open(data / "corpus.jsonl", "a") as file:
        file.write('{"text": "one more"}\n')
    make_run(data, comparison / "variants" / "z" / "seed-0").execute(until="pack")
    with pytest.raises(InputError, match=r"variants/z/seed-0: the corpus \(.*corpus.jsonl\) changed since an earlier"):
        write_bundle(comparison)
    assert not comparison.with_name("compared.tar.zst").exists()


def test_the_same_content_gives_the_same_bytes(comparison: Path, tmp_path: Path) -> None:
    first, second = (write_bundle(comparison, tmp_path / f"{name}.tar.zst").file for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
    folder = unbundle(first, tmp_path / "there")
    before = hashes(folder)
    assert unbundle(second, folder) == folder, "the same bundle under another name"
    assert hashes(folder) == before
