"""Streams of bytes from plain and compressed files: complete, damaged or missing."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.compression import (
    READ_FAILURES,
    bare_suffix,
    open_bytes,
    read_failure,
    without_compression,
)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"


def read_all(path: Path) -> bytes:
    with open_bytes(path) as file:
        try:
            return file.read()
        except READ_FAILURES as error:
            raise read_failure(error, path) from None


@pytest.mark.parametrize("suffix", COMPRESS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=5000))
def test_content_comes_back(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"file.bin{suffix}"
    path.write_bytes(COMPRESS[suffix](content))
    assert read_all(path) == content


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz", ".bz2"])
def test_joined_files_read_as_one(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"joined{suffix}"
    path.write_bytes(b"".join(COMPRESS[suffix](part) for part in (b"one\n", b"", b"two\n")))
    assert read_all(path) == b"one\ntwo\n"


def test_skippable_zstd_frames_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "file.zst"
    frame = COMPRESS[".zst"](b"one\n")
    path.write_bytes(SKIPPABLE_FRAME + frame + SKIPPABLE_FRAME + frame)
    assert read_all(path) == b"one\none\n"


def test_the_largest_zstd_windows_open(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=False, compression_level=1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "long.zst"
    path.write_bytes(compressor.compress(b"text") + compressor.flush())
    assert read_all(path) == b"text"


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz", ".bz2"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.floats(0, 0.999))
def test_a_cut_off_file_is_never_a_short_read(tmp_path: Path, suffix: str, kept: float) -> None:
    path = tmp_path / f"cut{suffix}"
    whole = COMPRESS[suffix](os.urandom(3000))
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(InputError, match=r"the file is cut off|cannot be decompressed"):
        read_all(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz", ".bz2"])
def test_garbage_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"garbage{suffix}"
    path.write_bytes(b"this was never compressed")
    with pytest.raises(InputError, match="cannot be decompressed"):
        read_all(path)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_progress_adds_up_to_the_size_on_disk(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(COMPRESS[suffix](os.urandom(3_000_000)))
    counts: list[int] = []
    with open_bytes(path, counts.append) as file:
        for _ in file:
            pass
    assert sum(counts) == path.stat().st_size
    assert len(counts) > 2


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_the_file_below_is_closed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(COMPRESS[suffix](b"text"))
    opened = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    with open_bytes(path) as file:
        assert file.read() == b"text"
    assert file.closed
    if opened:
        assert len(os.listdir("/proc/self/fd")) <= len(opened)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.gz: no such file"):
        open_bytes(tmp_path / "absent.gz")
    with pytest.raises(InputError, match="is a folder"):
        open_bytes(tmp_path)
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        open_bytes(tmp_path / ("x" * 300))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_forbidden_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_text("text\n")
    path.chmod(0)
    with pytest.raises(InputError, match="may not be read"):
        open_bytes(path)


def test_a_failing_disk_is_told_in_one_line() -> None:
    error = read_failure(OSError(errno.EIO, "Input/output error"), Path("a.csv"), 7)
    assert str(error) == "a.csv, row 7: cannot be read: Input/output error"


@pytest.mark.parametrize(
    ("name", "bare", "suffix"),
    [
        ("a.csv", "a.csv", ".csv"),
        ("a.JSONL.ZST", "a.JSONL", ".jsonl"),
        ("a.tar.gz.zst", "a.tar.gz", ".gz"),
        ("gz", "gz", ""),
    ],
)
def test_suffixes(name: str, bare: str, suffix: str) -> None:
    assert without_compression(name) == bare
    assert bare_suffix(Path(name)) == suffix
