"""Turn the type checker's complaints about settings into one line with the nearest right key."""

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

_KEY_ITSELF = "[key]"  # where pydantic complains about a key, behind it

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
"""What Hugging Face's TrainingArguments and scripts call our settings: the key in the same section, or where it is."""


def explain(
    error: ValidationError,
    where: str | None,
    overridden: Collection[str] = (),
    root: type[BaseModel] = Settings,
    tree: Mapping[str, Any] | None = None,
) -> InputError:
    """The one line for a failed check: `where` names the file, unless the key came from `--set`.

    `tree` is what was checked, where sections have names of the user's own.
    """
    complaints = error.errors()
    # A misspelt key also leaves the right one unset, so the misspelling comes first.
    unknown = (each for each in complaints if each["type"] == "extra_forbidden")
    first = next((each for each in unknown if not _lacks_part(each, tree or {}, root)), complaints[0])
    if first["loc"][-1:] == (_KEY_ITSELF,) and first["type"] != "extra_forbidden":  # which may itself be named so
        *above, name, _ = first["loc"]
        return InputError(no_name(name), path=where, key=_dotted(tuple(above)))
    location = _location_of(tuple(first["loc"]), root)
    if first["type"] == "extra_forbidden":
        # `--set fintune.epochs=3` makes an unknown section: the complaint is about the section alone.
        path = "--set" if _sets_below(location, overridden) else _origin(_dotted(location), "", where, overridden)
        part = _part_section_at(location[:-1], root, tree or {})
        if part is not None and (owners := _owners(part, str(location[-1]))):
            message = f"{part.registry.kind} {part.part_name!r} has no such option"
            hint = f"it is an option of {part.part_key}: {' or '.join(owners)}"
            return InputError(message, path=path, key=_dotted(location), hint=hint)
        hint = _right_key(location, root, part or _section_at(location[:-1], root) or root)
        return InputError("unknown setting", path=path, key=_dotted(location), hint=hint)
    same_location = [each for each in complaints if _location_of(tuple(each["loc"]), root) == location]
    message = " or ".join(dict.fromkeys(_in_plain_words(each) for each in same_location))
    # Each branch of a union complains for itself: "must be more than 0 or must be 'auto'".
    message = message.replace(" or must be ", " or ")
    location, message = _key_in_front(location, message, root, tree or {})
    path = _origin(_dotted(location), message, where, overridden)
    if first["type"] == "missing":  # of a section that `--set` may have made
        path = "--set" if _sets_below(location[:-1], overridden) else path
        bare = isinstance(first["input"], dict) and first["input"].keys() == {"weight"}
        if (path == "--set" or bare) and _is_named(location[:-1], root):
            return _unknown_name(location, path, tree or {})
    value_hint = _right_value(same_location)
    return InputError(message + _what_was_given(first), path=path, key=_dotted(location) or None, hint=value_hint)


def _part_section_at(location: Location, root: type[BaseModel], tree: Mapping[str, Any]) -> type[PartSection] | None:
    """Return the section of a part, with its options, that a place leads to; None for other places."""
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
    *above, option = complaint["loc"]
    section = _section_at(tuple(above), root)
    if section is None or not issubclass(section, PartSection) or _part_section_at(tuple(above), root, tree):
        return False
    return bool(_owners(section, str(option)))


