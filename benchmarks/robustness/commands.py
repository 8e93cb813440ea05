"""The commands that are killed: every verb that writes, and every family of presets and selectors, on toy data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.toy_run import toy_settings

Tree = dict[str, Any]
RUN = "run"
"""The folder, in a case's own, that commands make or start from."""


@dataclass(frozen=True)
class Command:
    """A command and what it starts from.

    `settings` is the content of settings.json, with paths relative to the case's folder. `start` names another command
    whose folder is copied first.
    """

    name: str
    words: tuple[str, ...]
    settings: Tree = field(default_factory=dict)
    start: str | None = None
    then: tuple[str, ...] | None = None
    """The words with which it goes on after a kill, if they are others, as for `--from`."""

    def write(self, folder: Path) -> None:
        """Write the settings file."""
        if self.settings:
            (folder / "settings.json").write_text(json.dumps(self.settings), encoding="utf-8")


def toy(**changes: Any) -> Tree:
    """Return the settings of a small run; `changes` replace values by dotted key, with __ for the dot."""
    tree = toy_settings(
        Path("data"),
        Path(RUN),
        budget="8steps",
        pretrain={"max_length": 16, "batch_size": 8, "checkpoint_steps": 2, "gradient_accumulation_steps": 1},
        finetune={"max_length": 16, "batch_size": 16, "epochs": 1, "seeds": [0, 1], "checkpoint_steps": 2},
    )
    for key, value in changes.items():
        *parents, last = key.split("__")
        section = tree
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return tree


def preset(name: str, **changes: Any) -> Tree:
    """Return the settings of a small run with the objectives and the weighting of a preset."""
    tree = {"preset": name, **toy(domain__amount="1x", **changes)}
    if not tree["preset"].startswith(("tlm", "iss", "meta-tlm")):
        tree["select"] = {}
    return tree


_SMALL_SCORER = {"epochs": 1, "uninformed": "warn", "share_of_budget": None, "budget": "40%retrieved"}
FAMILIES: dict[str, Tree] = {
    "tlm": toy(),
    "tapt": preset("tapt-scratch"),
    "dapt": preset("dapt-scratch"),
    "dapt-tapt": preset("dapt-tapt-scratch"),
    "mt-tartan": preset("mt-tartan-scratch", pretrain__eval_steps=2),
    "meta-tartan": preset("meta-tartan-scratch", pretrain__eval_steps=2),
    "meta-tlm": preset("meta-tlm", pretrain__objectives={"task": {"batch_size": 8}}),
    "finetune": preset("finetune-scratch"),
    "random": toy(select={"name": "random", "budget": "50%"}),
    "dsir": toy(select={"name": "dsir", "budget": "50%"}),
    "classifier": toy(select={"name": "classifier", "budget": "50%"}),
    "fusion": toy(select={"name": "fusion", "selectors": ["best_rank", "dsir"], "budget": "50%"}),
    "influence": toy(select={"name": "influence", **_SMALL_SCORER}),
    "replaced": toy(
        pretrain__objectives={
            "corpus": {"kind": "replaced", "texts": "selection"},
            "task": {"kind": "replaced", "texts": "task"},
        }
    ),
    "rates": toy(finetune__learning_rate=[1e-3, 1e-2]),
}
_AGAIN = ("run", RUN, "--quiet")
_VERBS = (
    Command("retrieve", ("retrieve", "settings.json", "--quiet"), toy()),
    Command("select", ("select", "settings.json", "--quiet"), toy(select={"name": "dsir", "budget": "50%"})),
    Command("redo evaluate", (*_AGAIN, "--from", "evaluate"), start="tlm", then=_AGAIN),
    Command("redo select", (*_AGAIN, "--from", "select"), start="tlm", then=_AGAIN),
    Command("redo evaluate twice", (*_AGAIN, "--from", "evaluate"), start="tlm"),
    Command("redo finetune twice", (*_AGAIN, "--from", "finetune"), start="tlm"),
    Command("other rate", (*_AGAIN, "--from", "pretrain", "--set", "pretrain.learning_rate=0.002"), start="tlm"),
    Command(
        "nearest",
        (*_AGAIN, "--from", "select", "--set", "select={name: nearest_neighbors, embedding: embedder}"),
        start="embedder",
    ),
    Command("embedder", ("export", RUN, "--to", "sentence-transformers", "--output", "embedder"), start="tlm"),
    Command("selection", ("selection", RUN, "--to", "selected.jsonl.zst"), start="tlm"),
    Command("selection csv", ("selection", RUN, "--to", "selected.csv"), start="tlm"),
    Command("predict", ("predict", RUN, "data/task/test.jsonl", "--to", "labels.csv"), start="tlm"),
    Command("report", ("report", RUN), start="tlm"),
    Command("export onnx", ("export", RUN, "--to", "onnx"), start="tlm"),
    Command("export dataset", ("export", RUN, "--to", "dataset", "--output", "published"), start="tlm"),
    Command("analyze", ("analyze", RUN), start="tlm"),
    Command("bundle", ("bundle", RUN, "--output", "bundle.tar.zst"), start="prepared"),
    Command("run a bundle", ("run", "--bundle", "bundle.tar.zst", "--output", "there", "--quiet"), start="bundle"),
    Command("prepared", ("run", "settings.json", "--until", "pack", "--quiet"), toy()),
    Command(
        "compare",
        ("compare", "settings.json", "--values", "pretrain.learning_rate=0.001,0.002", "--seeds", "0", "--quiet"),
        toy(finetune__seeds=[0], output_dir="compared"),
    ),
    Command(
        "search",
        ("search", "settings.json", "--trials", "2", "--output", "searched", "--quiet"),
        toy(finetune__seeds=[0]),
    ),
    Command(
        "few-shot",
        ("few-shot", RUN, "--labels", "30", "--samples", "2", "--seeds", "0", "--output", "few", "--quiet"),
        start="tlm",
    ),
)


def commands() -> dict[str, Command]:
    """Return all commands by name."""
    families = (Command(name, ("run", "settings.json", "--quiet"), tree) for name, tree in FAMILIES.items())
    return {command.name: command for command in (*families, *_VERBS)}
