"""`endtask init`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel

from endtask.cli.options import CorpusOption, SetOption, TaskOption, examples, source_settings
from endtask.config import BatchSize, ColumnSettings, Settings, load_settings
from endtask.config.loading import apply_override
from endtask.config.model import AUTO
from endtask.config.section import PartSection
from endtask.errors import InputError
from endtask.io.atomic import write_text
from endtask.io.nested import in_yaml
from endtask.progress import say
from endtask.terminal import print_lines

if TYPE_CHECKING:
    from endtask.task.guess import GuessedTask

NAME = "init"
EXAMPLES = examples(
    "endtask init my-task.yaml",
    "endtask init my-task.yaml --task labels.csv --corpus 'notes/*.txt'",
    "endtask init my-task.yaml --task labels.csv --corpus wiki.jsonl --align",
    "endtask init my-task.yaml --task labels.csv --set task.columns.text=abstract --corpus wiki.jsonl --align",
)


def command(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The settings file to write.")] = Path("endtask.yaml"),
    task: TaskOption = None,
    corpus: CorpusOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FOLDER", help="The run's folder [runs/ and FILE without .yaml]."),
    ] = None,
    overrides: SetOption = None,
    align: Annotated[
        bool, typer.Option("--align", help="Read the task, and propose a pre-training objective with its form.")
    ] = False,
) -> None:
    """Write a short settings file to start from; an existing file is not changed.

    Without --task and --corpus, they are the files in this folder that look like it. Unusual columns are guessed.
    """
    if path.suffix not in (".yaml", ".yml"):
        hint = "give labelled data by --task" if path.exists() else "choose a name that ends in .yaml"
        raise InputError("the settings are written as YAML", path=path, hint=hint)
    if path.exists() or path.is_symlink():
        raise InputError("the file exists and was left as it is", path=path, hint="choose another name")
    if not path.parent.is_dir():
        raise InputError("no such folder", path=path.parent)
    requested = _override_values(overrides or [])
    guessed = _guess_task(task, requested)
    found = task or (guessed.path if guessed else None)
    columns = {f"task.columns.{role}": name for role, name in guessed.columns.items()} if guessed else {}
    guesses = [f"{key}={in_yaml(name)}" for key, name in columns.items()]
    proposed = _aligned_settings(task, corpus, [*guesses, *(overrides or [])]) if align else {}
    text = starter_yaml(
        str(path),
        task=found or "path/to/task",
        corpus=[source_settings(entry) for entry in corpus or _find_corpus(Path(), found) or [_NO_CORPUS]],
        output_dir=str(output or f"runs/{path.stem}"),
        extra={**columns, **proposed, **requested},
        about_task=str(guessed or ""),
    )
    write_text(path, text)
    print_lines(f"wrote {path}; next: endtask check {path}")


def _override_values(overrides: list[str]) -> dict[str, Any]:
    """Return the values of `--set` by dotted key. Raise `InputError` if settings with them are not valid."""
    tree: dict[str, Any] = {}
    for override in overrides:
        apply_override(tree, override)
    load_settings(overrides=overrides)
    return values_by_key(tree)


_NO_CORPUS = "path/to/corpus/*.jsonl.zst"
_SMALL_FILE = 100_000
"""Smaller files of a folder are taken for notes about it rather than for a corpus."""


def _guess_task(path: str | None, requested: Mapping[str, Any]) -> GuessedTask | None:
    """Return the task at a path, or one in this folder, with guessed columns; says why where there is none."""
    from endtask.task.guess import find_task, guess_task

    columns = {key.removeprefix("task.columns."): value for key, value in requested.items() if "task.columns" in key}
    if path is None:
        return find_task(Path())
    if not Path(path).exists():
        return None
    try:
        return guess_task(path, ColumnSettings(**columns))
    except InputError as error:
        say(f"note: {error}")
        return None


def _find_corpus(folder: Path, task: str | None) -> list[str]:
    """Return the folders and larger files of a folder that can be read as text, without the task."""
    from endtask.corpus.sources import find_files

    found = []
    for entry in sorted(folder.iterdir()):
        is_small = entry.is_file() and entry.stat().st_size < _SMALL_FILE
        if is_small or entry.name.startswith(".") or entry.name == "runs" or str(entry) == task:
            continue
        with suppress(InputError):
            find_files(str(entry))
            found.append(f"{entry}/" if entry.is_dir() else str(entry))
    return found


def _aligned_settings(task: str | None, corpus: list[str] | None, overrides: list[str]) -> dict[str, Any]:
    """Return the settings of an aligned objective for this task and corpus."""
    if task is None or not corpus:
        raise InputError("an objective is proposed for a task and a corpus", hint="--task ... --corpus ... --align")
    from endtask.pipeline.propose_alignment import propose
    from endtask.task import Task

    settings = load_settings(given={"task": {"path": task}}, overrides=overrides)
    proposal = propose(Task.read(settings.task, seed=settings.seed), [source_settings(entry) for entry in corpus])
    print_lines(f"aligned objective: {proposal.reason}")
    return proposal.settings


_HEADING = """\
# Settings of an endtask run. Lines after '#' show defaults; remove the '#' to change them.
# All keys and their meanings: docs/reference/settings.md, or `endtask schema` for an editor.
# Check this file and your data:  endtask check {path}
# Train the model:                endtask run {path}
"""
_SHOWN = (
    "task.type",
    "task.dev_fraction",
    "task.test_fraction",
    "select.name",
    "select.budget",
    "model.path",
    "finetune.epochs",
    "finetune.seeds",
    "finetune.learning_rate",
    "evaluate.metric",
)
"""Settings that the starter shows as comments; the others are in the reference."""


def starter_yaml(
    path: str,
    *,
    task: str,
    corpus: list[dict[str, str]],
    output_dir: str,
    extra: Mapping[str, object] | None = None,
    about_task: str = "",
) -> str:
    """Return YAML that sets the most important values and those of `extra`, with some other settings in comments.

    >>> print(starter_yaml("my.yaml", task="data", corpus=[{"path": "*.txt"}], output_dir="runs/my").splitlines()[4])
    output_dir: runs/my  # the run's folder
    """
    shown = {**values_by_key(load_settings().model_dump(mode="json")), "model.path": AUTO}
    values: dict[str, object] = {
        "output_dir": output_dir,
        "task.path": task,
        "corpus.sources": [source["path"] if source.keys() == {"path"} else source for source in corpus],
        "budget": "10min",
        **(extra or {}),
    }
    lines = _section_lines(Settings, "", values, shown)
    if about_task:
        lines = [
            f"{line.partition('  # ')[0]}  # {about_task}" if line.startswith("  path: ") else line for line in lines
        ]
    return _HEADING.format(path=path) + "\n".join(lines) + "\n"


def values_by_key(tree: Mapping[str, Any], model: type[BaseModel] = Settings, prefix: str = "") -> dict[str, Any]:
    """Return the values of a nested mapping by the dotted keys that have a line in the settings file.

    >>> values_by_key({"seed": 1, "pretrain": {"seed": 9, "objectives": {"own": {"kind": "mlm"}}}})
    {'seed': 1, 'pretrain.seed': 9, 'pretrain.objectives': {'own': {'kind': 'mlm'}}}
    """
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        default = model.model_fields[name].get_default(call_default_factory=True)
        if isinstance(default, PartSection):
            section = {default.part_key: value} if isinstance(value, str) else value or {}
            flat.update(values_by_key(section, default.for_part(default.chosen(section)), f"{prefix}{name}."))
        elif isinstance(default, BaseModel):
            flat.update(values_by_key(value or {}, type(default), f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _section_lines(
    model: type[BaseModel], prefix: str, values: dict[str, object], defaults: Mapping[str, object]
) -> list[str]:
    """Return a line for each key of a section that has a value or is shown as a comment."""
    lines = []
    for name, field in model.model_fields.items():
        key, default = f"{prefix}{name}", field.get_default(call_default_factory=True)
        if not any(shown == key or shown.startswith(f"{key}.") for shown in (*values, *_SHOWN)):
            continue
        indent = "  " * prefix.count(".")
        if isinstance(default, BaseModel):
            section = type(default)
            if isinstance(default, PartSection):  # show the options of the part in `values`
                part_name = values.get(f"{key}.{default.part_key}", getattr(default, default.part_key))
                section = default.for_part(str(part_name))
            # A section is no comment, so that a user removes a single '#' to change a key in it.
            lines += [f"{indent}{name}:", *_section_lines(section, f"{key}.", values, defaults)]
        else:
            comment = (
                f"  # {shorten(field.description.split(';')[0], 90, placeholder=' ...')}" if field.description else ""
            )
            value = values.get(key, defaults.get(key, default))
            lines.append(f"{indent}{'' if key in values else '# '}{name}: {_inline(value)}{comment}")
    return lines


def _inline(value: object) -> str:
    """Return a value as YAML on one line."""
    plain = list(value) if isinstance(value, tuple) else value
    if isinstance(plain, dict):  # sections by name, without their default values
        plain = {
            name: item.model_dump(mode="json", exclude_defaults=True) if isinstance(item, BaseModel) else item
            for name, item in plain.items()
        }
    plain = plain.amount if isinstance(plain, BatchSize) and plain.unit == "texts" else plain
    plain = plain if isinstance(plain, str | int | float | list | dict | None) else str(plain)
    return in_yaml(plain)
