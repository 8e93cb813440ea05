"""The variants of a study, listed or from its grid, and their trials: a run for each pre-training seed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import value_at, with_values
from endtask.errors import InputError, did_you_mean
from endtask.experiments.spec import Presets, Study, VariantSpec
from endtask.io.digests import fingerprint
from endtask.io.nested import differences

VARIANTS = "variants"

_FIXED_KEYS = {
    "output_dir": "every run has its own folder",
    "evaluate.metric": "variants are compared by one metric",
    "cluster.storage": "an address holds one run",
    "pretrain.seed": "all variants use the same seeds: give them as `seeds`",
}
DEFAULT_VARIANT = "base"
"""The name of the only variant if a study lists none: the unchanged settings, against the baselines."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]*")
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Variant:
    """A variant: its resolved settings, its pre-training seeds, and a note for its row.

    `tokenizer_from` is the variant whose tokenizer this variant uses, which is packed first. `changes` are the
    settings that the study lists for it.
    """

    name: str
    settings: Settings
    seeds: tuple[int, ...]
    is_baseline: bool = False
    title: str | None = None
    note: str = ""
    tokenizer_from: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    def difference_from(self, settings: Settings) -> dict[str, Any]:
        """Return the variant's settings that differ, by dotted key, without another variant's tokenizer."""
        new, old = (tree.model_dump(mode="json", exclude={"output_dir"}) for tree in (self.settings, settings))
        changed = {key: value for key, (_, value) in differences(old, new).items()}
        if self.tokenizer_from is not None:
            changed.pop("tokenizer.path")
        return changed

    def trials(self, folder: Path) -> tuple[Trial, ...]:
        """Return the variant's trials in an experiment's folder."""
        return tuple(Trial(self, seed, folder / VARIANTS / self.name / f"seed-{seed}") for seed in self.seeds)

    def learned_tokenizer(self, folder: Path) -> str | None:
        """Return a digest of the tokenizer that the variant's runs learned; None if they learned none yet."""
        if self.settings.model.path is not None or self.settings.tokenizer.path is not None:
            return None
        files = (trial.tokenizer / "tokenizer.json" for trial in self.trials(folder))
        return next((fingerprint(file.read_text("utf-8")) for file in files if file.exists()), None)


@dataclass(frozen=True)
class Trial:
    """A run of a variant with a pre-training seed, in a run folder."""

    variant: Variant
    seed: int
    folder: Path

    @property
    def key(self) -> str:
        """The trial's name in the record."""
        return f"{self.variant.name}/seed-{self.seed}"

    @property
    def tokenizer(self) -> Path:
        """The folder of the run's tokenizer, which the stage pack makes."""
        return self.folder / "pack" / "tokenizer"

    @property
    def settings(self) -> Settings:
        """The resolved settings of the run."""
        values: dict[str, Any] = {"output_dir": str(self.folder)}
        if self.seed != self.variant.settings.pretrain_seed:  # may stay unset, as in a run with the same settings
            values["pretrain.seed"] = self.seed
        return with_values(self.variant.settings, values, f"variant {self.variant.name!r}")


def check_keys(values: Mapping[str, Any], where: str) -> None:
    """Raise `InputError` for settings in which variants may not differ.

    >>> check_keys({"pretrain.seed": 1}, "study.yaml")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: study.yaml, key 'pretrain.seed': variants cannot differ in this: ...
    """
    for key in values:
        for fixed, reason in _FIXED_KEYS.items():
            if key == fixed or fixed.startswith(f"{key}."):
                raise InputError(f"variants cannot differ in this: {reason}", path=where, key=key)


def check_no_storage(*settings: Settings) -> None:
    """Raise `InputError` for settings with the address of a run: all trials would write there."""
    if any(each.cluster.storage for each in settings):
        message = "an address holds one run, and an experiment has several"
        raise InputError(message, key="cluster.storage", hint="--set cluster.storage=null")


