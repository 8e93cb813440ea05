"""Which settings a stage depends on, and the hash that identifies its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endtask.config import Settings
from endtask.config.part_section import non_defaults
from endtask.config.section import Section
from endtask.io.digests import fingerprint
from endtask.pipeline.stage import Stage

SCHEMA_VERSION = 1
"""Raise it when a default value or the meaning of a setting changes: older stages are then made anew."""


def stage_fingerprint(stage: Stage, settings: Settings, inputs: Mapping[str, str]) -> str:
    """Return the hash of a stage: its settings that differ from the defaults, and the digests of its inputs."""
    return fingerprint(stage.name, SCHEMA_VERSION, changed_values(stage, settings), dict(inputs))


def changed_values(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Return the values that a stage reads and that differ from the defaults, by dotted key."""
    values = {key: _changed(settings, key) for key in stage.settings_read(settings)}
    return {key: value for key, value in values.items() if value is not None}


def values_read(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Return all values that a stage reads, by dotted key, for people to read in the manifest."""
    tree = settings.model_dump(mode="json")
    return {key: _at(tree, key) for key in stage.settings_read(settings)}


def _changed(settings: Settings, key: str) -> Any:
    """Return the value at a key, without what has its default value; None where nothing differs."""
    *above, last = key.split(".")
    section: Any = settings
    for name in above:
        section = getattr(section, name)
    value = getattr(section, last)
    if isinstance(value, Section):
        return non_defaults(value) or None
    return non_defaults(section).get(last)


def _at(tree: Mapping[str, Any], key: str) -> Any:
    value: Any = tree
    for name in key.split("."):
        value = value[name]
    return value
