"""The verbs, their flags and their help pages."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from endtask.cli.main import VERBS, app
from tests.conftest import Answer

SETTINGS_FLAGS = ["SETTINGS", "--task", "--corpus", "--budget", "--preset", "--set", "--json", "--quiet"]
# Frozen, so that flags cannot creep: a setting belongs into the settings file, where --set reaches it.
FLAGS = {
    "init": ["FILE", "--task", "--corpus", "--output", "--set", "--align"],
    "check": SETTINGS_FLAGS,
    "plan": [
        *["SETTINGS", "--task", "--corpus", "--budget", "--preset", "--set", "--size", "--queries", "--machines"],
        *["--cores", "--prices", "--json", "--quiet"],
    ],
    "run": [*SETTINGS_FLAGS, "--output", "--until", "--from", "--nproc", "--dry-run", "--bundle", "--results"],
    "search": [*SETTINGS_FLAGS, "--output", "--grid", "--values", "--trials", "--space"],
    "compare": [
        *SETTINGS_FLAGS,
        "--output",
        "--study",
        "--var",
        "--study-tasks",
        "--only",
        "--variant",
        "--values",
        "--seeds",
        "--finetune-seeds",
        "--baseline",
        "--no-baselines",
        "--checkpoint",
        "--against",
        "--by",
        "--until",
        "--devices",
        "--bundle",
        "--results",
        "--finished",
    ],
    "few-shot": [
        "RUN...",
        "--labels",
        "--samples",
        "--folds",
        "--seeds",
        "--train",
        "--head",
        "--tasks",
        "--learning-rates",
        "--held-out",
        "--set",
        "--var",
        "--study-tasks",
        "--devices",
        "--output",
        "--json",
        "--quiet",
        "--bundle",
    ],
    "bundle": ["FOLDER", "--output", "--text", "--max-size", "--unpack", "--json", "--quiet"],
    "retrieve": ["SETTINGS", "--task", "--corpus", "--output", "--preset", "--set", "--from", "--json", "--quiet"],
    "select": [*SETTINGS_FLAGS, "--output", "--from", "--dry-run"],
    "selection": ["RUN", "--to", "--raw-cells", "--json"],
    "why": ["RUN", "DOC_ID", "--example", "--class", "--top", "--json"],
    "predict": [
        *["RUN", "TEXT", "--file", "--column", "--pair-column", "--to", "--raw-cells", "--device", "--json"],
        *["--calibrated", "--batch-size"],
    ],
    "evaluate": ["RUN", "FILE", "--json", "--quiet"],
    "labels": ["RUN", "--to", "--raw-cells", "--json"],
    "analyze": ["RUN", "--also", "--json", "--quiet"],
    "export": ["RUN", "--to", "--output", "--repo", "--public", "--json", "--quiet"],
    "report": ["RUN", "--latency", "--json"],
    "serve": ["FOLDER", "--host", "--port", "--token-file", "--name"],
    "verify": ["RUN", "--json", "--quiet"],
    "ls": ["FOLDER", "--json"],
    "demo": ["--output", "--json", "--quiet"],
    "doctor": ["--json"],
    "schema": ["--output"],
}
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def flags_of(verb: str) -> list[str]:
    parameters = COMMANDS[verb].params
    return [next((flag for flag in one.opts if flag.startswith("--")), one.metavar) for one in parameters]


def examples_of(verb: str) -> list[list[str]]:
    """The words of each example after `endtask VERB`, without pipes, redirections and shell comments."""
    lines = next(module.EXAMPLES for module in VERBS if verb == module.NAME).splitlines()[2:]
    commands = [line.rpartition("| ")[2].partition(" >")[0] for line in lines]
    return [shlex.split(command, comments=True) for command in commands]


def test_the_verbs_are_frozen() -> None:
    assert list(COMMANDS) == list(FLAGS)


@pytest.mark.parametrize("verb", FLAGS)
def test_the_flags_are_frozen(verb: str) -> None:
    assert sorted(flags_of(verb)) == sorted(FLAGS[verb])


@pytest.mark.parametrize("verb", FLAGS)
def test_help_ends_with_examples(verb: str, command: Callable[..., Answer]) -> None:
    answer = command(verb, "--help")
    assert answer.code == 0
    page, _, examples = answer.out.partition("Examples:\n")
    assert "Usage: endtask" in page
    lines = [line.strip() for line in examples.strip().splitlines()]
    assert lines
    assert all(re.match(rf"(cat texts.txt \| )?endtask {verb}\b", line) for line in lines)


@pytest.mark.parametrize("verb", FLAGS)
def test_the_examples_parse(verb: str) -> None:
    for words in examples_of(verb):
        assert words[:2] == ["endtask", verb]
        COMMANDS[verb].make_context(verb, words[2:])  # raises on an unknown flag or a missing argument


@pytest.mark.parametrize("verb", FLAGS)
def test_every_option_is_explained_in_plain_words(verb: str, command: Callable[..., Answer]) -> None:
    options = command(verb, "--help").out.partition("Options:")[2]
    assert "<" not in options  # such as <list[str]>
    assert all(option.help for option in COMMANDS[verb].params)


def test_the_front_page(command: Callable[..., Answer]) -> None:
    page = command("--help").out
    assert all(f"\n  {verb} " in page for verb in FLAGS)
    assert page.rstrip().splitlines()[-1].strip().startswith("endtask run --task")
    nothing = command()
    assert nothing.code == 2
    assert nothing.err.startswith("Usage: endtask")


def test_version(command: Callable[..., Answer]) -> None:
    answer = command("--version")
    assert answer.code == 0
    assert re.fullmatch(r"endtask \d+\.\d+\.\d+\S*\n", answer.out)


def test_verbs_ask_one_place_for_the_version(repository: Path) -> None:
    """Elsewhere a source tree that is not installed would end in a traceback."""
    asking = [
        path.name for path in (repository / "src").rglob("*.py") if 'metadata.version("endtask")' in path.read_text()
    ]
    assert asking == ["stage_folder.py"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--bugdet", "10min"], "No such option: --bugdet"),
        (["trian"], "No such command 'trian'"),
        (["predict"], "Missing argument"),
        (["report"], "Missing argument"),
        (["selection", "run"], "Missing option '--to'"),
        (["why"], "Missing argument"),
        (["why", "run", "id", "--top", "0"], "--top"),
        (["predict", "run", "--batch-size", "none"], "--batch-size"),
    ],
)
def test_a_mistyped_command_is_one_line(command: Callable[..., Answer], words: list[str], said: str) -> None:
    answer = command(*words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("endtask: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert "--help" in answer.err


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_wait_passively_unless_the_user_says_otherwise(
    given: str | None, command: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    assert command("--version").code == 0
    assert os.environ["OMP_WAIT_POLICY"] == (given or "PASSIVE")
