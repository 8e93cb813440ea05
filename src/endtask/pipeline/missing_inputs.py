"""Stages that cannot be done where a bundle was unpacked, since what they read stayed behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from endtask.config import SelectSettings, Settings
from endtask.io.stage_folder import StageFolder, left_out
from endtask.pipeline.bundled_inputs import BundledInputs

_READS_FILES_OF = {"select": "retrieve", "pack": "select"}
"""Stages that read files which a bundle may leave out, and whose files these are."""


def first_missing(
    to_do: Sequence[str], stages: Mapping[str, StageFolder], bundled: BundledInputs, settings: Settings
) -> tuple[str, str] | None:
    """The first of the stages to do that cannot be done here, and why; None where all can."""
    for name in to_do:
        opened = opened_from_outside(name, settings.select)
        if name == "select" and settings.reads_domain:
            opened = ("corpus", *opened)
        if name == "pack" and settings.reads_aligned:
            opened = ("aligned", *opened)
        reasons = [bundled.why_missing(kind, settings) for kind in opened]
        before = _READS_FILES_OF.get(name)
        if before is not None and before not in to_do and left_out(stages[before].final):
            reasons.append(f"the files of the stage {before} stayed on the machine where the bundle was made")
        reason = next((reason for reason in reasons if reason), None)
        if reason is not None:
            return name, f"cannot be done here: {reason}"
    return None


def opened_from_outside(stage: str, select: SelectSettings) -> tuple[str, ...]:
    """The data from outside that a stage opens, beside what is copied into every bundle.

    >>> opened_from_outside("select", SelectSettings(name="random"))
    ('corpus',)
    """
    if stage == "retrieve":
        return ("corpus", "unlabelled")
    if stage == "select":
        parts = select.part.parts()
        corpus = ("corpus",) if any(part.opens_corpus for part in parts) else ()
        return (*corpus, *(("selection",) if any(part.external_path() for part in parts) else ()))
    return ()
