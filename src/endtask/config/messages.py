"""Turn validation errors of settings into one line with the nearest right key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from endtask.config.objectives import no_name
from endtask.config.root import Settings
from endtask.config.section import PartSection
from endtask.errors import InputError, did_you_mean, nearest

Location = tuple[int | str, ...]

_KEY_ITSELF = "[key]"  # the last part of the location where pydantic complains about a key, not its value

_PLAIN_WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a section of `key: value` lines",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "invalid_key": "a key must be text",
    "missing": "is required",
    "model_type": "must be a section of `key: value` lines",
    "string_type": "must be text",
    "too_short": "must not be empty",
    "tuple_type": "must be a list such as [a, b]",
}
_OTHER_KEYS = {
    "bf16": "precision",
    "fp16": "precision",
    "lr": "learning_rate",
    "max_seq_length": "max_length",
    "max_steps": "budget",
    "metric_for_best_model": "evaluate.metric",
    "mlm_probability": "mask_probability",
    "model_name_or_path": "model.path",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "save_steps": "checkpoint_steps",
    "tokenizer_name": "tokenizer.path",
    "torch_compile": "compile",
    "use_cpu": "device",
    "warmup_ratio": "warmup_steps",
}
"""Names of Hugging Face's TrainingArguments and scripts, and our key: in the same section, or dotted."""


def explain(
    error: ValidationError,
    where: str | None,
    overridden: Collection[str] = (),
    root: type[BaseModel] = Settings,
    tree: Mapping[str, Any] | None = None,
) -> InputError:
    """Return the first mistake as one line; `where` names the file, unless the key came from `--set`.

    `tree` is the validated mapping, which holds the names of sections that users name themselves.
    """
    complaints = error.errors()
    # A misspelt key also leaves the right one unset, so the misspelling comes first.
    unknown = (complaint for complaint in complaints if complaint["type"] == "extra_forbidden")
    first = next((complaint for complaint in unknown if not _lacks_part(complaint, tree or {}, root)), complaints[0])
    if first["loc"][-1:] == (_KEY_ITSELF,) and first["type"] != "extra_forbidden":  # a setting may have this name
        *parents, name, _ = first["loc"]
        return InputError(no_name(name), path=where, key=_dotted(tuple(parents)))
    location = _location_of(tuple(first["loc"]), root)
    if first["type"] == "extra_forbidden":
        return _unknown_setting(location, where, overridden, root, tree or {})
    same_location = [complaint for complaint in complaints if _location_of(tuple(complaint["loc"]), root) == location]
    message = " or ".join(dict.fromkeys(map(_in_plain_words, same_location)))
    # Each branch of a union has its own complaint: "must be more than 0 or must be 'auto'".
    message = message.replace(" or must be ", " or ")
    location, message = _split_key(location, message, root, tree or {})
    path = _origin(_dotted(location), message, where, overridden)
    if first["type"] == "missing":  # in a section that `--set` may have made
        path = "--set" if _sets_below(location[:-1], overridden) else path
        has_weight_only = isinstance(first["input"], dict) and first["input"].keys() == {"weight"}
        if (path == "--set" or has_weight_only) and _is_named(location[:-1], root):
            return _unknown_name(location, path, tree or {})
    hint = _right_value(same_location)
    return InputError(message + _got(first), path=path, key=_dotted(location) or None, hint=hint)


def _unknown_setting(
    location: Location,
    where: str | None,
    overridden: Collection[str],
    root: type[BaseModel],
    tree: Mapping[str, Any],
) -> InputError:
    key = _dotted(location)
    # `--set fintune.epochs=3` makes an unknown section: the complaint is about the section alone.
    path = "--set" if _sets_below(location, overridden) else _origin(key, "", where, overridden)
    part = _part_section_at(location[:-1], root, tree)
    if part is not None and (owners := _owners(part, str(location[-1]))):
        message = f"{part.registry.kind} {part.part_name!r} has no such option"
        hint = f"it is an option of {part.part_key}: {' or '.join(owners)}"
        return InputError(message, path=path, key=key, hint=hint)
    hint = _right_key(location, root, part or _section_at(location[:-1], root) or root)
    return InputError("unknown setting", path=path, key=key, hint=hint)


