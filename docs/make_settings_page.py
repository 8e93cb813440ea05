"""Write docs/reference/settings.md from the typed settings, so that the page and the code cannot disagree."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from endtask.config import BatchSize, Budget, Settings, SizeBudget, TextAmount
from endtask.config.messages import holds_named_sections, section_of
from endtask.config.section import PartSection

PAGE = Path(__file__).resolve().parent / "reference" / "settings.md"

INTRODUCTION = """# Settings

<!-- Made by `make docs` from src/endtask; change the descriptions there. -->

A run is described by one YAML (or JSON) file. Everything has a default, so a file holds only what differs:

```yaml
preset: laptop          # start from a shipped preset
task:
  path: data/my_task    # train, dev and test files
corpus:
  sources:
    - path: data/texts/*.jsonl.zst
budget: 10min
```

Later sources win: the [preset](presets.md), then the file, then flags, then `--set section.key=value`. An unknown key
is refused with the nearest right one. The complete settings are written into the run's folder and are accepted
back as a file.

A budget carries its unit: `600s`, `10min`, `2h`; `500ktok`, `50Mtok`, `1Gtok`; `2000steps`; `1e17flops`.
An amount of text likewise: `300MB`, `50000passages`, `5%`. A batch size is a number of texts, `256`, or an amount of
tokens, `32ktok`.
"""

_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Budget: "budget",
    SizeBudget: "amount of text",
    TextAmount: "amount of text, or a multiple",
    BatchSize: "batch size",
    type(None): "null",
}


_DOCUMENTED: dict[type[BaseModel], str] = {}
"""The sections that have a table already, with its title: others of the same form point to it."""


def page() -> str:
    """The whole page as Markdown."""
    _DOCUMENTED.clear()
    return INTRODUCTION + "".join(_section("Top level", Settings, "", Settings.__doc__))


def _section(
    title: str, model: type[BaseModel], prefix: str, meaning: str | None, *, of_part: bool = False
) -> Iterator[str]:
    """A table of the plain keys of a section, then the sections below it; options of a part have none below."""
    if model in _DOCUMENTED:
        yield f"\n## {title}\n\nThe same keys as {_DOCUMENTED[model]}.\n"
        return
    _DOCUMENTED[model] = title
    yield f"\n## {title}\n\n{_sentence(meaning)}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
    for name, field in model.model_fields.items():
        if of_part or section_of(model, name) is None:
            yield _row(prefix + name, field)
    for name in () if of_part else model.model_fields:
        below = section_of(model, name)
        if below is not None:
            named = ".NAME" if holds_named_sections(model, name) else ""
            path = f"{prefix}{name}[]." if _is_list(model.model_fields[name]) else f"{prefix}{name}{named}."
            yield from _section(f"`{path.removesuffix('.')}`", below, path, below.__doc__)
            if issubclass(below, PartSection):
                yield from _parts(below, path)


def _parts(section: type[PartSection], path: str) -> Iterator[str]:
    """The parts that a section may name, and the options of each."""
    registry, key = section.registry, section.part_key
    yield f"\n| `{path}{key}` | {registry.kind} |\n|---|---|\n"
    for name in registry.names():
        yield f"| `{name}` | {_sentence(registry.get(name).__doc__)} |\n"
    for name in registry.names():
        config = registry.get(name).Config
        if config.model_fields:
            title = f"`{path.removesuffix('.')}` with `{key}: {name}`"
            yield from _section(title, config, path, registry.get(name).__doc__, of_part=True)


def _row(key: str, field: FieldInfo) -> str:
    cells = (f"`{key}`", _kind(field.annotation), _default(field), field.description or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _kind(annotation: Any) -> str:
    """What may be written there, in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in parts)
    if origin is Annotated:
        return _kind(parts[0])
    if isinstance(annotation, type) and issubclass(annotation, PartSection):
        return f"{annotation.registry.kind} by name, or a section with its options"
    if origin is tuple:
        return f"list of: {_kind(parts[0])}"
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in parts)
    return _NAMES[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=True)
    plain = isinstance(value, str | Budget | SizeBudget | TextAmount | BatchSize) and value
    return f"`{value}`" if plain else f"`{json.dumps(value)}`"


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
