"""Write docs/settings.md from the typed settings, so that the page and the code cannot disagree."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from endtask.config import BatchSize, Budget, Settings, SizeBudget, TextAmount
from endtask.config.messages import holds_named_sections, section_of

PAGE = Path(__file__).resolve().parent / "settings.md"

INTRODUCTION = """# Settings

<!-- Made by `make docs` from src/endtask/settings; change the descriptions there. -->

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


def page() -> str:
    """The whole page as Markdown."""
    return INTRODUCTION + "".join(_section("Top level", Settings, "", Settings.__doc__))


def _section(title: str, model: type[BaseModel], prefix: str, meaning: str | None) -> Iterator[str]:
    yield f"\n## {title}\n\n{_sentence(meaning)}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
    for name, field in model.model_fields.items():
        if section_of(model, name) is None:
            yield _row(prefix + name, field)
    for name in model.model_fields:
        below = section_of(model, name)
        if below is not None:
            named = ".NAME" if holds_named_sections(model, name) else ""
            path = f"{prefix}{name}[]." if _is_list(model.model_fields[name]) else f"{prefix}{name}{named}."
            yield from _section(f"`{path.removesuffix('.')}`", below, path, below.__doc__)


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
    if origin is tuple:
        return f"list of: {_kind(parts[0])}"
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in parts)
    return _NAMES[annotation]


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "(required)"
    value = field.default
    plain = isinstance(value, str | Budget | SizeBudget | TextAmount | BatchSize) and value
    return f"`{value}`" if plain else f"`{json.dumps(value)}`"


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
