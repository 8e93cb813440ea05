"""Store a task as files from which it is read back equal, without its original files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from endtask.config.objectives import check_names
from endtask.errors import InputError
from endtask.io.run_layout import TASKS
from endtask.records import Example
from endtask.task.split_tables import SPLITS
from endtask.task.task import Task

_METADATA = "task.json"


def task_files(task: Task) -> dict[str, bytes]:
    """Return the files of a task, by name: its metadata, and one file of rows for each split.

    >>> rows = [Example(str(n), f"text {n}", "even" if n % 2 == 0 else "odd") for n in range(40)]
    >>> list(task_files(Task.from_examples("parity", {"train": rows})))
    ['task.json', 'train.jsonl', 'dev.jsonl', 'test.jsonl']
    """
    metadata = {
        "name": task.name,
        "type": task.type,
        "splits": list(task.splits),
        "notes": task.notes,
        "dropped": task.dropped,
        "fingerprint": task.fingerprint,
        **({"auxiliary": list(task.auxiliary)} if task.auxiliary else {}),
    }
    files = {_METADATA: json.dumps(metadata, indent=2)}
    for split, examples in task.splits.items():
        files[f"{split}.jsonl"] = "".join(f"{json.dumps(_row(example))}\n" for example in examples)
    stored = {name: text.encode() for name, text in files.items()}
    for name, auxiliary in task.auxiliary.items():
        stored |= {f"{TASKS}/{name}/{file}": content for file, content in task_files(auxiliary).items()}
    return stored


def read_task(folder: Path) -> Task:
    """Read a task from a folder of such files: the same examples, order and splits, and the same fingerprint."""
    try:
        metadata = json.loads((folder / _METADATA).read_bytes())
        if not set(metadata["splits"]) <= set(SPLITS):  # before they become names of files
            raise ValueError("names other splits")
        splits = {split: list(_examples(folder / f"{split}.jsonl")) for split in metadata["splits"]}
        type_name = metadata["type"]
        found = Task.from_examples(metadata["name"], splits, task_type=type_name, dev_fraction=0, test_fraction=0)
        if found.fingerprint != metadata["fingerprint"]:
            raise ValueError("the rows differ from those that were written")
        names = list(metadata.get("auxiliary", ()))
        check_names(names, "tasks")  # before they become names of folders
        auxiliary = {name: read_task(folder / TASKS / name) for name in names}
        return replace(found, notes=tuple(metadata["notes"]), dropped=metadata["dropped"], auxiliary=auxiliary)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"the copy of the task is damaged: {reason}", path=folder) from None


def _row(example: Example) -> dict[str, Any]:
    return {key: value for key, value in asdict(example).items() if value is not None}


def _examples(path: Path) -> Iterator[Example]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield _example(json.loads(line))


def _example(row: Mapping[str, Any]) -> Example:
    """Return an example from JSON, which has lists where examples have tuples."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Example(**fields)
