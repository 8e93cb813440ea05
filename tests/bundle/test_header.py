"""The file list of a bundle: it is read back as written, and paths cannot leave the folder."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.bundle.archive import Entry, Header, is_safe, parse_header

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join).filter(is_safe)
ENTRIES = st.builds(Entry, st.integers(0, 2**40), st.binary(min_size=32, max_size=32).map(bytes.hex))


def no_file_is_a_folder(files: dict[str, Entry]) -> bool:
    return not any(other.startswith(f"{path}/") for path in files for other in files)


@settings(max_examples=100, deadline=None)
@given(files=st.dictionaries(PATHS, ENTRIES, max_size=6).filter(no_file_is_a_folder))
def test_there_and_back(files: dict[str, Entry]) -> None:
    header = Header("0.1.0", "text", (".",), files)
    assert parse_header(header.to_bytes(), "x") == header


@settings(max_examples=100, deadline=None)
@given(files=st.dictionaries(PATHS, st.sampled_from([Entry(1, "aa"), Entry(2, "bb")]), max_size=8))
def test_each_content_has_one_member(files: dict[str, Entry]) -> None:
    header = Header("0.1.0", "text", (".",), files)
    assert sorted([*header.members, *(path for others in header.members.values() for path in others)]) == sorted(files)
    assert len(header.members) == len(set(files.values()))
    assert all(files[path] == files[other] for path, others in header.members.items() for other in others)


@settings(max_examples=300, deadline=None)
@given(path=st.lists(st.sampled_from(["..", ".", "", "a", "b", "C:", "\\", "bundle.json"]), max_size=5).map("/".join))
def test_a_safe_path_stays_below(path: str) -> None:
    root = Path("/there/is")
    if is_safe(path):
        assert root in (root / path).resolve().parents
