"""Settings that were changed and change nothing, because what they are for is not switched on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from endtask.settings.section import Section

if TYPE_CHECKING:
    from endtask.settings import Settings


def idle_settings(settings: Settings) -> tuple[str, ...]:
    """A line for each section whose values have no effect, with what would give them one."""
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
    return tuple(
        f"{', '.join(f'{name}.{key}' for key in changed)} without effect: {why} would use it"
        for name, section, is_used, why in sections
        if not is_used and (changed := list(_changed(section)))
    )


def _changed(section: Section) -> Iterator[str]:
    """The keys whose values are not those that they have by themselves."""
    usual = type(section)()
    for key in type(section).model_fields:
        if getattr(section, key) != getattr(usual, key):
            yield key
