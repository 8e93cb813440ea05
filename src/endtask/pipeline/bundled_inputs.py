"""What a bundle says about external inputs: their digests, copies of those that training reads, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from endtask.config import SelectSettings, Settings
from endtask.errors import InputError
from endtask.io.nested import flatten
from endtask.io.stage_folder import StageFolder, left_out
from endtask.pipeline.external_inputs import DATA, asked_of, data_path
from endtask.task import Task
from endtask.task.stored import read_task

OUTSIDE = "outside.json"
COPIES = "outside"
"""Beside `outside.json`: the folder of the copies."""

LEVELS_ABOVE = 3
"""How far above a run its record may stand; one serves all runs of a bundle, and those of a comparison lie so deep."""

_FORMAT = 1


@dataclass(frozen=True)
class BundledInput:
    """Data of one kind: the settings that asked for it, what identifies it, and its copy below the record's folder."""

    name: str
    asked: dict[str, Any]
    fingerprint: str
    copy: str | None = None


@dataclass(frozen=True)
class BundledInputs:
    """The record in a folder that came out of a bundle; without pieces anywhere else."""

    root: Path
    pieces: tuple[BundledInput, ...] = ()

    def piece(self, name: str, settings: Settings) -> BundledInput | None:
        """The data of a kind that these settings ask for, if it was brought."""
        asked = asked_of(settings)[name]
        return next((piece for piece in self.pieces if piece.name == name and piece.asked == asked), None)

    def copy_of(self, name: str, settings: Settings) -> Path | None:
        """Where the copy of the data stands."""
        piece = self.piece(name, settings)
        return None if piece is None or piece.copy is None else self.root / piece.copy

    def task(self, settings: Settings) -> Task | None:
        """The labelled data as it was read where the bundle was made."""
        folder = self.copy_of("task", settings)
        return None if folder is None else read_task(folder)

    def about_other_task(self, settings: Settings, error: InputError) -> InputError:
        """What to say where the task's own files were tried in vain, since these settings ask for other data."""
        piece = next((piece for piece in self.pieces if piece.name == "task"), None)
        if piece is None:
            return error
        before, now = flatten(piece.asked), flatten(asked_of(settings)["task"])
        changed = ", ".join(key for key in now if now[key] != before.get(key))
        return InputError(
            f"the bundle holds the task as read with another {changed}, and its files are not here: {error}"
        )

    def settings_here(self, settings: Settings) -> Settings:
        """The settings with paths that lead to the copies."""
        model, tokenizer = settings.model, settings.tokenizer
        checkpoint = self.copy_of("checkpoint", settings)
        if checkpoint is not None:
            model = model.model_copy(update={"path": str(checkpoint)})
        given = self.copy_of("tokenizer", settings) if tokenizer.path is not None else None
        if given is not None:
            tokenizer = tokenizer.model_copy(update={"path": str(given)})
        return settings.model_copy(update={"model": model, "tokenizer": tokenizer})

    def why_missing(self, name: str, settings: Settings) -> str | None:
        """The reason why data cannot be read here; None where it was not left behind."""
        piece = self.piece(name, settings)
        if piece is None or piece.copy is not None:
            return None
        return f"the {name} ({data_path(settings, name)}) stayed on the machine where the bundle was made"

    def as_json(self) -> str:
        """The content of `outside.json`."""
        tree = {"format": _FORMAT, "pieces": [asdict(piece) for piece in self.pieces]}
        return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def find_bundled_inputs(folder: Path) -> BundledInputs:
    """The record for a run's folder, which stands there or in the folder of the several runs it came with."""
    for place in (folder, *folder.absolute().parents[:LEVELS_ABOVE]):
        if (place / OUTSIDE).is_file():
            return _read(place)
    return BundledInputs(folder)


def _read(root: Path) -> BundledInputs:
    path = root / OUTSIDE
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        made_as = tree["format"]
        pieces = tuple(_piece(each) for each in tree["pieces"]) if made_as == _FORMAT else ()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError("not the record of a bundle", path=path, hint="was the file changed by hand?") from None
    if made_as != _FORMAT:
        raise InputError(f"written by a newer endtask (format {made_as!r:.20})", path=path, hint="upgrade endtask")
    if any(piece.copy is not None and not _is_below(piece.copy) for piece in pieces):
        raise InputError("a copy is said to lie outside the bundle", path=path, hint="was the file changed by hand?")
    return BundledInputs(root, pieces)


def _piece(tree: Any) -> BundledInput:
    piece = BundledInput(**tree)
    if not isinstance(piece.asked, dict) or not isinstance(piece.copy, str | None):
        raise TypeError
    if piece.name not in DATA or not isinstance(piece.fingerprint, str):
        raise ValueError
    return piece


def _is_below(copy: str) -> bool:
    path = PurePosixPath(copy)
    return copy.isprintable() and not path.is_absolute() and ".." not in path.parts


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