def section_of(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The section a key holds (or holds a list of, or several by name), or None for a plain value."""
    field = model.model_fields.get(key)
    kinds = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
    plain = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]
    return next((kind for kind in plain if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def holds_named_sections(model: type[BaseModel], key: str) -> bool:
    """Whether a key holds sections by names of the user's own, such as `pretrain.objectives`."""
    field = model.model_fields.get(key)
    return field is not None and get_origin(field.annotation) is dict


def _location_of(reported: Location, root: type[BaseModel]) -> Location:
    """The location as the user typed it: pydantic adds the name of a union's branch at the end."""
    location: list[int | str] = []
    for part in reported:
        # The name of a named section leads to a section itself.
        if isinstance(part, str) and _section_at(tuple(location), root) is None:
            break
        location.append(part)
    return tuple(location)


def _key_in_front(
    location: Location, message: str, root: type[BaseModel], tree: Mapping[str, Any]
) -> tuple[Location, str]:
    """A check over several keys of a section starts its message with the first of them, which is the place to name."""
    model: type[BaseModel] | None = _part_section_at(location, root, tree) or _section_at(location, root)
    word, _, rest = message.partition(" ")
    names = word.removesuffix(":").split(".")
    known = iter(names)
    for name in known:
        if model is None or name not in model.model_fields:
            return location, message
        if holds_named_sections(model, name):
            next(known, None)
        model = section_of(model, name)
    return (*location, *names), rest


def _sets_below(location: Location, overridden: Collection[str]) -> bool:
    return any(name.startswith(f"{_dotted(location)}.") for name in overridden)


def _is_named(location: Location, root: type[BaseModel]) -> bool:
    """Whether a place is a section that has a name of the user's own."""
    above = _section_at(location[:-2], root)
    return len(location) > 1 and above is not None and holds_named_sections(above, str(location[-2]))


def _unknown_name(location: Location, path: str | None, tree: Mapping[str, Any]) -> InputError:
    """A named section without the key that each must have: more likely a misspelt name than a new one.

    >>> objectives = {"dap": {"weight": 1}, "dapt": {"kind": "mlm"}}
    >>> print(_unknown_name(("pretrain", "objectives", "dap", "kind"), None, {"pretrain": {"objectives": objectives}}))
    key 'pretrain.objectives.dap': there is no objective of this name, and a new one needs a kind (did you mean 'dapt'?)
    """
    *above, name, needed = location
    siblings: Any = tree
    for part in above:
        siblings = siblings.get(part) if isinstance(siblings, Mapping) else None
    others = [str(other) for other in siblings if other != name] if isinstance(siblings, Mapping) else []
    message = f"there is no {str(above[-1]).removesuffix('s')} of this name, and a new one needs a {needed}"
    hint = did_you_mean(str(name), others) if others else None
    return InputError(message, path=path, key=_dotted(location[:-1]), hint=hint)


def _origin(key: str, message: str, where: str | None, overridden: Collection[str]) -> str | None:
    """The file, or `--set` if that gave the key, something above it, or another key that the message names."""
    named = {word.strip(":;,") for word in message.split()}
    blamed = any(key == name or key.startswith(f"{name}.") or name in named for name in overridden)
    return "--set" if blamed else where


def _section_at(location: Location, root: type[BaseModel]) -> type[BaseModel] | None:
    """The section that a place leads to, or None for a plain value."""
    model: type[BaseModel] | None = root
    parts = iter(location)
    for part in parts:
        if isinstance(part, str) and model is not None:
            if holds_named_sections(model, part):
                next(parts, None)
            model = section_of(model, part)
    return model


def _right_key(location: Location, root: type[BaseModel], section: type[BaseModel]) -> str:
    """A hint: our name for Hugging Face's, else the nearest of the section, else the same key elsewhere, else all."""
    wrong, own_key = str(location[-1]), _OTHER_KEYS.get(str(location[-1]))
    if own_key is not None and (keys := _keys_named(own_key, location[:-1], root)):
        return _one_of(keys)
    siblings = section.model_fields
    if nearest(wrong, siblings) is None and (elsewhere := _keys_named(wrong, location[:-1], root)):
        return _one_of(elsewhere)
    hint, prefix = did_you_mean(wrong, siblings), _dotted(location[:-1])
    return hint.replace("did you mean '", f"did you mean '{prefix}.") if prefix else hint


def _keys_named(name: str, above: Location, root: type[BaseModel]) -> list[str]:
    """The dotted keys of a name: in its section, else those nearest to the top; a dotted name is the key itself.

    >>> _keys_named("seed", ("pretrain",), Settings), _keys_named("epochs", ("pretrain",), Settings)
    (['pretrain.seed'], ['finetune.epochs'])
    """
    section = _section_at(above, root)
    if section is not None and name in section.model_fields:
        return [_dotted((*above, name))]
    found = [key for key in _all_keys(root) if name in (key, key.rpartition(".")[2])]
    return [key for key in found if _depth(key) == min(map(_depth, found))]


def _one_of(keys: Sequence[str]) -> str:
    return f"did you mean {' or '.join(map(repr, keys))}?"


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name in model.model_fields:
        yield prefix + name
        below = section_of(model, name)
        if below is not None and not holds_named_sections(model, name):
            yield from _all_keys(below, f"{prefix}{name}.")


def _depth(key: str) -> int:
    return key.count(".")


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _in_plain_words(complaint: Any) -> str:
    message = _PLAIN_WORDS.get(complaint["type"]) or str(complaint["msg"])
    message = message.removeprefix("Value error, ").replace("Input should be", "must be")
    return message[0].lower() + message[1:]


def _right_value(complaints: list[Any]) -> str | None:
    """A hint where one of few words is wanted, and another name or a misspelling of one was given."""
    given = complaints[0].get("input")
    wanted = [word for each in complaints if each["type"] == "literal_error" for word in _words(each)]
    if not isinstance(given, str) or not wanted:
        return None
    hint = did_you_mean(given, wanted)
    return hint if hint.startswith("did you mean") else None


def _words(complaint: Any) -> list[str]:
    return re.findall(r"'([^']*)'", complaint["ctx"]["expected"])


def _what_was_given(complaint: Any) -> str:
    given = complaint.get("input")
    # Our own checks quote the value themselves.
    shown = complaint["type"] != "value_error" and isinstance(given, str | int | float | bool)
    return f", got {given!r}" if shown else ""
