"""The result file of `benchmarks.robustness`: rows of several sub-commands in one file, and sums over all of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.results_file import read_results
from benchmarks.robustness.record import Row, all_parts, append, clear, collect, rows_of


class Counted:
    """A sub-command whose only number is the sum of its cases."""

    HELP = "counts"

    def __init__(self, name: str) -> None:
        self.name = name

    def add_arguments(self, parser: ArgumentParser) -> None:
        pass

    def measure(self, arguments: Namespace, rows: list[Row]) -> Iterator[Row]:
        return iter(())

    def summarize(self, rows: list[Row]) -> Row:
        return {f"{self.name}_total": sum(row["cases"] for row in rows)}


def test_rows_are_appended_and_other_parts_stay(tmp_path: Path) -> None:
    known: dict[str, Any] = {"kills": Counted("kills"), "damage": Counted("damage")}
    assert append("kills", [{"cases": 2}], known, tmp_path) == {"kills_total": 2}
    append("damage", [{"cases": 10}], known, tmp_path)
    assert append("kills", [{"cases": 3}], known, tmp_path) == {"kills_total": 5, "damage_total": 10}
    assert [row["cases"] for row in rows_of("kills", tmp_path)] == [2, 3]
    clear("kills", tmp_path)
    assert [row["part"] for row in read_results("robustness", tmp_path).rows] == ["damage"]
    assert append("kills", [{"cases": 1}], known, tmp_path) == {"kills_total": 1, "damage_total": 10}


def test_collected_rows_name_their_machine(tmp_path: Path) -> None:
    known: dict[str, Any] = {"kills": Counted("kills"), "damage": Counted("damage")}
    append("kills", [{"cases": 2}], known, tmp_path / "here")
    for name in ("first", "second"):
        append("kills", [{"cases": 5}], known, tmp_path / name)
        append("damage", [{"cases": 7}], known, tmp_path / name)
    summary = collect([tmp_path / "first", tmp_path / "second"], known, tmp_path / "here")
    assert summary == {"kills_total": 12, "damage_total": 14}
    rows = rows_of("kills", tmp_path / "here")
    assert [row["cases"] for row in rows] == [2, 5, 5]
    assert ["machine" in row for row in rows] == [False, True, True]


def test_every_part_can_be_a_sub_command() -> None:
    for name, part in all_parts().items():
        part.add_arguments(ArgumentParser(name))
        assert part.HELP
