"""Truncated, altered and malicious bundles raise errors of one line and leave no files behind."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.bundle.unpack import unbundle
from endtask.errors import InputError
from endtask.io.processes import run_lock
from tests.bundle.conftest import Bundled
from tests.toy_run import hashes

CONTENT = b"seed: 0\n"
KILLED = """
import os, signal, sys
from endtask.bundle.unpack import unbundle
calls, fsync, rename = 0, os.fsync, os.rename
def count(work):
    def counted(*arguments):
        global calls
        if calls == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return work(*arguments)
    return counted
os.fsync, os.rename = count(fsync), count(rename)
unbundle(sys.argv[1], sys.argv[2])
print(calls)
"""


MEMORY = """
import resource, sys
from pathlib import Path
from endtask.bundle.unpack import bundle_header
from endtask.errors import InputError
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
try:
    bundle_header(Path(sys.argv[1]))
except InputError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def member(name: str, content: bytes = CONTENT, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[Any, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
    return info, content


def header(*names: str, content: bytes = CONTENT, **changes: Any) -> tuple[Any, bytes]:
    files = {name: [len(content), hashlib.sha256(content).hexdigest()] for name in names}
    tree = {"format": 1, "endtask": "0.1.0", "kind": "tokens", "runs": ["."], "files": files, **changes}
    return member("bundle.json", json.dumps(tree).encode())


def write_archive(file: Path, *members: tuple[Any, bytes]) -> Path:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    file.write_bytes(zstandard.ZstdCompressor().compress(plain.getvalue()))
    return file


def refused(file: Path, folder: Path) -> str:
    """The one line; nothing may appear beside the bundle."""
    before = sorted(file.parent.iterdir())
    with pytest.raises(InputError) as caught:
        unbundle(file, folder / "new" / "there")
    assert sorted(file.parent.iterdir()) == before
    assert not list(folder.rglob("*"))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(file))
    return str(caught.value)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_a_bundle_of_one_file(tmp_path: Path) -> None:
    """What the harmful ones below are made from is taken."""
    file = write_archive(tmp_path / "x.tar.zst", header("a", "b/c"), member("a"))
    folder = unbundle(file, tmp_path / "there")
    assert (folder / "a").read_bytes() == (folder / "b" / "c").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "path",
    [
        "/etc/cron.d/x",
        "../x",
        "a/../../x",
        "a//x",
        "./x",
        "..",
        "",
        "a/",
        "C:/x",
        "C:x",
        "a\\..\\x",
        "a\0x",
        "bundle.json",
        "bundle.json/x",
        "a\nx",
        "a\x1b[2Jx",
        "a\udcffx",
        "x" * 256,
        "x/" * 600 + "x",
    ],
)
def test_paths_that_lead_out(tmp_path: Path, empty: Path, path: str) -> None:
    file = write_archive(tmp_path / "x.tar.zst", header(path), member("a"))
    assert "names a file outside of its folder" in refused(file, empty)


@pytest.mark.parametrize("run", ["../../elsewhere", "/runs/mine", "a\x1b[2J", "bundle.json"])
def test_runs_that_lead_out(tmp_path: Path, empty: Path, run: str) -> None:
    file = write_archive(tmp_path / "x.tar.zst", header("a", runs=[run]), member("a"))
    assert "names a file outside of its folder" in refused(file, empty)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "b"])
