"""The user's paths become named sources with their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.config import SourceSettings
from endtask.corpus.sources import Source, derived_name, find_files, find_sources, parse_source
from endtask.errors import InputError


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"text": "a"}\n')


def find(*paths: str | Path) -> tuple[Source, ...]:
    return find_sources([parse_source(str(path)) for path in paths])


def summary(sources: tuple[Source, ...]) -> dict[str, list[str]]:
    return {source.name: [file.label for file in source.files] for source in sources}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("wikipedia_2019_pages-00.jsonl.zst", "wikipedia_2019_pages"),
        ("wiki.en.txt", "wiki.en"),
        ("train-00001-of-00005.parquet", "train"),
        ("train-00001-of-00005-0123456789abcdef.parquet", "train"),
        ("news_2019.csv.gz", "news_2019"),
        ("-01.jsonl", "-01"),
        ("00.jsonl", "00"),
    ],
)
def test_names_from_files(file: str, name: str) -> None:
    assert derived_name(Path("folder", file)) == name


def test_a_glob_gives_a_source_per_name_in_order(tmp_path: Path) -> None:
    make(tmp_path, "b-01.jsonl", "a.jsonl", "b-00.jsonl", "B.csv", "note.doc")
    assert summary(find(tmp_path / "*")) == {
        "B": ["B.csv"],
        "a": ["a.jsonl"],
        "b": ["b-00.jsonl", "b-01.jsonl"],
    }


def test_a_glob_may_go_down(tmp_path: Path) -> None:
    make(tmp_path, "x/one.jsonl", "x/y/two.jsonl", "three.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    labels = [label for found in summary(find(tmp_path / "**/*.jsonl")).values() for label in found]
    assert labels == ["three.jsonl", "x/one.jsonl", "x/y/two.jsonl"]


def test_a_folder_is_searched_and_what_is_unknown_is_counted(tmp_path: Path) -> None:
    make(tmp_path, "sub/b.md", "a.txt", "t.csv.zst", "z.odt", "sub/z.doc", ".git/c.txt", ".hidden.txt")
    sources = find(tmp_path)
    assert summary(sources) == {tmp_path.name: ["a.txt", "sub/b.md"], "t": ["t.csv.zst"]}
    assert [name for source in sources for name in source.unread] == ["sub/z.doc", "z.odt"]


def test_a_given_name_holds_all_its_files(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", "b.jsonl")
    assert summary(find(f"mine={tmp_path}")) == {"mine": ["a.jsonl", "b.jsonl"]}


def test_a_text_file_alone_is_named_after_itself(tmp_path: Path) -> None:
    make(tmp_path, "notes.txt")
    assert summary(find(tmp_path / "notes.txt")) == {"notes": ["notes.txt"]}


def test_shards_listed_one_by_one_are_one_source(tmp_path: Path) -> None:
    make(tmp_path, "w-00.jsonl", "w-01.jsonl", "other/w-00.jsonl")
    found = find(tmp_path / "w-00.jsonl", tmp_path / "w-01.jsonl", tmp_path / "other/w-00.jsonl")
    assert summary(found) == {"w": ["w-00.jsonl", "w-01.jsonl", "w-00.jsonl~2"]}


def test_derived_names_make_way(tmp_path: Path) -> None:
    make(tmp_path, "x/a.jsonl", "y/a.jsonl", "z/a.jsonl")
    entries = [
        SourceSettings(path=str(tmp_path / "x/a.jsonl")),
        SourceSettings(path=str(tmp_path / "y/a.jsonl"), text="body"),
        SourceSettings(path=str(tmp_path / "z/a.jsonl"), name="a"),
    ]
    assert [source.name for source in find_sources(entries)] == ["a-2", "a-3", "a"]


def test_a_file_stands_under_its_first_mention(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", "b.jsonl")
    assert summary(find(f"special={tmp_path}/b.jsonl", tmp_path)) == {
        "special": ["b.jsonl"],
        "a": ["a.jsonl"],
    }
    with pytest.raises(InputError, match="all its files are named by an earlier source"):
        find(tmp_path, tmp_path / "a.jsonl")


def test_hub_and_docstrings_need_no_file() -> None:
    found = find("hf:org/wiki:en", "hf:org/wiki:de", "docstrings", "d=docstrings")
    assert [source.name for source in found] == ["wiki", "wiki-2", "docstrings", "d"]
    assert not any(source.files for source in found)


def test_a_name_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "year=2019/a.jsonl")
    assert parse_source("wiki=data.csv") == SourceSettings(name="wiki", path="data.csv")
    assert parse_source("w=hf:org/name") == SourceSettings(name="w", path="hf:org/name")
    assert parse_source("year=2019/a.jsonl") == SourceSettings(path="year=2019/a.jsonl")
    assert parse_source("year=*/*.jsonl") == SourceSettings(path="year=*/*.jsonl")
    assert parse_source("a/b=c.csv") == SourceSettings(path="a/b=c.csv")


def test_a_file_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    make(tmp_path, "a[1].jsonl")
    assert [file.label for file in find_files(str(tmp_path / "a[1].jsonl")).files] == ["a[1].jsonl"]


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make(tmp_path, "a.jsonl")
    for path in ("~/a.jsonl", "~/*.jsonl"):
        assert [file.path for file in find_files(path).files] == [tmp_path / "a.jsonl"]


def test_links_to_nothing_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "absent.jsonl")
    assert summary(find(tmp_path)) == summary(find(tmp_path / "*")) == {"a": ["a.jsonl"]}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("wikipdia.jsonl", r"wikipdia\.jsonl: no such file or folder \(did you mean 'wikipedia\.jsonl'\?\)"),
        ("absent/file.jsonl", r"absent/file\.jsonl: no such file or folder"),
        ("*.csv", r"\*\.csv: no file matches"),
        ("*.doc", r"\*\.doc: no file of a known kind \(known: \.csv"),
        ("note.doc", r"note\.doc: unknown kind of file \(known: \.csv"),
        ("empty", "empty: no file"),
        ("only_doc", "only_doc: no file of a known kind"),
    ],
)
def test_wrong_paths_are_named(tmp_path: Path, path: str, message: str) -> None:
    make(tmp_path, "wikipedia.jsonl", "note.doc", "only_doc/x.doc")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        find(tmp_path / path)


def test_nothing_given_and_names_twice(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", "b.jsonl")
    with pytest.raises(InputError, match="no corpus given"):
        find()
    with pytest.raises(InputError, match="the path of a source is empty"):
        find("")
    with pytest.raises(InputError, match="two sources are named 'x'"):
        find(f"x={tmp_path}/a.jsonl", f"x={tmp_path}/b.jsonl")
