"""The labelled task: reads files or the hub, checks the examples and carves the splits that are missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from endtask.config import Settings, TaskSettings
from endtask.config.objectives import check_names
from endtask.errors import InputError, did_you_mean
from endtask.io.parsing import parse_json
from endtask.io.run_layout import TASKS
from endtask.records import Example
from endtask.registry import task_types
from endtask.task.columns import Columns, WrongCell, find_columns, require_columns
from endtask.task.docstrings_task import NAME, NOTE, docstring_splits
from endtask.task.examples import check_ids, check_labels, complete, detect_type, is_empty, read_examples
from endtask.task.hub_tables import HUB_PREFIX, read_hub_tables
from endtask.task.spans import as_tagged_words
from endtask.task.split import carve, group_key
from endtask.task.split_tables import read_tables, task_name
from endtask.task.table import SPLITS, TEST_SET, Table

Splits = dict[str, tuple[Example, ...]]

# A key of the section `task` in a message; the look-behind excludes file names such as data/task.csv.
_KEY = re.compile(rf"(?<![\w./\\-])task\.({'|'.join(TaskSettings.model_fields)})\b")


@dataclass(frozen=True)
class Task:
    """Labelled examples in the splits `train`, `dev` and optionally `test`.

    `labels` are the sorted classes, labels or tags of train, empty for scores. `notes` are sentences for the user about
    how the task was read. `dropped` counts the rows without text in each split. `fingerprint` changes with any example,
    label or split, and with nothing else. `auxiliary` holds the auxiliary tasks by name.

    >>> rows = [Example(str(n), f"text {n}", "even" if n % 2 == 0 else "odd") for n in range(40)]
    >>> task = Task.from_examples("parity", {"train": rows})
    >>> task.labels, len(task.train), len(task.dev), len(task.test)
    (('even', 'odd'), 32, 4, 4)
    """

    name: str
    type: str
    splits: Splits
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    fingerprint: str
    dropped: dict[str, int] = field(default_factory=dict)
    auxiliary: dict[str, Task] = field(default_factory=dict)

    @property
    def combined_fingerprint(self) -> str:
        """The fingerprint of this task and its auxiliary tasks; without any it is `fingerprint`."""
        if not self.auxiliary:
            return self.fingerprint
        each = [self.fingerprint, {name: task.fingerprint for name, task in self.auxiliary.items()}]
        return blake2b(json.dumps(each).encode(), digest_size=16).hexdigest()

    @property
    def task_type(self) -> Any:
        """The `TaskType` that reads, learns and scores this task."""
        return task_types.get(self.type)()

    @property
    def train(self) -> tuple[Example, ...]:
        """The examples to learn from."""
        return self.splits["train"]

    @property
    def dev(self) -> tuple[Example, ...]:
        """The examples for model selection."""
        return self.splits["dev"]

    @property
    def test(self) -> tuple[Example, ...]:
        """The examples for the final score; empty if the task has no test split."""
        return self.splits.get("test", ())

    @property
    def all_labels(self) -> tuple[str, ...]:
        """`labels`, then those that only dev or test have, which no model can predict."""
        if self.task_type.labels_of_train_only:
            return self.labels
        everywhere = {name for split in self.splits.values() for name in self.task_type.label_names(split)}
        return (*self.labels, *sorted(everywhere - set(self.labels)))

    def label_numbers(self, split: str) -> list[int]:
        """Return the index of each example's class in `labels`."""
        number = {label: index for index, label in enumerate(self.labels)}
        return [number[str(example.label)] for example in self.splits[split]]

    @classmethod
    def read(cls, source: str | Path | TaskSettings, *, seed: int = 0) -> Task:
        """Read a file, a folder with train/dev/test files, `hf:NAME[:CONFIG]` or `docstrings`."""
        settings = source if isinstance(source, TaskSettings) else TaskSettings(path=str(source))
        if settings.path == NAME:
            return cls.from_examples(NAME, docstring_splits(seed), task_type="text", seed=seed, notes=[NOTE])
        if settings.path.startswith(HUB_PREFIX):
            tables, notes = read_hub_tables(settings.path, settings.columns)
        else:
            tables, notes = read_tables(settings.path)
        type_name, splits, more_notes = _read_splits(tables, settings)
        return cls.from_examples(
            task_name(settings.path),
            splits,
            task_type=type_name,
            dev_fraction=settings.dev_fraction,
            test_fraction=settings.test_fraction,
            seed=seed,
            notes=[*notes, *more_notes],
        )

    @classmethod
    def from_examples(
        cls,
        name: str,
        splits: Mapping[str, Sequence[Example]],
        *,
        task_type: str = "text",
        dev_fraction: float = 0.1,
        test_fraction: float = 0.1,
        seed: int = 0,
        notes: Sequence[str] = (),
    ) -> Task:
        """Return a task from examples in memory; carves missing dev and test splits from train by group."""
        for split in splits:
            if split not in SPLITS:
                raise InputError(f"unknown split {split!r}", hint=did_you_mean(split, SPLITS))
        if "train" not in splits:
            raise InputError("a task needs a train split")
        part = task_types.get(task_type)()
        full = {split: _checked(_with_text(split, splits[split]), part) for split in SPLITS if split in splits}
        dropped = {split: len(splits[split]) - len(full[split]) for split in full}
        check_ids(full)
        check_labels(full, part)
        all_notes = [*notes, *(_dropped_note(split, count) for split, count in dropped.items() if count)]
        _check_fractions(full, dev_fraction, test_fraction)
        rows = len(full["train"])
        for split, fraction in (("test", test_fraction), ("dev", dev_fraction)):
            if split not in full:
                all_notes.append(_carve_into(full, split, fraction, seed, rows=rows))
        ordered = {split: tuple(full[split]) for split in SPLITS if split in full}
        labels = part.label_names(ordered["train"])
        fingerprint = _fingerprint(task_type, ordered)
        return cls(name, task_type, ordered, labels, tuple(all_notes), fingerprint, dropped)


