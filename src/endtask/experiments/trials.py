"""Variants of a comparison and their trials: one run folder for each variant and pre-training seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.io.digests import fingerprint
from endtask.io.nested import differences

VARIANTS = "variants"

_FIXED_KEYS = {
    "output_dir": "every run has its own folder",
    "evaluate.metric": "variants are compared by one metric",
    "pretrain.seed": "all variants use the same seeds: give them as `seeds`",
}


@dataclass(frozen=True)
class Variant:
    """A name, the resolved settings, the pre-training seeds, and what a reader of its row should know.

    `tokenizer_from` names the variant whose tokenizer this one uses; that variant is packed first. `changes` are the
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
        """Return the settings in which the variant differs, by dotted key, without another variant's tokenizer."""
        own, other = (each.model_dump(mode="json", exclude={"output_dir"}) for each in (self.settings, settings))
        changed = {key: new for key, (_, new) in differences(other, own).items()}
        if self.tokenizer_from is not None:
            changed.pop("tokenizer.path")
        return changed

    def trials(self, folder: Path) -> tuple[Trial, ...]:
        """Return the variant's trials in an experiment's folder."""
        return tuple(Trial(self, seed, folder / VARIANTS / self.name / f"seed-{seed}") for seed in self.seeds)

    def learned_tokenizer(self, folder: Path) -> str | None:
        """Return a digest of the tokenizer that the variant's runs learned; None if it was given or is not there."""
        if self.settings.model.path is not None or self.settings.tokenizer.path is not None:
            return None
        files = (trial.tokenizer / "tokenizer.json" for trial in self.trials(folder))
        return next((fingerprint(file.read_text("utf-8")) for file in files if file.exists()), None)


@dataclass(frozen=True)
class Trial:
    """One run of a variant: an ordinary run folder."""

    variant: Variant
    seed: int
    folder: Path

    @property
    def key(self) -> str:
        """The trial's name in the record."""
        return f"{self.variant.name}/seed-{self.seed}"

    @property
    def tokenizer(self) -> Path:
        """The folder of the run's tokenizer, which exists after packing."""
        return self.folder / "pack" / "tokenizer"

    @property
    def settings(self) -> Settings:
        """The resolved settings of the run."""
        values: dict[str, Any] = {"output_dir": str(self.folder)}
        if self.seed != self.variant.settings.pretrain_seed:  # else it may stay unset, as in a run of the same settings
            values["pretrain.seed"] = self.seed
        return with_values(self.variant.settings, values, f"variant {self.variant.name!r}")


def check_keys(values: Mapping[str, Any], where: str) -> None:
    """Raise if the values hold settings in which variants may not differ.

    >>> check_keys({"pretrain.seed": 1}, "study.yaml")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: study.yaml, key 'pretrain.seed': variants cannot differ in this: ...
    """
    for key in values:
        for fixed, reason in _FIXED_KEYS.items():
            if key == fixed or fixed.startswith(f"{key}."):
                raise InputError(f"variants cannot differ in this: {reason}", path=where, key=key)


def effective_seeds(settings: Settings, seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Return the pre-training seeds; without pre-training of its own a variant needs only the first.

    >>> effective_seeds(Settings(), (0, 1))
    (0, 1)
    """
    return seeds[:1] if only_finetunes_checkpoint(settings) else seeds


def only_finetunes_checkpoint(settings: Settings) -> bool:
    """Return whether a checkpoint is fine-tuned with a new head: only fine-tuning seeds then change anything."""
    return settings.skip_pretraining and settings.model.path is not None and settings.finetune.reset_head
