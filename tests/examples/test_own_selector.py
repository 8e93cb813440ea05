"""The example of a selector: its order against a count by hand, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from endtask.io.run_layout import SELECTION
from endtask.io.selection_table import read_selection
from tests.conftest import Answer
from tests.toy_run import toy_settings

PLUGIN = Path(__file__).parents[2] / "examples" / "own_selector.py"


def test_the_passages_with_most_known_words_come_first(
    toy: Path, own_run: Path, tmp_path: Path, command: Callable[..., Answer]
) -> None:
    settings = tmp_path / "settings.json"
    tree = toy_settings(toy, own_run, select={"name": "common_words", "letters": 5, "budget": "20%"})
    settings.write_text(json.dumps(tree), encoding="utf-8")
    answer = command("run", settings, "--from", "select", "--until", "select", "--plugin", PLUGIN, "--quiet")
    assert answer.code == 0, answer.err
    rows = [json.loads(line) for line in (toy / "task" / "train.jsonl").read_text().splitlines()]
    known = {word for row in rows for word in row["text"].split() if len(word) > 4}
    for item in read_selection(own_run / "select" / SELECTION):
        words = [word for word in item.document.text.lower().split() if len(word) > 4]
        share = sum(word in known for word in words) / len(words)
        assert item.reason.startswith(f"{share:.0%} of its words are in the task")
