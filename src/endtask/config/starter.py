"""A commented starter file, made from the typed settings so that it cannot go stale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from endtask.config.budget import BatchSize
from endtask.config.part_section import PartSection
from endtask.config.root import Settings
from endtask.io.nested import in_yaml

_HEADING = """\
# Settings of an endtask run. Lines behind '#' show defaults; take the mark away to change them.
# Check this file and your data:  endtask check {path}
# Do the work:                    endtask run {path}
"""


def starter_yaml(
    path: str, *, task: str, corpus: list[dict[str, str]], output_dir: str, more: Mapping[str, object] | None = None
) -> str:
    """YAML with the few values that matter set, `more` of them by dotted key, every other behind a comment mark.

    >>> print(starter_yaml("my.yaml", task="data", corpus=[{"path": "*.txt"}], output_dir="runs/my").splitlines()[3])
    output_dir: runs/my  # the run's folder
    """
    values: dict[str, object] = {
        "output_dir": output_dir,
        "task.path": task,
        "corpus.sources": corpus,
        "budget": "10min",
        **(more or {}),
    }
    lines = _section_lines(Settings, "", values)
    return _HEADING.format(path=path) + "\n".join(lines) + "\n"


def values_by_key(tree: Mapping[str, Any], model: type[BaseModel] = Settings, prefix: str = "") -> dict[str, Any]:
    """The values of a nested mapping by the dotted keys that have a line of their own in the starter.

    >>> values_by_key({"seed": 1, "pretrain": {"seed": 9, "objectives": {"own": {"kind": "mlm"}}}})
    {'seed': 1, 'pretrain.seed': 9, 'pretrain.objectives': {'own': {'kind': 'mlm'}}}
    """
    found: dict[str, Any] = {}
    for name, value in tree.items():
        default = model.model_fields[name].get_default(call_default_factory=True)
        if isinstance(default, PartSection):
            given = {default.part_key: value} if isinstance(value, str) else value or {}
            found.update(values_by_key(given, default.for_part(default.chosen(given)), f"{prefix}{name}."))
        elif isinstance(default, BaseModel):
            found.update(values_by_key(value or {}, type(default), f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def _section_lines(model: type[BaseModel], prefix: str, values: dict[str, object]) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        key, default = f"{prefix}{name}", field.get_default(call_default_factory=True)
        margin = "  " * prefix.count(".")
        if isinstance(default, BaseModel):
            inner = _section_lines(type(default), f"{key}.", values)
            # Never behind a mark: a key below it is then changed by taking away one mark, its own.
            lines += ["", f"{margin}{name}:  # {_first_line(default)}", *inner]
        else:
            comment = f"  # {field.description}" if field.description else ""
            value = values.get(key, default)
            lines.append(f"{margin}{'' if key in values else '# '}{name}: {_inline(value)}{comment}")
    return lines


def _first_line(section: BaseModel) -> str:
    return (type(section).__doc__ or "").splitlines()[0]


def _inline(value: object) -> str:
    """A value on one line, in YAML."""
    plain = list(value) if isinstance(value, tuple) else value
    if isinstance(plain, dict):  # sections by name, of which only what differs is shown
        plain = {
            name: item.model_dump(mode="json", exclude_defaults=True) if isinstance(item, BaseModel) else item
            for name, item in plain.items()
        }
    plain = plain.amount if isinstance(plain, BatchSize) and plain.unit == "texts" else plain
    plain = plain if isinstance(plain, str | int | float | list | dict | None) else str(plain)
    return in_yaml(plain)
