"""Read settings from YAML, JSON, presets and `--set key=value`; every mistake becomes one line."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from endtask.config.automatic import automatic_preset, choose_checkpoint, leave_automatic
from endtask.config.messages import explain, holds_named_sections, section_of
from endtask.config.preset_files import preset_layers
from endtask.config.root import Settings
from endtask.config.section import PartSection, Section
from endtask.errors import InputError, did_you_mean_path
from endtask.io.input_files import open_file
from endtask.io.limits import MEGABYTE, SETTINGS
from endtask.io.parsing import ParseError, parse_json, parse_yaml
from endtask.io.tables import row_format

Tree = dict[str, Any]

_YAML_INDICATORS = frozenset("|>,#-:?&*!%@`")  # characters that cannot be a plain value in YAML
_NO_TEXT = re.compile("[\\x00\\ud800-\\udfff]")
_SUFFIXES = (".yaml", ".yml", ".json")


def load_settings(
    path: str | Path | None = None,
    *,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of preset, file, `given` (flags) and `--set` overrides; later ones win.

    The file is YAML or JSON and may itself name a `preset`. Settings without a preset and without an encoder start from
    `laptop` or `gpu-long`, by the machine.

    >>> load_settings(preset="laptop", overrides=["pretrain.learning_rate=2e-3"]).pretrain.learning_rate
    0.002
    """
    tree = read_tree(path) if path is not None else {}
    named_in_file = tree.pop("preset", None)
    layers = preset_layers(preset) if preset else _layers_named_in(path, named_in_file)
    own, _ = _merged((tree, given or {}), overrides)
    automatic = None if layers else automatic_preset(own)
    layers = preset_layers(automatic) if automatic else layers
    merged, overridden = _merged((*layers, tree, given or {}), overrides)
    leave_automatic(merged, own)
    choose_checkpoint(merged)
    return resolve(merged, where=str(path) if path is not None else None, overridden=overridden)


def _merged(layers: Iterable[Mapping[str, Any]], overrides: Iterable[str]) -> tuple[Tree, list[str]]:
    """Return layers and overrides as one tree, later ones first, and the keys of the overrides."""
    merged: Tree = {}
    for layer in layers:
        merge(merged, layer)
    overridden = [apply_override(merged, override) for override in overrides]
    return merged, overridden


def _layers_named_in(path: str | Path | None, preset: str | None) -> list[Tree]:
    """Return the layers of the preset that a file names; errors name the file."""
    try:
        return preset_layers(preset) if preset else []
    except InputError as error:
        raise InputError(error.message, path=path, key="preset", hint=error.hint) from None


def resolve(tree: Mapping[str, Any], where: str | None = None, overridden: Collection[str] = ()) -> Settings:
    """Return a nested mapping as typed settings; raises `InputError` for the first mistake.

    >>> resolve({"pretrain": {"learnin_rate": 1}})
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: key 'pretrain.learnin_rate': unknown setting (did you mean 'pretrain.learning_rate'?)
    """
    _check_texts(tree, where)
    try:
        return Settings.model_validate(_without_empty_sections(tree, Settings))
    except ValidationError as error:
        raise explain(error, where, overridden, tree=tree) from None


