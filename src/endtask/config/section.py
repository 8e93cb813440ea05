"""Sections of the settings, and sections that name a part and hold its options among their own keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

from endtask.errors import InputError
from endtask.registry import Registry, code_digest

MOST = 10**12
"""The largest number of steps, texts or the like: far above what anybody has, and below what overflows."""
LARGEST = {
    "hidden_size": 1 << 16,
    "num_hidden_layers": 1000,
    "num_attention_heads": 1024,
    "intermediate_size": 1 << 20,
    "vocab_size": 1 << 24,
    "max_position_embeddings": 1 << 24,
}
"""Sizes of an encoder, by their names in `config.json`, that no model comes near."""

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0, le=MOST)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
PositiveNumber = Annotated[float, Field(gt=0)]


def _steps_or_share(value: float) -> float:
    if value >= 1 and value % 1:
        raise ValueError(f"{value} is neither a whole number of steps nor a share of them below 1")
    return int(value) if value >= 1 else value


Warmup = Annotated[float, Field(ge=0), AfterValidator(_steps_or_share)]
"""A number of steps, or below 1 a share of all steps, as Hugging Face's `warmup_steps`."""


class Section(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    # Errors hide their input, which may be an address with a password.
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, hide_input_in_errors=True
    )
    plain_key: ClassVar[str | None] = None
    """The key that a plain word in place of the section sets: `task: labels.csv` is `task: {path: labels.csv}`."""
    plain_types: ClassVar[tuple[type, ...]] = (str,)

    @classmethod
    def spelled_out(cls, value: Any) -> Any:
        """Return a plain word as the section that it stands for; other values unchanged."""
        return {cls.plain_key: value} if cls.plain_key and isinstance(value, cls.plain_types) else value

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: Any) -> Any:
        return cls.spelled_out(value)


def infinity_in_words(value: Any) -> Any:
    """Return `inf` as a word for YAML's own infinity, `.inf`; other values unchanged.

    >>> infinity_in_words(float("inf")), infinity_in_words(19)
    ('inf', 19)
    """
    return "inf" if isinstance(value, float) and value == math.inf else value


class PartConfig(Section):
    """Base class of a part's own options."""


class PartSection(Section):
    """A section such as `select: {name: dsir, budget: 5%, buckets: 4096}`.

    `part_key` names the part, other fields of the subclass are the section's own, and all further keys are options of
    the part. A plain string is the name of a part without options. Options of other parts are errors.
    """

    registry: ClassVar[Registry[Any]]
    part_key: ClassVar[str] = "name"
    section_base: ClassVar[type[Any] | None] = None
    """The section without the options of a part, in a subclass that has them."""
    part_name: ClassVar[str] = ""
    """The name of the part, in such a subclass."""

    def __new__(cls, *args: Any, **data: Any) -> Self:
        """Make `SelectSettings(name="dsir", buckets=4096)` a section with the options of `dsir`."""
        name = cls.chosen(data)
        concrete = cls.for_part(name) if name and _base_of(cls) is cls else cls
        new: Self = super().__new__(concrete)
        return new

    @classmethod
    def for_part(cls, name: str) -> type[Self]:
        """Return the section with the options of the part of this name as fields."""
        concrete: type[Self] = _with_options(cast(Any, _base_of(cls)), name)
        return concrete

    @classmethod
    def chosen(cls, data: Mapping[str, Any]) -> str:
        """Return the name of the part that a mapping chooses, or the default; empty where a name is missing."""
        name = data.get(cls.part_key, cls.model_fields[cls.part_key].default)
        return name if isinstance(name, str) else ""

    @property
    def part_class(self) -> type[Any]:
        """The class of the part."""
        part: type[Any] = self.registry.get(getattr(self, self.part_key))
        return part

    @property
    def options(self) -> PartConfig:
        """The options of the part."""
        config: type[PartConfig] = self.part_class.Config
        fields = type(self).model_fields
        return config(**{key: getattr(self, key) for key in config.model_fields if key in fields})

    @property
    def part(self) -> Any:
        """The part, built from its options."""
        return self.part_class(self.options)

    @model_validator(mode="wrap")
    @classmethod
    def _choose(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, str):
            data = {cls.part_key: data}
        elif type(data) is cls and _base_of(cls) is cls:
            data = dict(data)
        if not isinstance(data, Mapping) or _base_of(cls) is not cls or not cls.chosen(data):
            return handler(data)
        try:
            concrete = cls.for_part(cls.chosen(data))
        except InputError as error:
            raise ValueError(f"{cls.part_key}: {error}") from None
        return concrete.model_validate(data)


def _base_of(cls: type[PartSection]) -> type[Any]:
    """Return the section without the options of a part."""
    return cls.section_base or cls


@cache
def _with_options(base: Any, name: str) -> Any:
    part = base.registry.get(name)
    config: type[PartConfig] = part.Config
    shared = base.model_fields.keys() & config.model_fields.keys()
    if shared:
        raise TypeError(f"{part.__qualname__}.Config: {', '.join(sorted(shared))} are keys of the section already")
    doc = part.__doc__ or base.__doc__
    return type(
        f"{base.__name__}_{name}",
        (base, config),
        {"__doc__": doc, "__module__": __name__, "section_base": base, "part_name": name},
    )


@cache
def _default_of(section: type[Section], key: str) -> Any:
    """Return the default of a key, made once: pydantic copies it at every call."""
    return section.model_fields[key].get_default(call_default_factory=True)


def non_defaults(section: Section) -> dict[str, Any]:
    """Return the values of a section that differ from their defaults, as nested plain data for JSON.

    A part from outside the package adds a hash of its code, so that a changed plug-in redoes the stages that use it.
    """
    changed: dict[str, Any] = {}
    dumped = section.model_dump(mode="json")
    for key in type(section).model_fields:
        value, default = getattr(section, key), _default_of(type(section), key)
        if isinstance(value, Section):
            if changed_inside := non_defaults(value):
                changed[key] = changed_inside
        elif value == default:
            continue
        elif isinstance(value, dict) and any(isinstance(item, Section) for item in value.values()):
            changed[key] = {name: non_defaults(item) for name, item in value.items()}
        else:
            changed[key] = dumped[key]
    if isinstance(section, PartSection) and (code := code_digest(section.part_class)) is not None:
        changed["code"] = code
    return changed
