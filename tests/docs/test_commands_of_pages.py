"""Commands of the README and of docs/: all parse, and those of the tutorial run one after the other on its toy data."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from endtask.cli.arguments import with_whole_globs
from endtask.cli.main import app
from tests.conftest import Answer

_BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
# A model and a training of a second, in place of the tutorial's ten minutes.
TINY = (
    *("model.hidden_size=16", "model.num_hidden_layers=1", "model.num_attention_heads=2", "model.intermediate_size=32"),
    *("tokenizer.vocab_size=200", "pretrain.max_length=16", "pretrain.batch_size=8", "finetune.max_length=16"),
    *("finetune.seeds=[0]", "finetune.epochs=1", "budget=4steps", "threads=1", "device=cpu"),
)


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each `endtask` command in the shell blocks of a page."""
    for _, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.partition("| ")[2].strip() if re.match(r" *(cat|echo) .*\| ", line) else line.strip()
            if command.startswith("endtask "):
                yield shlex.split(re.split(r" > |&& | \| ", command)[0], comments=True)


def own_words(words: list[str]) -> Iterator[str]:
    """The words of a verb: without `--plugin FILE`, which may stand anywhere in a command, and without dots."""
    for index, word in enumerate(words):
        if word not in ("...", "--plugin") and words[max(0, index - 1)] != "--plugin":
            yield word


def pages_of(repository: Path) -> list[Path]:
    return [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]


def test_all_commands_parse(repository: Path) -> None:
    wrong, count = [], 0
    for page in pages_of(repository):
        for words in commands_of(page):
            count += 1
            verb = words[1]
            if verb.startswith("-") or words[2:] == ["..."]:
                continue
            try:
                COMMANDS[verb].make_context(verb, with_whole_globs(list(own_words(words[2:]))))
            except Exception as error:
                wrong.append(f"{page.name}: {shlex.join(words)}: {error}")
    assert wrong == []
    assert count > 100


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Answer]
) -> None:
    runpy.run_path(str(repository / "docs" / "tutorial" / "make_toy_data.py"))["main"](tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", open(tmp_path / "texts.txt", encoding="utf-8"))  # noqa: SIM115
    found = list(commands_of(repository / "docs" / "tutorial" / "first-model.md"))
    assert {"check", "run", "why", "selection", "predict", "init"} <= {words[1] for words in found}
    for words in found:
        answer = command(*shortened(words[1:]))
        assert answer.code in (0, 1) if words[1] == "check" else answer.code == 0, f"{shlex.join(words)}: {answer.err}"
    assert (tmp_path / "runs" / "mine" / "report.html").exists()
    assert (tmp_path / "selected.csv").exists()


def shortened(words: list[str]) -> list[str]:
    """A command with a budget of a second: settings come last, so they win."""
    if words[0] not in ("check", "run"):
        return words
    kept = [word for index, word in enumerate(words) if "--budget" not in words[max(0, index - 1) : index + 1]]
    given = [word for setting in TINY for word in ("--set", setting)]
    return [*kept, *given]
