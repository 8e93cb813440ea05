"""Settings that were changed and have no effect, because what they belong to is not used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endtask.config import Settings


def unused_settings(settings: Settings) -> tuple[str, ...]:
    """Return a line for each section or value without effect, with what would give it one."""
    return tuple(_unused(settings))


def _unused(settings: Settings) -> Iterator[str]:
    weighting = settings.pretrain.weighting
    if not settings.skip_pretraining:
        yield from weighting.part.unused_settings(settings)
    elif weighting.part.needs_task:
        yield "pretrain.weighting without effect: skip_pretraining is true"
