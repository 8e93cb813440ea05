"""`endtask init`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from endtask.cli.options import CorpusOption, SetOption, TaskOption, examples, source_settings
from endtask.config import BatchSize, Settings, load_settings
from endtask.config.loading import apply_override
from endtask.config.section import PartSection
from endtask.errors import InputError
from endtask.io.atomic import write_text
from endtask.io.nested import in_yaml
from endtask.terminal import print_lines

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
    """Write a commented settings file to start from; an existing file is not changed."""
    if path.suffix not in (".yaml", ".yml"):
        hint = "give labelled data by --task" if path.exists() else "choose a name that ends in .yaml"
        raise InputError("the settings are written as YAML", path=path, hint=hint)
    if path.exists() or path.is_symlink():
        raise InputError("the file exists and was left as it is", path=path, hint="choose another name")
    if not path.parent.is_dir():
        raise InputError("no such folder", path=path.parent)
    sources = [source_settings(entry) for entry in corpus or ["path/to/corpus/*.jsonl.zst"]]
    requested = _override_values(overrides or [])
    proposed = _aligned_settings(task, corpus, sources, overrides or []) if align else {}
    text = starter_yaml(
        str(path),
        task=task or "path/to/task",
        corpus=sources,
        output_dir=str(output or f"runs/{path.stem}"),
        extra={**proposed, **requested},
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


def _aligned_settings(
    task: str | None, corpus: list[str] | None, sources: list[dict[str, str]], overrides: list[str]
) -> dict[str, Any]:
    """Return the settings of an aligned objective for this task and corpus."""
    if task is None or not corpus:
        raise InputError("an objective is proposed for a task and a corpus", hint="--task ... --corpus ... --align")
    from endtask.pipeline.propose_alignment import propose
    from endtask.task import Task

    settings = load_settings(given={"task": {"path": task}}, overrides=overrides)
    proposal = propose(Task.read(settings.task, seed=settings.seed), sources)
    print_lines(f"aligned objective: {proposal.reason}")
    return proposal.settings


_HEADING = """\
# Settings of an endtask run. Lines after '#' show defaults; remove the '#' to change them.
# Check this file and your data:  endtask check {path}
# Train the model:                endtask run {path}
"""


def starter_yaml(
    path: str, *, task: str, corpus: list[dict[str, str]], output_dir: str, extra: Mapping[str, object] | None = None
) -> str:
    """Return YAML that sets the most important values and those of `extra`, with all other settings in comments.

    >>> print(starter_yaml("my.yaml", task="data", corpus=[{"path": "*.txt"}], output_dir="runs/my").splitlines()[3])
    output_dir: runs/my  # the run's folder
    """
    values: dict[str, object] = {
        "output_dir": output_dir,
        "task.path": task,
        "corpus.sources": corpus,
        "budget": "10min",
        **(extra or {}),
    }
    lines = _section_lines(Settings, "", values)
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


def _section_lines(model: type[BaseModel], prefix: str, values: dict[str, object]) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        key, default = f"{prefix}{name}", field.get_default(call_default_factory=True)
        indent = "  " * prefix.count(".")
        if isinstance(default, BaseModel):
            section = type(default)
            if isinstance(default, PartSection):  # show the options of the part in `values`
                part_name = values.get(f"{key}.{default.part_key}", getattr(default, default.part_key))
                section = default.for_part(str(part_name))
            summary = (type(default).__doc__ or "").splitlines()[0]
            # A section is no comment, so that a user removes a single '#' to change a key in it.
            lines += ["", f"{indent}{name}:  # {summary}", *_section_lines(section, f"{key}.", values)]
        else:
            comment = f"  # {field.description}" if field.description else ""
            value = values.get(key, default)
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
