"""The JSON schema of the settings against the settings themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import yaml

from endtask.config import Settings, load_settings
from endtask.config.preset_files import _FOLDER
from endtask.config.schema import settings_schema
from endtask.errors import InputError
from endtask.registry import selectors
from tests.conftest import Answer


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = settings_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def with_numbers(value: Any) -> Any:
    """The numbers that PyYAML reads as text (`1e-3`), which editors read as numbers."""
    if isinstance(value, dict):
        return {key: with_numbers(item) for key, item in value.items()}
    try:
        return float(value) if isinstance(value, str) and value[:1].isdigit() else value
    except ValueError:
        return value


@pytest.mark.parametrize("name", sorted(file.name for file in _FOLDER.iterdir() if file.name.endswith(".yaml")))
def test_the_presets_fit(validator: jsonschema.Draft202012Validator, name: str) -> None:
    tree = with_numbers(yaml.safe_load((_FOLDER / name).read_text(encoding="utf-8")))
    assert [error.message for error in validator.iter_errors(tree)] == []


@pytest.mark.parametrize("name", selectors.names())
def test_resolved_settings_fit(validator: jsonschema.Draft202012Validator, name: str) -> None:
    path = {"path": "ids.txt"} if name == "imported" else {}
    settings = load_settings(given={"select": {"name": name, **path}}).model_dump(mode="json")
    assert [error.message for error in validator.iter_errors(json.loads(json.dumps(settings)))] == []


GOOD: list[dict[str, Any]] = [
    {"task": "labels.csv", "corpus": ["notes/*.txt", {"path": "b.jsonl"}]},
    {"task": {"path": "labels.csv"}, "corpus": {"sources": "notes/*.txt"}},
    {"preset": "laptop", "budget": "10min"},
    {"select": "dsir", "budget": 90},
    {"select": {"name": "fusion", "selectors": ["dsir", {"name": "best_rank"}]}},
    {"pretrain": {"objectives": {"task": {"rho2": 3}}, "weighting": "equal"}},
    {"pretrain": {"batch_size": "32ktok"}, "finetune": {"batch_size": 16, "learning_rate": [1e-4, 3e-4]}},
]
BAD: list[dict[str, Any]] = [
    {"pretrain": {"learnin_rate": 1}},
    {"select": {"name": "dsri"}},
    {"select": {"name": "dsir", "epochs": 3}},
    {"budget": True},
    {"budget": "much"},
    {"finetune": {"epochs": 0}},
    {"model": {"architecture": "lean", "dropout": 1.5}},
]


@pytest.mark.parametrize("tree", GOOD)
def test_what_the_settings_accept_fits(validator: jsonschema.Draft202012Validator, tree: dict[str, Any]) -> None:
    given = {key: value for key, value in tree.items() if key != "preset"}
    load_settings(preset=tree.get("preset"), given=given)  # raises for what the settings refuse
    assert validator.is_valid(tree)


@pytest.mark.parametrize("tree", BAD)
def test_what_the_settings_refuse_does_not_fit(
    validator: jsonschema.Draft202012Validator, tree: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        load_settings(given=tree)
    assert not validator.is_valid(tree)


def test_every_part_and_key_has_its_meaning() -> None:
    schema = settings_schema()
    names = {
        choice["const"]
        for name, tree in schema["$defs"].items()
        if name.startswith("SelectSettings_")
        for choice in [tree["properties"]["name"]]
    }
    assert names == set(selectors.names())
    assert schema["properties"]["seed"]["description"] == Settings.model_fields["seed"].description


def test_the_command_prints_it(command: Callable[..., Answer]) -> None:
    assert json.loads(command("schema").out) == json.loads(json.dumps(settings_schema()))
