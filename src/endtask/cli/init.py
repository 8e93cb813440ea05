"""`endtask init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from endtask.cli.options import CorpusOption, OutputOption, TaskOption, examples, source_settings
from endtask.errors import InputError
from endtask.files.atomic import write_text
from endtask.settings.starter import starter_yaml

NAME = "init"
EXAMPLES = examples(
    "endtask init my-task.yaml",
    "endtask init my-task.yaml --task labels.csv --corpus 'notes/*.txt'",
)


def command(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The settings file to write.")] = Path("endtask.yaml"),
    task: TaskOption = None,
    corpus: CorpusOption = None,
    output: OutputOption = None,
) -> None:
    """Write a commented settings file to start from; a file that is there is left alone."""
    if path.exists() or path.is_symlink():
        raise InputError("the file exists and was left as it is", path=path, hint="choose another name")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError("the settings are written as YAML", path=path, hint="choose a name that ends in .yaml")
    if not path.parent.is_dir():
        raise InputError("no such folder", path=path.parent)
    text = starter_yaml(
        str(path),
        task=task or "path/to/task",
        corpus=[source_settings(entry) for entry in corpus or ["path/to/corpus/*.jsonl.zst"]],
        output_dir=str(output or f"runs/{path.stem}"),
    )
    write_text(path, text)
    print(f"wrote {path}; next: endtask check {path}")
