"""Settings that were changed and change nothing, because what they are for is not switched on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from endtask.settings.section import Section

if TYPE_CHECKING:
    from endtask.settings import Settings


def idle_settings(settings: Settings) -> tuple[str, ...]:
    """A line for each section or value without effect, with what would give it one."""
    return (*_idle_sections(settings), *_idle_samples(settings))


def _idle_sections(settings: Settings) -> Iterator[str]:
    train, select = settings.train, settings.select
    sections = (
        ("train.meta", train.meta, train.weighting == "meta", f"train.weighting is {train.weighting}; meta"),
        (
            "select.influence",
            select.influence,
            select.uses_influence,
            f"select.selector is {select.selector}; influence",
        ),
    )
    for name, section, is_used, why in sections:
        if not is_used and (changed := list(_changed(section))):
            yield f"{', '.join(f'{name}.{key}' for key in changed)} without effect: {why} would use it"


def _idle_samples(settings: Settings) -> Iterator[str]:
    """So many objectives run at a step, and there are no more."""
    train = settings.train
    others = len(settings.used_objectives) - train.trains_task
    learned = train.meta.sample if train.weighting == "meta" else None
    for name, sample in (("train.sample", train.sample), ("train.meta.sample", learned)):
        if sample is not None and sample >= others:
            yield f"{name} without effect: {sample} run at a step, and beside the end task there are {others}"


def _changed(section: Section) -> Iterator[str]:
    """The keys whose values are not those that they have by themselves."""
    usual = type(section)()
    for key in type(section).model_fields:
        if getattr(section, key) != getattr(usual, key):
            yield key