def _check_texts(value: Any, where: str | None, key: str = "") -> None:
    """Raise `InputError` for a NUL or half of a character, which no path, file or terminal takes."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_texts(inner, where, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_texts(inner, where, key)
    elif isinstance(value, str) and (wrong := _NO_TEXT.search(value)):
        raise InputError(f"holds {wrong[0]!r}, which no file or name can have", path=where, key=key)


def read_tree(path: str | Path) -> Tree:
    """Return the nested mapping in a YAML or JSON file."""
    path = Path(path)
    text = _read_text(path)
    is_json = path.suffix == ".json"
    try:
        tree = parse_json(text, unique_keys=True) if is_json else parse_yaml(text)
    except ParseError as error:
        message = f"not valid {'JSON' if is_json else 'YAML'}: {error}"
        raise InputError(message, path=path, row=error.row) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InputError("settings must be `key: value` lines", path=path)
    return tree


def _read_text(path: Path) -> str:
    if path.is_file() and path.suffix not in _SUFFIXES and row_format(path) is not None:
        raise InputError("a data file, not settings", path=path, hint=f"labelled data are set by --task {path}")
    if not path.exists():
        hint = did_you_mean_path(path, _settings_files(path.parent))
        raise InputError("no such settings file", path=path, hint=hint)
    longest = SETTINGS.value * MEGABYTE
    with open_file(path) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise InputError(f"too large for settings: over {SETTINGS.value} MB", path=path, hint=SETTINGS.hint)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        raise InputError("not valid UTF-8", path=path, row=row, hint="save the file as UTF-8") from None


def _settings_files(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return [path.name for path in folder.iterdir() if path.suffix in _SUFFIXES]


def _without_empty_sections(tree: Mapping[str, Any], model: type[BaseModel]) -> Tree:
    """Return the tree without sections whose keys are all commented out, which YAML reads as null."""
    filled: Tree = {}
    for key, value in tree.items():
        section = section_of(model, key)
        if section is not None and isinstance(value, Mapping):
            filled[key] = _without_empty_sections(value, section)
        elif section is None or value is not None:
            filled[key] = value
    return filled


def merge(base: Tree, change: Mapping[str, Any], model: type[BaseModel] | None = Settings) -> None:
    """Write `change` into `base`, section by section.

    Where `change` names another part in a section, the options of the previous part are dropped.
    """
    for key, value in change.items():
        section = section_of(model, key) if model is not None else None
        named = section is not None and model is not None and holds_named_sections(model, key)
        value = _spelled_out(value, section, named=named)
        if section is not None and named:
            for name, settings in value.items() if isinstance(value, Mapping) else ():
                _drop_options(base.get(key), name, settings, section)
        elif section is not None:
            _drop_options(base, key, value, section)
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value, section)
        elif value is None and isinstance(base.get(key), dict):
            continue  # a section whose keys are all commented out changes nothing
        else:
            # A copy, so that later overrides never reach into the caller's own mapping.
            base[key] = copy.deepcopy(value)


def _spelled_out(value: Any, section: type[BaseModel] | None, *, named: bool) -> Any:
    """Return a section, or sections by name, without plain words in place of a section, so that they can be merged."""
    if section is None or not issubclass(section, Section):
        return value
    if not named:
        return section.spelled_out(value)
    return {name: section.spelled_out(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def _drop_options(base: Any, key: str, value: Any, section: type[BaseModel]) -> None:
    """Drop the options of the part that `base[key]` names where `value` names another one."""
    if not issubclass(section, PartSection) or not isinstance(base, dict) or key not in base:
        return
    before, after = ({section.part_key: choice} if isinstance(choice, str) else choice for choice in (base[key], value))
    if not isinstance(before, Mapping) or not isinstance(after, Mapping) or section.part_key not in after:
        return
    if section.chosen(before) != section.chosen(after):
        base[key] = {name: option for name, option in before.items() if name in section.model_fields}
    else:
        base[key] = dict(before)


def apply_override(tree: Tree, override: str) -> str:
    """Apply one `section.key=value` and return the key; the value is read as YAML: numbers, lists, `null`."""
    key, equals, text = override.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise InputError(f"--set {override!r}: write it as key=value", hint="for example pretrain.learning_rate=1e-3")
    sections = _sections_along(names[:-1])
    parent = tree
    for name, section in zip(names[:-1], sections, strict=True):
        if tree.get(name) is None:
            tree[name] = {}
        tree[name] = _spelled_out(tree[name], section, named=False)
        if isinstance(tree[name], str) and section is not None and issubclass(section, PartSection):
            tree[name] = {section.part_key: tree[name]}
        if not isinstance(tree[name], dict):
            raise InputError(f"--set {override!r}: {name!r} is a value, not a section")
        parent, tree = tree, tree[name]
    try:
        value = _value(text)
    except ParseError as error:
        raise InputError(f"--set {override!r}: the value is not valid YAML: {error}") from None
    section = sections[-1] if sections else None
    if section is not None and issubclass(section, PartSection) and names[-1] == section.part_key:
        _drop_options(parent, names[-2], {names[-1]: value}, section)
        tree = parent[names[-2]]
    if isinstance(value, str) and isinstance(tree.get(names[-1]), dict):
        value = {**tree[names[-1]], **spelled} if isinstance(spelled := _spelled(names, value), dict) else value
    tree[names[-1]] = value
    return ".".join(names)


def _spelled(names: Sequence[str], value: str) -> Any:
    """Return a plain word for a section as the keys that it sets; other words unchanged."""
    return _spelled_out(value, _sections_along(names)[-1], named=False)


def _sections_along(names: Sequence[str]) -> list[type[BaseModel] | None]:
    """Return the section that each of some nested keys leads to; None for values and for sections by name."""
    sections: list[type[BaseModel] | None] = []
    model: type[BaseModel] | None = Settings
    named: type[BaseModel] | None = None
    for name in names:
        if named is not None:
            model, named = named, None
        elif model is not None and holds_named_sections(model, name):
            named, model = section_of(model, name), None
        else:
            model = section_of(model, name) if model is not None else None
        sections.append(model)
    return sections


def _value(text: str) -> Any:
    """Return a value as YAML reads it; an indicator of YAML alone, such as the delimiter `|`, is a string."""
    stripped = text.strip()
    return stripped if stripped in _YAML_INDICATORS else parse_yaml(text)


def dump_yaml(settings: Settings) -> str:
    """Return the settings as YAML that `load_settings` reads back."""
    tree = settings.model_dump(mode="json")
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    # PyYAML writes the character NEL as it is but reads it back as a line end; escaped, it survives.
    return yaml.safe_dump(tree, sort_keys=False) if "\x85" in text else text
