"""`endtask init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from endtask.cli.options import CorpusOption, SetOption, TaskOption, examples, source_settings
from endtask.config import load_settings
from endtask.config.loading import apply_override
from endtask.config.starter import starter_yaml, values_by_key
from endtask.errors import InputError
from endtask.io.atomic import write_text

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
        bool, typer.Option("--align", help="Read the task, and propose an objective shaped like it for pre-training.")
    ] = False,
) -> None:
    """Write a commented settings file to start from; a file that is there is left alone."""
    if path.suffix not in (".yaml", ".yml"):
        hint = "labelled data come by --task" if path.exists() else "choose a name that ends in .yaml"
        raise InputError("the settings are written as YAML", path=path, hint=hint)
    if path.exists() or path.is_symlink():
        raise InputError("the file exists and was left as it is", path=path, hint="choose another name")
    if not path.parent.is_dir():
        raise InputError("no such folder", path=path.parent)
    sources = [source_settings(entry) for entry in corpus or ["path/to/corpus/*.jsonl.zst"]]
    requested = _requested(overrides or [])
    more = _aligned(task, corpus, sources, overrides or []) if align else {}
    text = starter_yaml(
        str(path),
        task=task or "path/to/task",
        corpus=sources,
        output_dir=str(output or f"runs/{path.stem}"),
        more={**more, **requested},
    )
    write_text(path, text)
    print(f"wrote {path}; next: endtask check {path}")


def _requested(overrides: list[str]) -> dict[str, Any]:
    """What `--set` says, by dotted key; checked as every command does."""
    tree: dict[str, Any] = {}
    for override in overrides:
        apply_override(tree, override)
    load_settings(overrides=overrides)
    return values_by_key(tree)


def _aligned(
    task: str | None, corpus: list[str] | None, sources: list[dict[str, str]], overrides: list[str]
) -> dict[str, Any]:
    """The settings of an aligned objective for this task and corpus."""
    if task is None or not corpus:
        raise InputError("an objective is proposed for a task and a corpus", hint="--task ... --corpus ... --align")
    from endtask.pipeline.propose_alignment import propose
    from endtask.task import Task

    settings = load_settings(given={"task": {"path": task}}, overrides=overrides)
    proposal = propose(Task.read(settings.task, seed=settings.seed), sources)
    print(f"aligned objective: {proposal.reason}")
    return proposal.settings
