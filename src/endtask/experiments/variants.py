"""From a study to the variants of one comparison: those listed, those of the grid, and the baselines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import value_at, with_values
from endtask.encoders.checkpoint_files import SMALL_PRETRAINED
from endtask.errors import InputError, did_you_mean
from endtask.experiments.baselines import baseline_variants, untrained_baselines
from endtask.experiments.spec import Study, TableSpec, VariantSpec
from endtask.experiments.trials import VARIANTS, Variant, check_keys, effective_seeds

DEFAULT_VARIANT = "base"
"""The name of the only variant if a study lists none: the settings as they are, against the baselines."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]*")
_LONGEST_NAME = 200

Presets = Mapping[str, Settings]


@dataclass(frozen=True)
class Plan:
    """The variants of a comparison, its untrained baselines and tables, and the study with all defaults filled in.

    Defaults of another machine may differ, so `study` leaves nothing to them.
    """

    settings: Settings
    study: Study
    variants: tuple[Variant, ...]
    untrained: tuple[str, ...]
    against: str
    tables: dict[str, TableSpec]
    presets: Presets = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every row of the table: variants, then baselines from the simplest on."""
        own = tuple(variant.name for variant in self.variants if not variant.is_baseline)
        return (*own, *self.untrained, *(variant.name for variant in self.variants if variant.is_baseline))

    def variant(self, name: str) -> Variant:
        """Return the variant of a name."""
        return next(variant for variant in self.variants if variant.name == name)


def make_plan(settings: Settings, study: Study, where: str = "study", presets: Presets | None = None) -> Plan:
    """Return everything that is to be run; `settings.output_dir` is the comparison's folder.

    `presets` holds the same settings from other presets, for variants that name one.
    """
    seeds = {"finetune.seeds": study.finetune_seeds} if study.finetune_seeds is not None else {}
    base = with_values(settings, seeds, where)
    presets = {name: with_values(each, seeds, where) for name, each in (presets or {}).items()}
    variants = listed_variants(base, study, where, presets)
    names = [variant.name for variant in variants]
    against = _known(study.against or names[0], names, where, "against")
    first = next(variant for variant in variants if variant.name == against)
    pretrain_seeds = study.seeds or (base.pretrain_seed,)
    baselines = baseline_variants(study, first, pretrain_seeds, Path(settings.output_dir) / VARIANTS, where)
    untrained = untrained_baselines(study)
    resolved = _resolved(study, [*untrained, *(each.name for each in baselines)], pretrain_seeds, base, against)
    plan = Plan(base, resolved, (*variants, *baselines), untrained, against, {}, presets)
    _check_unique(plan.names, where)
    return replace(plan, tables=_tables(study, plan, where) or {"": TableSpec(variants=plan.names, against=against)})


def _known(name: str, names: Iterable[str], where: str, key: str) -> str:
    if name not in names:
        raise InputError(f"no variant is named {name!r}", path=where, key=key, hint=did_you_mean(name, names))
    return name


def _tables(study: Study, plan: Plan, where: str) -> dict[str, TableSpec]:
    """Return the study's tables with the variants that `only` leaves; tables without their reference are left out."""
    tables = {}
    for name, table in study.tables.items():
        known = [*plan.names, *(study.variants if study.only is not None else ())]
        rows = tuple(row for row in table.variants if _known(row, known, where, f"tables.{name}") in plan.names)
        against = table.against or (plan.against if plan.against in table.variants else table.variants[0])
        _known(against, table.variants, where, f"tables.{name}.against")
        if against in rows and against not in plan.untrained:
            tables[name] = table.model_copy(update={"variants": rows, "against": against})
    return tables


def _resolved(
    study: Study, baselines: Iterable[str], seeds: tuple[int, ...], settings: Settings, against: str
) -> Study:
    overrides = study.baselines or {}
    changes: dict[str, Any] = {
        "variants": study.variants if study.variants or study.grid else {DEFAULT_VARIANT: VariantSpec()},
        "seeds": seeds,
        "finetune_seeds": settings.finetune.seeds,
        "baselines": {name: overrides.get(name, {}) for name in baselines},
        "against": against,
        "shared_tokenizer": None,  # the settings name it now
    }
    if "checkpoint" in changes["baselines"]:
        changes["checkpoint"] = study.checkpoint or SMALL_PRETRAINED
    return study.model_copy(update=changes)