def read_all(settings: Settings) -> Task:
    """Read the end task with its auxiliary tasks."""
    task = Task.read(settings.task, seed=settings.seed)
    auxiliary = {name: _read_auxiliary(name, section, settings.seed) for name, section in settings.tasks.items()}
    return replace(task, auxiliary=auxiliary)


def _read_auxiliary(name: str, settings: TaskSettings, seed: int) -> Task:
    """Read an auxiliary task; messages about it name the keys `tasks.NAME....` in place of `task....`."""
    try:
        return replace(Task.read(settings, seed=seed), name=name)
    except InputError as error:
        line, named = _KEY.subn(rf"tasks.{name}.\1", str(error))
        raise InputError(line if named else f"tasks.{name}: {line}") from None


def _read_splits(
    tables: Mapping[str, Table], settings: TaskSettings
) -> tuple[str, dict[str, list[Example]], list[str]]:
    """Return the task type, the examples of each split, and notes for people."""
    for split, table in tables.items():
        if not table.rows:
            raise InputError(f"the {split} split has no rows", path=table.path)
    tables, wanted, notes = as_tagged_words(tables, settings)
    train = tables["train"]
    columns = find_columns(train.columns, wanted, train.path)
    type_name = detect_type(settings.type, columns, train, label_delimiter=settings.label_delimiter)
    task_type = task_types.get(type_name)
    notes += _column_notes(columns, task_type)
    if task_type.detection_note and settings.type == "auto":
        notes.append(task_type.detection_note)
    splits: dict[str, list[Example]] = {}
    for split, table in tables.items():
        found = find_columns(table.columns, wanted, table.path)
        require_columns(found, type_name, table.columns, table.path)
        if task_type.second_text == "optional" and bool(found.text_pair) != bool(columns.text_pair):
            raise InputError(f"{split} and train differ in whether they have a second text", path=table.path)
        splits[split] = list(read_examples(table, split, found, type_name, label_delimiter=settings.label_delimiter))
    notes += _test_set_notes(splits)
    return type_name, _with_one_test(splits, has_ids=columns.id is not None), notes


def _test_set_notes(splits: Mapping[str, Sequence[Example]]) -> list[str]:
    """Return a note that lists the test sets if there are several."""
    sets = [f"{name.removeprefix(TEST_SET)} {len(rows):,}" for name, rows in splits.items() if name.startswith("test")]
    return [f"{len(sets)} test sets, scored apart and together: {', '.join(sets)} rows"] if len(sets) > 1 else []


