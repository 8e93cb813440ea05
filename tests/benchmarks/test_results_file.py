"""All benchmark results have the same format."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results_file import RESULTS, read_results, this_machine, write_results
from endtask.errors import InputError
from studies.stored_results import PACKED, read_tree

ROWS = [{"engine": "bm25s", "seconds": 1.5}, {"engine": "bm25s", "seconds": 1.25, "note": None}]
SUMMARY = {"best_seconds": 1.25}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = write_results("some_speed", "python -m benchmarks.some_speed", ROWS, SUMMARY, folder=tmp_path)
    results = read_results("some_speed", folder=tmp_path)
    assert path == tmp_path / "some_speed.json"
    assert (results.rows, results.summary) == (ROWS, SUMMARY)
    assert results.command == "python -m benchmarks.some_speed"
    assert results.machine == this_machine()
    assert {"python", "endtask", "torch", "numpy"} <= results.versions.keys()
    assert abs((date.today() - results.date).days) <= 1


def test_the_file_has_exactly_the_six_keys(tmp_path: Path) -> None:
    path = write_results("some_speed", "command", ROWS, SUMMARY, folder=tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert list(content) == ["command", "machine", "versions", "date", "rows", "summary"]
    assert set(content["machine"]) == {"cpu", "cores", "memory_gb", "gpu"}


@pytest.mark.parametrize("name", ["", "Some", "a/b", "../a", "a b", "a__b", "a.json"])
def test_a_strange_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a results file"):
        write_results(name, "command", ROWS, SUMMARY, folder=tmp_path)


@pytest.mark.parametrize(
    ("rows", "summary", "part"),
    [
        ([], SUMMARY, "'rows'"),
        (ROWS, {}, "'summary'"),
        ([{"path": Path("a")}], SUMMARY, "'rows.0"),
        ([{"seconds": float("nan")}], SUMMARY, "rows.0.seconds.* finite number"),
        (ROWS, {"best": float("inf")}, "summary.best.* finite number"),
    ],
)
def test_wrong_measurements_are_refused_and_the_old_file_stays(
    tmp_path: Path, rows: list[dict[str, Any]], summary: dict[str, Any], part: str
) -> None:
    path = write_results("some_speed", "command", ROWS, SUMMARY, folder=tmp_path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=part):
        write_results("some_speed", "command", rows, summary, folder=tmp_path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"rows": None}, "'rows'"),
        ({"extra": 1}, "'extra'"),
        ({"date": "yesterday"}, "'date'"),
        ({"machine": {"cpu": "x"}}, "'machine.cores'"),
        ({"command": ""}, "'command'"),
    ],
)
def test_a_file_of_another_form_is_named(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    path = write_results("some_speed", "command", ROWS, SUMMARY, folder=tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_results("some_speed", folder=tmp_path)
    assert str(caught.value).startswith(f"{path}, key {key}: not a results file")


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"command": ', encoding="utf-8")
    with pytest.raises(InputError, match=r"broken.json: not a results file: Invalid JSON"):
        read_results("broken", folder=tmp_path)


def test_a_missing_file_lists_what_is_there(tmp_path: Path) -> None:
    write_results("some_speed", "command", ROWS, SUMMARY, folder=tmp_path)
    with pytest.raises(InputError, match="there are: some_speed"):
        read_results("other", folder=tmp_path)


def test_every_committed_file_follows_the_form() -> None:
    paths = sorted(path for path in RESULTS.glob("*") if path.name != "raw")
    assert [path.name for path in paths if path.suffix != ".json"] == []
    assert all(read_results(path.stem).rows for path in paths)
    kept = sorted(RESULTS.glob("raw/*/*"))
    assert [path.name for path in kept if not path.name.endswith(PACKED)] == []
    assert all(read_tree(path) for path in kept)
