"""Texts that a user takes out of the corpus: `corpus.exclude` in the settings of a run's folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from endtask.config import dump_yaml, load_settings
from endtask.errors import InputError
from endtask.io.atomic import write_text
from endtask.io.processes import run_lock
from endtask.io.run_layout import SETTINGS_FILE

FIRST_STAGE = "retrieve"
"""The stage from which a run is redone without the excluded texts."""


def excluded_ids(folder: Path) -> tuple[str, ...]:
    """Return the ids of documents and passages that the settings of a run exclude."""
    return load_settings(folder / SETTINGS_FILE).corpus.exclude


def change_exclusions(folder: Path, ids: Iterable[str], *, exclude: bool) -> tuple[str, ...]:
    """Add ids to `corpus.exclude` or take them out, and return all of them; raises `InputError` while the run goes on.

    The finished stages stay as they are until the run is redone from the stage `retrieve`.
    """
    with run_lock(folder):
        before, changed = excluded_ids(folder), set(ids)
        others = tuple(name for name in before if name not in changed)
        after = (*others, *sorted(changed)) if exclude else others
        settings = load_settings(folder / SETTINGS_FILE, given={"corpus": {"exclude": list(after)}})
        if not settings.corpus.sources:
            raise InputError("the run has no corpus", path=folder, hint="there is nothing to exclude")
        write_text(folder / SETTINGS_FILE, dump_yaml(settings))
    return after