def test_files_that_the_list_does_not_name(tmp_path: Path, empty: Path, name: str) -> None:
    file = write_archive(tmp_path / "x.tar.zst", header("a"), member("a"), member(name))
    assert "does not match the bundle's header" in refused(file, empty)


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
        tarfile.CONTTYPE,
    ],
)
def test_links_devices_and_the_like(tmp_path: Path, empty: Path, kind: bytes) -> None:
    harmful = member("a", kind=kind, link="/etc/passwd")
    file = write_archive(tmp_path / "x.tar.zst", header("a"), harmful, member("a"))
    assert "contains something else than plain files" in refused(file, empty)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([header("a", "b"), member("a")], None),
        ([header("a"), member("a", b"seed: 1\n")], "'a' does not match the bundle's header"),
        ([header("a"), member("a", b"seed: 0\n\n")], "'a' does not match the bundle's header"),
        ([header("a")], "'a' is missing"),
        ([header("a"), member("a"), member("a")], "'a' does not match the bundle's header"),
        ([header("a", "a/b"), member("a")], "'a' is both a file and a folder"),
        ([member("a"), header("a")], "not a bundle, or a damaged one"),
        ([], "not a bundle, or a damaged one"),
        ([member("bundle.json", b"{")], "its list of files cannot be read"),
        ([member("bundle.json", b"[]")], "its list of files cannot be read"),
        ([member("bundle.json", b"[" * 100_000)], "its list of files cannot be read"),
        ([member("bundle.json", b'{"format": 1}')], "its list of files cannot be read"),
        ([header(files={"a": [-1, "00"]})], "its list of files cannot be read"),
        ([header(files={"a": ["1", "0" * 64]})], "its list of files cannot be read"),
        ([header(files={"a": [2**63, "0" * 64]})], "its list of files cannot be read"),
        ([header("a", runs=[])], "its list of files cannot be read"),
        ([header("a", runs="a")], "its list of files cannot be read"),
        ([header("a", runs=[["a"]])], "its list of files cannot be read"),
        ([header(*map(str, range(100_001)))], "names 100,001 files, more than the 100,000 of a bundle"),
        ([header("a", format=2, endtask="\x1b[2J" + "9" * 99)], "made by endtask '\\x1b[2J99"),
        (
            [header("a", format=2, endtask="9.0"), member("a")],
            "made by endtask 9.0 in format 2; this version reads format 1",
        ),
    ],
)
def test_lists_that_are_wrong(tmp_path: Path, empty: Path, members: list[Any], said: str | None) -> None:
    file = write_archive(tmp_path / "x.tar.zst", *members)
    if said is None:
        assert unbundle(file, empty / "there").is_dir()
    else:
        assert said in refused(file, empty)


def test_more_than_the_disk_holds(tmp_path: Path, empty: Path) -> None:
    file = write_archive(tmp_path / "x.tar.zst", header(files={"a": [10**18, "0" * 64]}))
    assert "needs 1,000,000,000,000 MB unpacked" in refused(file, empty)


def test_small_files_that_repeat_are_counted_each(tmp_path: Path, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied; large ones become links."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**5}))
    names = [str(number) for number in range(1000)]
    small = write_archive(tmp_path / "small.tar.zst", header(*names), member("0"))
    assert "needs 4 MB unpacked" in refused(small, empty)
    content = bytes(1 << 14)
    large = write_archive(tmp_path / "large.tar.zst", header(*names, content=content), member("0", content))
    assert len(list(unbundle(large, tmp_path / "there").iterdir())) == 1001


def test_a_file_made_to_take_memory(tmp_path: Path) -> None:
    """16 kB that become 512 MB are refused while little of them is unpacked."""
    compressor = zstandard.ZstdCompressor(level=19).compressobj()
    start = member("bundle.json", b"")[0]
    start.size = 1 << 29
    pieces = [compressor.compress(start.tobuf())]
    pieces += [compressor.compress(bytes(1 << 24)) for _ in range(32)]
    file = tmp_path / "x.tar.zst"
    file.write_bytes(b"".join([*pieces, compressor.flush()]))
    assert file.stat().st_size < 1 << 16
    words = [sys.executable, "-c", MEMORY, str(file)]
    before, after = map(int, subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    assert after - before < 150_000, "in kB"


def test_windows_larger_than_any_bundle_has(tmp_path: Path, empty: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=False, compression_level=1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for info, content in (header("a"), member("a")):
            archive.addfile(info, io.BytesIO(content))
    file = tmp_path / "x.tar.zst"
    file.write_bytes(compressor.compress(plain.getvalue()) + compressor.flush())
    assert "not a bundle, or a damaged one" in refused(file, empty)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.9999))
def test_cut_off_anywhere(bundled: Bundled, tmp_path: Path, share: float) -> None:
    content = bundled.tokens.read_bytes()
    file = tmp_path / "cut.tar.zst"
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=r"the file is cut off|not a bundle"):
        unbundle(file, tmp_path / "there")
    assert [entry.name for entry in tmp_path.iterdir()] == ["cut.tar.zst"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.9999), bit=st.integers(0, 7))
def test_altered_anywhere(bundled: Bundled, tmp_path: Path, share: float, bit: int) -> None:
    content = bytearray(bundled.tokens.read_bytes())
    content[int(share * len(content))] ^= 1 << bit
    file = tmp_path / "altered.tar.zst"
    file.write_bytes(bytes(content))
    complaint, folder = "", tmp_path / "there"
    try:
        unbundle(file, folder)
    except InputError as error:
        complaint = str(error)
    assert "\n" not in complaint
    if complaint:
        assert [entry.name for entry in tmp_path.iterdir()] == ["altered.tar.zst"]
    else:  # a bit that means nothing, such as an unused one in the frame's head
        expected = json.loads((folder / "bundle.json").read_bytes())["files"]
        assert {name: entry[1] for name, entry in expected.items()}.items() <= hashes(folder).items()
        shutil.rmtree(folder)