def _part_section_at(location: Location, root: type[BaseModel], tree: Mapping[str, Any]) -> type[PartSection] | None:
    """Return the section at a location with the options of its part; None for a section without a part."""
    section = _section_at(location, root)
    if section is None or not issubclass(section, PartSection):
        return None
    value: Any = tree
    for part in location:
        value = value.get(part) if isinstance(value, Mapping) else None
    try:
        return section.for_part(section.chosen(value if isinstance(value, Mapping) else {}))
    except InputError:  # no part, or an unknown one
        return None


def _owners(section: type[PartSection], option: str) -> list[str]:
    """Return the names of the parts that have an option."""
    registry = section.registry
    return [name for name in registry.names() if option in registry.get(name).Config.model_fields]


def _lacks_part(complaint: Any, tree: Mapping[str, Any], root: type[BaseModel]) -> bool:
    """Return whether a key is unknown only because its section does not name the part that has this option."""
    *parents, option = complaint["loc"]
    section = _section_at(tuple(parents), root)
    if section is None or not issubclass(section, PartSection) or _part_section_at(tuple(parents), root, tree):
        return False
    return bool(_owners(section, str(option)))


def section_of(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Return the section that a key holds, or a list or mapping of which it holds; None for a plain value."""
    field = model.model_fields.get(key)
    annotations = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
    types = [get_args(each)[0] if get_origin(each) is Annotated else each for each in annotations]
    return next((each for each in types if isinstance(each, type) and issubclass(each, BaseModel)), None)


def holds_named_sections(model: type[BaseModel], key: str) -> bool:
    """Whether a key holds sections under names of the user's own, such as `pretrain.objectives`."""
    field = model.model_fields.get(key)
    return field is not None and get_origin(field.annotation) is dict


def _location_of(reported: Location, root: type[BaseModel]) -> Location:
    """Return the location as the user typed it: pydantic adds the name of a union's branch at the end."""
    location: list[int | str] = []
    for part in reported:
        if isinstance(part, str) and _section_at(tuple(location), root) is None:
            break
        location.append(part)
    return tuple(location)


def _split_key(
    location: Location, message: str, root: type[BaseModel], tree: Mapping[str, Any]
) -> tuple[Location, str]:
    """Move the key that begins a message to the location: checks over several keys of a section name one of them."""
    model: type[BaseModel] | None = _part_section_at(location, root, tree) or _section_at(location, root)
    word, _, remaining = message.partition(" ")
    keys = word.removesuffix(":").split(".")
    names = iter(keys)
    for name in names:
        if model is None or name not in model.model_fields:
            return location, message
        if holds_named_sections(model, name):
            next(names, None)
        model = section_of(model, name)
    return (*location, *keys), remaining


def _sets_below(location: Location, overridden: Collection[str]) -> bool:
    return any(name.startswith(f"{_dotted(location)}.") for name in overridden)


def _is_named(location: Location, root: type[BaseModel]) -> bool:
    """Whether a location is that of a section under a name of the user's own."""
    parent = _section_at(location[:-2], root)
    return len(location) > 1 and parent is not None and holds_named_sections(parent, str(location[-2]))


def _unknown_name(location: Location, path: str | None, tree: Mapping[str, Any]) -> InputError:
    """Return the error for a section without its required key: its name is probably misspelt, not new.

    >>> objectives = {"dap": {"weight": 1}, "dapt": {"kind": "mlm"}}
    >>> print(_unknown_name(("pretrain", "objectives", "dap", "kind"), None, {"pretrain": {"objectives": objectives}}))
    key 'pretrain.objectives.dap': there is no objective of this name, and a new one needs a kind (did you mean 'dapt'?)
    """
    *parents, name, needed = location
    siblings: Any = tree
    for part in parents:
        siblings = siblings.get(part) if isinstance(siblings, Mapping) else None
    others = [str(other) for other in siblings if other != name] if isinstance(siblings, Mapping) else []
    message = f"there is no {str(parents[-1]).removesuffix('s')} of this name, and a new one needs a {needed}"
    hint = did_you_mean(str(name), others) if others else None
    return InputError(message, path=path, key=_dotted(location[:-1]), hint=hint)


def _origin(key: str, message: str, where: str | None, overridden: Collection[str]) -> str | None:
    """Return the file, or `--set` if it set the key, a section around it, or another key that the message names."""
    named = {word.strip(":;,") for word in message.split()}
    is_set = any(key == name or key.startswith(f"{name}.") or name in named for name in overridden)
    return "--set" if is_set else where


def _section_at(location: Location, root: type[BaseModel]) -> type[BaseModel] | None:
    """Return the section at a location; None for a plain value."""
    model: type[BaseModel] | None = root
    parts = iter(location)
    for part in parts:
        if isinstance(part, str) and model is not None:
            if holds_named_sections(model, part):
                next(parts, None)
            model = section_of(model, part)
    return model


def _right_key(location: Location, root: type[BaseModel], section: type[BaseModel]) -> str:
    """Return a hint: our name for Hugging Face's, the nearest key, the same key of another section, or all keys."""
    wrong, own_key = str(location[-1]), _OTHER_KEYS.get(str(location[-1]))
    if own_key is not None and (keys := _keys_named(own_key, location[:-1], root)):
        return _did_you_mean_any(keys)
    siblings = section.model_fields
    if nearest(wrong, siblings) is None and (elsewhere := _keys_named(wrong, location[:-1], root)):
        return _did_you_mean_any(elsewhere)
    hint, prefix = did_you_mean(wrong, siblings), _dotted(location[:-1])
    return hint.replace("did you mean '", f"did you mean '{prefix}.") if prefix else hint


def _keys_named(name: str, parents: Location, root: type[BaseModel]) -> list[str]:
    """Return the dotted keys with a name: the key of its section, else those of the fewest levels.

    >>> _keys_named("seed", ("pretrain",), Settings), _keys_named("epochs", ("pretrain",), Settings)
    (['pretrain.seed'], ['finetune.epochs'])
    """
    section = _section_at(parents, root)
    if section is not None and name in section.model_fields:
        return [_dotted((*parents, name))]
    keys = [key for key in _all_keys(root) if name in (key, key.rpartition(".")[2])]
    return [key for key in keys if key.count(".") == min(other.count(".") for other in keys)]


def _did_you_mean_any(keys: Sequence[str]) -> str:
    return f"did you mean {' or '.join(map(repr, keys))}?"


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name in model.model_fields:
        yield prefix + name
        section = section_of(model, name)
        if section is not None and not holds_named_sections(model, name):
            yield from _all_keys(section, f"{prefix}{name}.")


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _in_plain_words(complaint: Any) -> str:
    message = _PLAIN_WORDS.get(complaint["type"]) or str(complaint["msg"])
    message = message.removeprefix("Value error, ").replace("Input should be", "must be")
    return message[0].lower() + message[1:]


def _right_value(complaints: list[Any]) -> str | None:
    """Return the nearest choice to a misspelt one; None for settings that are not a choice."""
    value = complaints[0].get("input")
    choices = [word for each in complaints if each["type"] == "literal_error" for word in _choices(each)]
    if not isinstance(value, str) or not choices:
        return None
    hint = did_you_mean(value, choices)
    return hint if hint.startswith("did you mean") else None


def _choices(complaint: Any) -> list[str]:
    return re.findall(r"'([^']*)'", complaint["ctx"]["expected"])


def _got(complaint: Any) -> str:
    value = complaint.get("input")
    # The messages of endtask's own checks contain the value.
    is_shown = complaint["type"] != "value_error" and isinstance(value, str | int | float | bool)
    return f", got {value!r}" if is_shown else ""
