"""The JSON schema of the settings, for editors: keys, types, meanings, and the options of every part."""

from __future__ import annotations

from typing import Any

from endtask.config.data import CorpusSettings, SourceSettings, TaskSettings
from endtask.config.messages import section_of
from endtask.config.preset_files import preset_names
from endtask.config.root import Settings
from endtask.config.section import PartSection, Section

Tree = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def settings_schema() -> Tree:
    """Return the schema of a settings file, with the parts that are registered now.

    >>> sorted(settings_schema()["properties"])[:3]
    ['aligned', 'budget', 'cluster']
    """
    schema = _with_parts(Settings)
    preset = {"type": "string", "enum": preset_names(), "description": "start from a shipped preset"}
    schema["properties"] = {"preset": preset, **schema["properties"]}
    _accept_plain_words(schema["$defs"])
    return {"$schema": _DIALECT, "title": "Settings of an endtask run", **_without_title(schema)}


def _with_parts(root: type[Section]) -> Tree:
    """Return the schema of a section in which sections that name a part accept the options of this part."""
    schema = root.model_json_schema()
    definitions: Tree = schema.setdefault("$defs", {})
    pending, done = _part_sections(root), set()
    while pending:
        section = pending.pop()
        if section not in done:
            done.add(section)
            definitions[section.__name__] = _any_part(section, definitions)
            for name in section.registry.names():  # a part may have sections that name parts
                pending += _part_sections(section.for_part(name))
    return schema


def _accept_plain_words(definitions: Tree) -> None:
    """Let the schemas accept a word where a section does, as in `task: labels.csv`."""
    for section in (TaskSettings, CorpusSettings, SourceSettings):
        whole = definitions[section.__name__]
        words: list[Tree] = [{"type": "string"}]
        if list in section.plain_types:
            sources = whole["properties"][section.plain_key]
            whole["properties"][section.plain_key] = {"anyOf": [{"type": "string"}, sources]}
            words.append(sources)
        definitions[section.__name__] = {"description": whole["description"], "anyOf": [*words, whole]}


def _part_sections(model: Any) -> list[type[PartSection]]:
    """Return the sections below a section that name a part."""
    found: dict[type[PartSection], None] = {}
    for name in model.model_fields:
        below = section_of(model, name)
        if below is None:
            continue
        if issubclass(below, PartSection):
            found[below] = None
        else:
            found |= dict.fromkeys(_part_sections(below))
    return list(found)


def _any_part(section: type[PartSection], definitions: Tree) -> Tree:
    """Return the schema of a section that may be the name of a part, or hold its name and options.

    The name may be missing: a preset, or an objective's own name, may give it.
    """
    registry, key = section.registry, section.part_key
    names = [name for name in registry.names() if _can_be_chosen(section, name)]
    choices: list[Tree] = [{"type": "string", "enum": names}]
    for name in names:
        concrete = section.for_part(name)
        schema = concrete.model_json_schema()
        for inner, tree in schema.pop("$defs", {}).items():
            definitions.setdefault(inner, tree)
        schema["properties"][key] = {"const": name, "description": _first_line(registry.get(name).__doc__)}
        schema.pop("required", None)
        definitions[concrete.__name__] = _without_title(schema)
        choices.append({"$ref": f"#/$defs/{concrete.__name__}"})
    return {"description": _first_line(section.__doc__), "anyOf": choices}


def _can_be_chosen(section: type[PartSection], name: str) -> bool:
    """Return whether the checks of a section accept a part at all, such as a metric that can choose between models."""
    part = section.registry.get(name)
    return bool(getattr(part, "decides", True) and getattr(part, "higher_is_better", True))


def _without_title(schema: Tree) -> Tree:
    return {key: value for key, value in schema.items() if key != "title"}


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n\n")[0].replace("\n", " ")