def _with_one_test(splits: dict[str, list[Example]], *, has_ids: bool) -> dict[str, list[Example]]:
    """Join several test sets into one split; `part` of a row names its set, and prefixed ids are unique."""
    names = [name for name in splits if name == "test" or name.startswith(TEST_SET)]
    rows = [
        replace(example, part=name.removeprefix(TEST_SET), id=f"{name}/{example.id}" if has_ids else example.id)
        if len(names) > 1
        else example
        for name in names
        for example in splits[name]
    ]
    others = {name: examples for name, examples in splits.items() if name not in names}
    return {**others, "test": rows} if names else others


def _column_notes(columns: Columns, task_type: Any) -> list[str]:
    """Return a note on the columns that were read where their names are not the plain ones."""
    roles = ("text", "text_pair", "label") if task_type.second_text == "optional" else task_type.columns
    found = {role: getattr(columns, role) for role in roles}
    odd = [f"{role} from column {name!r}" for role, name in found.items() if name not in (None, role)]
    return [f"read {', '.join(odd)}"] if odd else []


def _with_text(split: str, examples: Sequence[Example]) -> list[Example]:
    full = [example for example in examples if not is_empty(example)]
    if not full:
        path = examples[0].path if examples else None
        raise InputError(f"the {split} split has no rows with text", path=path or None)
    return full


def _check_fractions(splits: Mapping[str, Sequence[Example]], dev: float, test: float) -> None:
    carved = (0 if "dev" in splits else dev) + (0 if "test" in splits else test)
    if carved >= 1:
        raise InputError("task.dev_fraction and task.test_fraction leave nothing to train on")


def _dropped_note(split: str, count: int) -> str:
    return f"{count:,} {split} {'row' if count == 1 else 'rows'} without text dropped"


def _checked(examples: Sequence[Example], task_type: Any) -> list[Example]:
    """Return the examples with labels as the task type writes them; examples made in Python may hold anything."""
    checked = []
    for example in examples:
        try:
            checked.append(complete(example, example.label, task_type))
        except WrongCell as wrong:
            path, row = (example.path, example.row) if example.path else (f"example {example.id!r}", None)
            raise InputError(str(wrong), path=path, row=row, hint=wrong.hint) from None
    return checked


def _carve_into(splits: dict[str, list[Example]], split: str, fraction: float, seed: int, *, rows: int) -> str:
    """Move about `fraction` of the original train rows into a new split; returns a note about it."""
    train = splits["train"]
    if fraction == 0:
        if split == "test":
            return "no test split given and task.test_fraction is 0: there is no final score"
        raise InputError(
            "a dev split is needed to choose between models",
            path=train[0].path or None,
            hint="give one or set task.dev_fraction",
        )
    other_groups = {group_key(example) for name, part in splits.items() if name != "train" for example in part}
    remaining, carved = carve(train, min(1.0, fraction * rows / len(train)), seed, salt=split, avoid=other_groups)
    if not carved:
        raise InputError(
            f"too few rows to carve a {split} split from ({len(train)}, and each class must stay in train)",
            path=train[0].path or None,
            hint=f"give a {split} file" + (" or set task.test_fraction=0" if split == "test" else ""),
        )
    splits["train"], splits[split] = remaining, carved
    by = "the group column" if train[0].group is not None else "equal texts without entity markers"
    return f"no {split} split given: {len(carved):,} of {rows:,} train rows carved off by group ({by})"


def _fingerprint(type_name: str, splits: Splits) -> str:
    state = blake2b(type_name.encode(), digest_size=16)
    for split, examples in splits.items():
        for example in examples:
            texts = (example.text, example.text_pair, example.tokens)
            part = () if example.part is None else (example.part,)
            content = (split, example.id, *texts, example.label, example.group, *part)
            state.update(json.dumps(content).encode() + b"\n")
    return state.hexdigest()


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
        metadata = parse_json((folder / _METADATA).read_bytes())
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
            yield example_of(parse_json(line))


def example_of(row: Mapping[str, Any]) -> Example:
    """Return an example from a row of JSON, which has lists where examples have tuples."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Example(**fields)