def effective_seeds(settings: Settings, seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Return the pre-training seeds of a variant; only the first if the variant is not pre-trained.

    >>> effective_seeds(Settings(), (0, 1))
    (0, 1)
    """
    return seeds[:1] if only_finetunes_checkpoint(settings) else seeds


def only_finetunes_checkpoint(settings: Settings) -> bool:
    """Return whether a checkpoint is fine-tuned with a new head, so that the pre-training seed has no effect."""
    return settings.skip_pretraining and settings.model.path is not None and settings.finetune.head == "new"


def listed_variants(settings: Settings, study: Study, where: str, presets: Presets | None = None) -> list[Variant]:
    """Return the variants that the study lists, then those of its grid."""
    specs = {**study.variants, **_grid(settings, study, where)} or {DEFAULT_VARIANT: VariantSpec()}
    check_unique([*study.variants, *(name for name in specs if name not in study.variants)], where)
    if study.only is not None:
        for name in study.only:
            known_name(name, specs, where, "only")
        specs = {name: spec for name, spec in specs.items() if name in study.only}
    seeds = study.seeds or (settings.pretrain_seed,)
    variants = []
    for name, spec in specs.items():
        origin = f"{where}, variant {name!r}"
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            hint = f"letters, digits and . _ = , + - only, at most {_LONGEST_NAME}, because it names a folder too"
            raise InputError("not a name for a variant", path=origin, hint=hint)
        check_keys(spec.values, origin)
        resolved = with_values(_base_settings(spec, settings, presets or {}, origin), spec.values, origin)
        changes = {"preset": spec.preset, **spec.values} if spec.preset else spec.values
        variants.append(Variant(name, resolved, effective_seeds(resolved, seeds), title=spec.title, changes=changes))
    return variants


def _base_settings(spec: VariantSpec, settings: Settings, presets: Presets, origin: str) -> Settings:
    if spec.preset is None:
        return settings
    if spec.preset not in presets:
        hint = "list the settings that it changes, or write the settings of all variants into the study"
        raise InputError("a variant has a preset only where the study has the settings", path=origin, hint=hint)
    return presets[spec.preset]


def _grid(settings: Settings, study: Study, where: str) -> dict[str, VariantSpec]:
    """Return a variant for each combination, with the last axis changing fastest, named after its values."""
    if not study.grid:
        return {}
    last_parts = [key.rpartition(".")[2] for key in study.grid]
    short_names = {
        key: last if last_parts.count(last) == 1 else key for key, last in zip(study.grid, last_parts, strict=True)
    }
    axes = [_axis(settings, key, short_names[key], values, where) for key, values in study.grid.items()]
    specs: dict[str, VariantSpec] = {}
    for choices in product(*axes):
        name = ",".join(part for part, _ in choices)
        if name in {*specs, *study.variants}:
            message = f"two variants would be named {name!r}"
            raise InputError(message, path=where, key="grid", hint="list them as `variants`")
        specs[name] = VariantSpec(values={key: value for _, values in choices for key, value in values.items()})
    return specs


def _axis(settings: Settings, key: str, short: str, values: Any, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the choices of an axis as (part of the name, settings)."""
    if isinstance(values, Mapping):
        return [(name, dict(choice)) for name, choice in values.items()]
    check_keys({key: None}, where)
    return [(f"{short}={_as_name(value)}", {key: value}) for value in checked_values(settings, key, values, where)]


def checked_values(settings: Settings, key: str, values: Iterable[Any], where: str) -> tuple[Any, ...]:
    """Return values of a key as settings parse them, so that 1e-3 equals 0.001. Raise if one is wrong."""
    parsed: list[Any] = []
    for value in values:
        parsed_value = value_at(with_values(settings, {key: value}, where), key)
        if isinstance(parsed_value, dict):
            raise InputError("a section, not a value", path=where, key=key)
        if parsed_value in parsed:
            raise InputError(f"the value {value!r} is listed twice", path=where, key=key)
        parsed.append(parsed_value)
    return tuple(parsed)


def _as_name(value: Any) -> str:
    """Return a value as part of a folder's name; special characters become a hyphen.

    >>> _as_name(0.0003), _as_name(1000.0), _as_name("hf:some/model"), _as_name([0, 1])
    ('0.0003', '1000', 'hf-some-model', '0-1')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-") or "-"


def check_unique(names: Iterable[str], where: str) -> None:
    """Raise `InputError` if two names differ at most in case: they name folders, and some disks ignore case."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            message = (
                f"two variants are named {name!r}" if name == other else f"{other!r} and {name!r} differ only in case"
            )
            raise InputError(message, path=where, hint="baselines count; --no-baselines leaves them out")
        seen[name.casefold()] = name


def known_name(name: str, names: Iterable[str], where: str, key: str) -> str:
    """Return the name. Raise `InputError` if no variant has it."""
    if name not in names:
        raise InputError(f"no variant is named {name!r}", path=where, key=key, hint=did_you_mean(name, names))
    return name