def test_something_behind_the_end(bundled: Bundled, tmp_path: Path, empty: Path) -> None:
    file = tmp_path / "longer.tar.zst"
    file.write_bytes(bundled.tokens.read_bytes() + zstandard.ZstdCompressor().compress(b"more"))
    assert "something follows the end of the bundle" in refused(file, empty)


def test_files_of_other_kinds(tmp_path: Path, empty: Path) -> None:
    (tmp_path / "run.tar.gz").write_bytes(b"")
    assert "not a bundle (its name ends in .tar.zst; endtask bundle makes one)" in refused(
        tmp_path / "run.tar.gz", empty
    )
    assert "no such file" in refused(tmp_path / "absent.tar.zst", empty)
    (tmp_path / "text.zst").write_bytes(zstandard.ZstdCompressor().compress(b"some text" * 100))
    assert "not a bundle, or a damaged one" in refused(tmp_path / "text.zst", empty)
    (tmp_path / "noise.zst").write_bytes(b"no frame at all")
    assert "not a bundle, or a damaged one" in refused(tmp_path / "noise.zst", empty)


def test_folders_that_hold_something_else(bundled: Bundled, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="the folder contains files that are not from this bundle"):
        unbundle(bundled.tokens, mine)
    assert [entry.name for entry in mine.iterdir()] == ["thesis.txt"]
    with pytest.raises(InputError, match="is a file"):
        unbundle(bundled.tokens, mine / "thesis.txt")
    with pytest.raises(InputError, match="not from this bundle"):
        unbundle(bundled.tokens, bundled.run)
    there = unbundle(bundled.tokens, tmp_path / "there")
    with pytest.raises(InputError, match=r"another bundle was unpacked here .*nothing was touched"):
        unbundle(bundled.text, there)


def test_links_to_folders(bundled: Bundled, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name in ("empty", "absent"):
        if name == "empty":
            (tmp_path / "disk" / name).mkdir()
        link = tmp_path / name
        link.symlink_to(tmp_path / "disk" / name)
        assert unbundle(bundled.tokens, link) == link
        assert link.is_symlink()
        assert (tmp_path / "disk" / name / "bundle.json").is_file()
        assert unbundle(bundled.tokens, link) == link, "it is there"


def test_places_where_nothing_can_be_unpacked(
    bundled: Bundled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "here").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.chdir(tmp_path / "here")
    said = {
        ".": "cannot unpack into the current folder",
        "../here": "cannot unpack into the current folder",
        "../file/below/it": "is a file",
        "../loop": "cannot unpack here",
        "../" + "x" * 256: "cannot unpack here: File name too long",
    }
    for place, line in said.items():
        with pytest.raises(InputError, match=line) as caught:
            unbundle(bundled.tokens, place)
        assert "\n" not in str(caught.value)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "here", "loop"]
    assert list((tmp_path / "here").iterdir()) == []


def test_two_processes_at_once(bundled: Bundled, tmp_path: Path) -> None:
    aside = tmp_path / ".there.unpacking"
    aside.mkdir()
    with run_lock(aside), pytest.raises(InputError, match="another process"):
        unbundle(bundled.tokens, tmp_path / "there")
    assert aside.exists(), "the work of the other one is left alone"


def test_another_version_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unbundle(write_archive(tmp_path / "x.tar.zst", header("a", endtask="0.0.9"), member("a")), tmp_path / "there")
    assert "warning: the bundle was made by endtask 0.0.9; this is" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_while_unpacking(bundled: Bundled, tmp_path: Path) -> None:
    """At the first file, in the middle, before and after the folder gets its name."""
    words = [sys.executable, "-c", KILLED, str(bundled.tokens)]
    ended = subprocess.run([*words, str(tmp_path / "whole"), "-1"], capture_output=True, text=True, check=True)
    calls = int(ended.stdout)
    expected = hashes(tmp_path / "whole")
    assert calls > 10
    for moment in (0, calls // 2, calls - 1):
        folder = tmp_path / f"killed-{moment}"
        killed = subprocess.run([*words, str(folder), str(moment)], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert not folder.exists()
        assert os.listdir(tmp_path / f".{folder.name}.unpacking")
        assert hashes(unbundle(bundled.tokens, folder)) == expected
        assert not (tmp_path / f".{folder.name}.unpacking").exists()
