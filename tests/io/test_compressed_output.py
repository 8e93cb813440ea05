"""Compressed output can be read back, and is complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endtask.io.compression import atomic_compressed_file, open_bytes

NAMES = ["plain.txt", "a.txt.gz", "a.txt.zst", "a.txt.xz", "A.TXT.GZ"]


@pytest.mark.parametrize("name", NAMES)
@given(parts=st.lists(st.binary(max_size=2000), min_size=1, max_size=5))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tmp_path: Path, name: str, parts: list[bytes]) -> None:
    with atomic_compressed_file(tmp_path / name) as stream:
        for part in parts:
            stream.write(part)
    with open_bytes(tmp_path / name) as file:
        assert file.read() == b"".join(parts)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_content_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    contents = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        with atomic_compressed_file(tmp_path / folder / name) as stream:
            stream.write(b"text " * 100)
        contents.append((tmp_path / folder / name).read_bytes())
    assert contents[0] == contents[1]
    assert (len(contents[0]) < 500) == (name != "plain.txt")


@pytest.mark.parametrize("name", NAMES)
def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path, name: str) -> None:
    def broken() -> None:
        with atomic_compressed_file(tmp_path / name) as stream:
            stream.write(b"half")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        broken()
    assert list(tmp_path.iterdir()) == []
