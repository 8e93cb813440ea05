"""Settings that were changed and change nothing, because what they are for is not switched on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from endtask.config.section import Section

if TYPE_CHECKING:
    from endtask.config import Settings


_LEAST_REACH = 1.0
"""How far a logit should get if all cosines were 1; they are a tenth of that, a weight of .52 in place of .5."""


_OF_SEPARATE_HEAD = ("head", "fit_batch")


def unused_settings(settings: Settings) -> tuple[str, ...]:
    """A line for each section or value without effect, with what would give it one."""
    return (
        *_unused_sections(settings),
        *_unused_choices(settings),
        *_still_weights(settings),
    )


def _unused_sections(settings: Settings) -> Iterator[str]:
    train = settings.pretrain
    sections = (
        ("pretrain.meta", train.meta, train.weighting == "meta", f"pretrain.weighting is {train.weighting}; meta"),
    )
    for name, section, is_used, why in sections:
        if not is_used and (changed := list(_changed(section))):
            yield f"{', '.join(f'{name}.{key}' for key in changed)} without effect: {why} would use it"


def _unused_choices(settings: Settings) -> Iterator[str]:
    """Values of `pretrain.meta` for a choice that was not made."""
    train, meta = settings.pretrain, settings.pretrain.meta
    if train.weighting != "meta":
        return
    if settings.skip_pretraining:
        yield "pretrain.weighting without effect: skip_pretraining is true"
        return
    for key in _changed(meta):
        if meta.same_head and key in _OF_SEPARATE_HEAD:
            yield f"pretrain.meta.{key} without effect: pretrain.meta.same_head is true"
        elif key == "folds" and meta.split != "folds":
            yield f"pretrain.meta.folds without effect: pretrain.meta.split is {meta.split}"


def _still_weights(settings: Settings) -> Iterator[str]:
    """Weights that are learned so slowly, or for so few steps, that they stay where they start."""
    train, budget = settings.pretrain, settings.budget
    is_learned = train.weighting == "meta" and not settings.skip_pretraining
    reach = train.meta.learning_rate * budget.amount
    if is_learned and budget.unit == "steps" and reach < _LEAST_REACH:
        yield (
            f"pretrain.meta.learning_rate hardly has an effect: {budget.amount:g} steps of {train.meta.learning_rate:g}"
            f" move a logit by {reach:.2g} at most, and cosines are mostly far below 1; raise it for so short a run"
        )


def _changed(section: Section) -> Iterator[str]:
    """The keys whose values are not those that they have by themselves."""
    usual = type(section)()
    for key in type(section).model_fields:
        if getattr(section, key) != getattr(usual, key):
            yield key
