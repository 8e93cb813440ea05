"""`endtask.fit`: train a model on data in memory or in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from endtask.api.corpora import corpus_rows, source_settings
from endtask.api.model import Model, load
from endtask.api.stored_data import CORPUS, DATA, MemoryTable, Tables, digest_of, stored_data
from endtask.api.tables import Splits, splits_of
from endtask.config import Settings, load_settings
from endtask.config.data_usage import chosen_by_dev, data_usage
from endtask.config.loading import Tree, merge
from endtask.errors import InputError
from endtask.io.digests import fingerprint
from endtask.pipeline.inputs import unread_corpus
from endtask.pipeline.run import Run
from endtask.progress import recorded, say, warn
from endtask.task.hub_tables import has_labels
from endtask.task.split_tables import task_name
from endtask.task.table import Table

RUNS = Path("runs")
_DIGITS = 8


def fit(
    data: Any,
    corpus: Any = None,
    *,
    budget: str | None = None,
    output: str | Path | None = None,
    preset: str | None = None,
    columns: Mapping[str, str] | None = None,
    start: str | None = None,
    **settings: Any,
) -> Model:
    """Train a model on labelled data and unlabelled text, and return it; equal calls resume the same run.

    `data` is a path, a pandas DataFrame, a `datasets.Dataset` or `DatasetDict`, (texts, labels), a list of dicts, or a
    dict of splits; data without splits is divided into train, dev and test. `corpus` is a path, a glob, a list of
    them, or texts in memory: a list, a column of a DataFrame, a Dataset. The run's folder stores data in memory under
    `data/`. Without `output` it is `runs/NAME-DIGEST`, the same for equal data and settings.

    `columns` are `task.columns`; further keyword arguments are settings: `select={"name": "dsir"}`, `seed=1`. `start`
    redoes a stage and all after it.

    >>> fit(["a text"], budget="10min")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: data: of type list, which is not a table (give a path, a pandas DataFrame, \
a datasets.Dataset or DatasetDict, (texts, labels), a list of dicts, or a dict of splits)
    """
    given = _given(settings, columns=columns, budget=budget)
    return fit_in(RUNS, data, corpus, given, output=output, preset=preset, start=start)


def fit_in(
    runs: Path,
    data: Any,
    corpus: Any,
    given: Tree,
    *,
    output: str | Path | None = None,
    preset: str | None = None,
    start: str | None = None,
) -> Model:
    """Train like `fit`; without `output` the run's folder is in `runs`."""
    load_settings(preset=preset, given=given)  # a misspelt setting is found before the data is read
    tables = [*_task_tables(data, given), *_corpus_tables(corpus, given)]
    folder = Path(output) if output is not None else runs / _folder_name(tables, given, preset)
    _add_paths(given, folder, tables)
    resolved = load_settings(preset=preset, given={**given, "output_dir": str(folder)})
    with recorded():
        warn_about(resolved)
        say(f"the run's folder: {folder}")
        with stored_data(tables, resolved, replace=start == "read"):
            Run(resolved).execute(start=start)
    return load(folder)


def warn_about(settings: Settings) -> None:
    """Print a warning for each setting without effect and each choice that dev makes twice."""
    for warning in (unread_corpus(settings), *chosen_by_dev(data_usage(settings)), *settings.unused_settings()):
        if warning:
            warn(warning)


def _given(settings: Mapping[str, Any], *, columns: Mapping[str, str] | None, budget: str | None) -> Tree:
    """Return the settings of a call as one tree; data, corpus and folder have arguments of their own."""
    for key, argument in (("output_dir", "output"), ("sources", "corpus")):
        if key in settings:
            raise InputError("has an argument of its own", key=key, hint=f"give {argument}=...")
    for section, key, argument in (("task", "path", "data"), ("corpus", "sources", "corpus")):
        if isinstance(settings.get(section), Mapping) and key in settings[section]:
            raise InputError("has an argument of its own", key=f"{section}.{key}", hint=f"give {argument}")
    given: Tree = {}
    merge(given, settings)
    if columns is not None:
        merge(given, {"task": {"columns": dict(columns)}})
    if budget is not None:
        given["budget"] = budget
    return given


def _task_tables(data: Any, given: Tree) -> Iterator[MemoryTable]:
    """Yield the tables of labelled data in memory; the path of data in files becomes a setting."""
    if isinstance(data, str | Path):
        merge(given, {"task": {"path": str(data)}})
        return
    for split, rows in _labelled_splits(splits_of(data), given).items():
        name = "data" if split == "train" and not isinstance(data, Mapping) else f"data[{split!r}]"
        yield MemoryTable(f"{split}.jsonl", name, rows)


def _labelled_splits(splits: Splits, given: Tree) -> Splits:
    """Leave out dev and test splits without a label, as those of hidden test sets."""
    columns = load_settings(given=given).task.columns
    labelled: Splits = {}
    for split, rows in sorted(splits.items(), key=lambda item: item[0] != "train"):
        found = has_labels(Table(f"data[{split!r}]", tuple(enumerate(rows, start=1))), columns)
        if split == "train" or not rows or found:
            labelled[split] = rows
        else:
            say(f"split {split!r} has no labels and is ignored")
    return labelled


def _corpus_tables(corpus: Any, given: Tree) -> Iterator[MemoryTable]:
    """Yield the table of a corpus in memory; the paths of others become settings."""
    if corpus is None:
        return
    sources = source_settings(corpus)
    if sources is not None:
        merge(given, {"corpus": {"sources": sources}})
        return
    yield MemoryTable(CORPUS, "corpus", corpus_rows(corpus))


def _folder_name(tables: Tables, given: Tree, preset: str | None) -> str:
    """Return the name of the run's folder: that of the task, and a digest of data and settings."""
    path = given.get("task", {}).get("path")
    digest = fingerprint(digest_of(tables), given, preset)[:_DIGITS]
    return f"{task_name(path) if path else DATA}-{digest}"


def _add_paths(given: Tree, folder: Path, tables: Sequence[MemoryTable]) -> None:
    """Add the paths of stored data to the settings."""
    files = [table.file for table in tables]
    if any(file != CORPUS for file in files):
        merge(given, {"task": {"path": str(folder / DATA)}})
    if CORPUS in files:
        merge(given, {"corpus": {"sources": [{"path": str(folder / DATA / CORPUS), "name": "corpus"}]}})
