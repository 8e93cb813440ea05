"""The random kills and damages of `benchmarks.robustness`: the same from the same seeds, and what counts as lost."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.robustness.attacks import problem
from benchmarks.robustness.commands import commands, preset, toy
from benchmarks.robustness.forks import Ended
from benchmarks.robustness.mutations import drawn_values, mutated, with_value
from benchmarks.robustness.parts import damages, kills
from endtask.config import load_settings


def test_mutations_are_those_of_their_seed() -> None:
    content = json.dumps(toy()).encode()
    drawn = [[mutated(content, Random(seed)) for seed in range(50)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 40
    assert mutated(b"", Random(0)) is not None


def test_values_of_hypothesis_are_those_of_their_seed() -> None:
    assert repr(drawn_values(3, 10)) == repr(drawn_values(3, 10))
    assert repr(drawn_values(3, 10)) != repr(drawn_values(4, 10))


def test_a_value_changes_one_place_of_a_copy() -> None:
    tree = toy()
    changed = [with_value(tree, "strange", Random(seed)) for seed in range(30)]
    assert tree == toy()
    assert all("strange" in json.dumps(copy) for copy, _ in changed)
    assert len({json.dumps(copy) for copy, _ in changed}) > 10
    assert all(place.partition(".")[0] in (*tree, "strange") for _, place in changed)


def test_every_command_has_settings_that_load(tmp_path: Path) -> None:
    known = commands()
    for command in known.values():
        command.write(tmp_path)
        assert command.start is None or command.start in known
        if command.settings:
            assert load_settings(tmp_path / "settings.json").threads == 1
    assert preset("tapt-scratch")["preset"] == "tapt-scratch"


def test_what_is_lost(tmp_path: Path) -> None:
    manifest = {"fingerprint": "a", "status": "finished", "files": {}, "seconds": 1.0}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "run.log").write_text("now")
    expected = kills.digests(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "seconds": 2.0}))
    (tmp_path / "run.log").write_text("later")
    assert kills.difference(expected, kills.digests(tmp_path)) is None
    (tmp_path / ".a.txt.1.tmp").write_text("")
    assert kills.difference(expected, kills.digests(tmp_path)) == "left over: .a.txt.1.tmp"
    assert kills.difference(kills.digests(tmp_path), expected) == "missing: .a.txt.1.tmp"
    (tmp_path / ".a.txt.1.tmp").unlink()
    (tmp_path / "page.html").write_text("<p>2026-11-19 05:01 UTC</p><td>12 passages, 2.6 s</td>")
    expected = kills.digests(tmp_path)
    (tmp_path / "page.html").write_text("<p>2026-11-19 05:02 UTC</p><td>12 passages, 3 min 1 s</td>")
    assert kills.difference(expected, kills.digests(tmp_path)) is None
    (tmp_path / "page.html").write_text("<p>2026-11-19 05:02 UTC</p><td>13 passages, 2.6 s</td>")
    assert kills.difference(expected, kills.digests(tmp_path)) == "differs: page.html"
    (tmp_path / "page.html").unlink()
    expected = {name: digest for name, digest in expected.items() if name != "page.html"}
    (tmp_path / "a.txt").write_text("b")
    assert kills.difference(expected, kills.digests(tmp_path)) == "differs: a.txt"
    assert kills.difference({**expected, "a.txt": None}, kills.digests(tmp_path)) is None


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        ((0, "", ""), None),
        ((2, "", "endtask: a.json: no\n"), None),
        ((2, "", "warning: b\nendtask: a.json: no\n"), None),
        ((2, "", ""), "0 lines"),
        ((2, "", "one\ntwo\n"), "2 lines"),
        ((70, "", "Traceback (most recent call last):\nKeyError: 1\n"), "traceback: KeyError: 1"),
        ((-11, "", ""), "exit code -11"),
        ((0, "", "\x1b[31m"), "control characters"),
    ],
)
def test_what_is_a_failure(outcome: Any, found: str | None) -> None:
    reason = problem(outcome)
    assert reason == found or (found is not None and reason is not None and reason.startswith(found))


def test_the_counts() -> None:
    rows: list[dict[str, Any]] = [
        {"command": "a", "kills": 2, "lost": None},
        {"command": "b", "kills": 3, "lost": "hangs"},
    ]
    assert kills.summarize(rows) == {"kills_total": 5, "kills_lost": 1, "kills_commands": 2, "kills_rounds": 2}
    rows = [{"kind": "values", "inputs": 20, "failures": ["one"]}, {"kind": "input bytes", "inputs": 5, "failures": []}]
    counts = damages.summarize(rows)
    assert (counts["fuzz_inputs"], counts["fuzz_failures"], counts["fuzz_input_bytes"]) == (25, 1, 5)
    assert Ended(0, "Traceback (most recent call last)", 1.0).has_traceback