def listed_variants(settings: Settings, study: Study, where: str, presets: Presets | None = None) -> list[Variant]:
    """Return the variants that the study lists, then those of its grid."""
    specs = {**study.variants, **_grid(settings, study, where)} or {DEFAULT_VARIANT: VariantSpec()}
    _check_unique([*study.variants, *(name for name in specs if name not in study.variants)], where)
    if study.only is not None:
        for name in study.only:
            _known(name, specs, where, "only")
        specs = {name: spec for name, spec in specs.items() if name in study.only}
    seeds = study.seeds or (settings.pretrain_seed,)
    variants = []
    for name, spec in specs.items():
        origin = f"{where}, variant {name!r}"
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            hint = f"letters, digits and . _ = , + - only, at most {_LONGEST_NAME}, because it names a folder too"
            raise InputError("not a name for a variant", path=origin, hint=hint)
        check_keys(spec.values, origin)
        resolved = with_values(_base_of(spec, settings, presets or {}, origin), spec.values, origin)
        changes = {"preset": spec.preset, **spec.values} if spec.preset else spec.values
        variants.append(Variant(name, resolved, effective_seeds(resolved, seeds), title=spec.title, changes=changes))
    return variants


def _base_of(spec: VariantSpec, settings: Settings, presets: Presets, origin: str) -> Settings:
    if spec.preset is None:
        return settings
    if spec.preset not in presets:
        hint = "list the settings that it changes, or write the settings of all variants into the study"
        raise InputError("a variant has a preset only where the study has the settings", path=origin, hint=hint)
    return presets[spec.preset]


def _grid(settings: Settings, study: Study, where: str) -> dict[str, VariantSpec]:
    """Return a variant for each combination, the last axis changing fastest, named after its values."""
    if not study.grid:
        return {}
    last = [key.rpartition(".")[2] for key in study.grid]
    short = {key: name if last.count(name) == 1 else key for key, name in zip(study.grid, last, strict=True)}
    axes = [_axis(settings, key, short[key], values, where) for key, values in study.grid.items()]
    found: dict[str, VariantSpec] = {}
    for choices in product(*axes):
        name = ",".join(part for part, _ in choices)
        if name in {*found, *study.variants}:
            message = f"two variants would be named {name!r}"
            raise InputError(message, path=where, key="grid", hint="list them as `variants`")
        found[name] = VariantSpec(values={key: value for _, values in choices for key, value in values.items()})
    return found


def _axis(settings: Settings, key: str, short: str, values: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the choices of an axis as (part of the name, settings)."""
    if isinstance(values, Mapping):
        return [(name, dict(chosen)) for name, chosen in values.items()]
    return [(f"{short}={_as_name(value)}", {key: value}) for value in _checked(settings, key, values, where)]


def _checked(settings: Settings, key: str, values: Iterable[Any], where: str) -> list[Any]:
    """Return the values as settings give them, so that 1e-3 and 0.001 count as the same."""
    found: list[Any] = []
    check_keys({key: None}, where)
    for value in values:
        read = value_at(with_values(settings, {key: value}, where), key)
        if isinstance(read, dict):
            raise InputError("a section, not a value", path=where, key=key)
        if read in found:
            raise InputError(f"the value {value!r} is listed twice", path=where, key=key)
        found.append(read)
    return found


def _as_name(value: Any) -> str:
    """Return a value as part of a name; characters that a folder's name should not hold become a hyphen.

    >>> _as_name(0.0003), _as_name(1000.0), _as_name("hf:some/model"), _as_name([0, 1])
    ('0.0003', '1000', 'hf-some-model', '0-1')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-") or "-"


def _check_unique(names: Iterable[str], where: str) -> None:
    """Raise if two names are equal but for case: they name folders, and some disks ignore case."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            message = (
                f"two variants are named {name!r}" if name == other else f"{other!r} and {name!r} differ only in case"
            )
            raise InputError(message, path=where, hint="baselines count; --no-baselines leaves them out")
        seen[name.casefold()] = name
