"""The record of an experiment: a JSON file with its spec, its trials and its outcome.

The whole file is written after every change, so a killed experiment resumes from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.nested import changes_in_words
from endtask.io.parsing import parse_json
from endtask.io.run_layout import ExperimentKind, record_file

Tree = dict[str, Any]
_NAMES: dict[ExperimentKind, str] = {
    "compare": "a comparison",
    "search": "a search",
    "few-shot": "a few-shot experiment",
}


@dataclass(frozen=True)
class Record:
    """The spec of an experiment, the results of its trials by key, and its outcome once there is one."""

    folder: Path
    kind: ExperimentKind
    spec: Tree
    trials: dict[str, Tree] = field(default_factory=dict)
    outcome: Tree | None = None

    def with_trial(self, key: str, trial: Mapping[str, Any]) -> Record:
        """Save the record with a trial added or replaced, and return it."""
        return replace(self, trials={**self.trials, key: dict(trial)}).save()

    def with_outcome(self, outcome: Mapping[str, Any]) -> Record:
        """Save the record with the outcome, and return it."""
        return replace(self, outcome=dict(outcome)).save()

    def save(self) -> Record:
        """Write the record to its folder. Return it as `read_record` will read it."""
        tree = {"spec": self.spec, "trials": self.trials, "outcome": self.outcome}
        write_json(self.folder / record_file(self.kind), tree)
        return replace(self, **json.loads(json.dumps(tree)))


def read_record(folder: Path, kind: ExperimentKind) -> Record:
    """Read the record in an experiment's folder."""
    path = folder / record_file(kind)
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        record = Record(folder, kind, **{name: tree[name] for name in ("spec", "trials", "outcome")})
        if not isinstance(record.spec, dict) or not isinstance(record.trials, dict):
            raise TypeError
    except FileNotFoundError:
        hint = f"endtask {kind} --output FOLDER makes one"
        raise InputError(f"no {_NAMES[kind].split(' ', 1)[1]} here", path=folder, hint=hint) from None
    except (ValueError, KeyError, TypeError):
        message = f"not the record of {_NAMES[kind]}"
        raise InputError(message, path=path, hint="was the file edited by hand?") from None
    return record


def check_spec(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> None:
    """Raise `InputError` with the first differences if the spec of an experiment changed."""
    changes = changes_in_words(old, json.loads(json.dumps(new)))
    if changes:
        raise InputError(
            f"the spec of this experiment changed: {prefix}{', '.join(changes[:4])}",
            path=folder,
            hint="choose another --output; nothing was touched",
        )
