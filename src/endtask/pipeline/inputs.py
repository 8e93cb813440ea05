"""External inputs of a run: which settings request them, where they are, their digests, and copies in a bundle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from endtask.config import SelectSettings, Settings
from endtask.corpus import Corpus
from endtask.corpus.sources import HUB_PREFIX
from endtask.encoders.checkpoint_files import TOKENIZER_SUFFIXES, hub_folder
from endtask.errors import InputError
from endtask.io.digests import fingerprint
from endtask.io.installed_package import PACKAGE_PREFIX, package_folder
from endtask.io.nested import flatten
from endtask.io.parsing import parse_json
from endtask.task import Task
from endtask.task.task import read_task

EXTERNAL_INPUTS = ("task", "corpus", "selection", "aligned", "tokenizer", "checkpoint")


def requested_inputs(settings: Settings) -> dict[str, Any]:
    """Return, for each external input, the settings that request it; None if the run does not read it.

    >>> requested_inputs(Settings())["checkpoint"] is None
    True
    """
    has_corpus = bool(settings.corpus.sources) and reads_corpus(settings)
    return {
        "task": _requested_task(settings),
        "corpus": {"corpus": settings.corpus.model_dump(mode="json")} if has_corpus else None,
        "selection": _path(_selector_path(settings)),
        "aligned": _requested_aligned(settings),
        "tokenizer": _path(settings.tokenizer.path or settings.model.path),
        "checkpoint": _path(settings.model.path),
    }


def input_path(settings: Settings, name: str) -> str:
    """Return the path of an external input, as the user wrote it."""
    paths = {
        "task": ", ".join(task.path for task in (settings.task, *settings.tasks.values())),
        "corpus": ", ".join(source.path for source in settings.corpus.sources),
        "aligned": ", ".join(source.path for source in settings.aligned.sources),
        "selection": _selector_path(settings),
        "tokenizer": settings.tokenizer.path or settings.model.path,
        "checkpoint": settings.model.path,
    }
    return str(paths[name])


def needs_corpus(select: SelectSettings) -> bool:
    """Return whether the selection depends on the corpus."""
    return bool(select.part.reads_corpus(select.budget))


def selection_digest(settings: Settings) -> str:
    """Return a digest of the files that the selector reads in addition to the corpus; `none` if there are none."""
    digests = [part.external_digest() for part in settings.select.part.parts() if part.external_path() is not None]
    if not digests:
        return "none"
    return digests[0] if len(digests) == 1 else fingerprint(digests)


def _selector_path(settings: Settings) -> str | None:
    """Return the files that the selector reads in addition to the corpus, such as imported passages or vectors."""
    paths = [path for part in settings.select.part.parts() if (path := part.external_path()) is not None]
    return ", ".join(paths) or None


def reads_corpus(settings: Settings) -> bool:
    """Return whether the run reads the corpus, for the selection or for the domain's text."""
    return needs_corpus(settings.select) or settings.reads_domain


def unread_corpus(settings: Settings) -> str | None:
    """Return a warning if the settings name a corpus that no stage reads, else None."""
    if not settings.corpus.sources or reads_corpus(settings):
        return None
    objectives = settings.pretrain.objectives.items()
    unused = [name for name, objective in objectives if objective.reads == "domain" and not objective.weight]
    hint = f"pretrain.objectives.{unused[0]}.weight=1 would" if unused else "another select.name would"
    return (
        f"nothing reads the corpus: select.name is {settings.select.name}, and no objective reads the domain ({hint})"
    )


def aligned_fingerprint(settings: Settings) -> str:
    """Return a digest of the files that aligned objectives read."""
    if not settings.reads_aligned:
        return "none"
    return Corpus.aligned(settings.aligned, settings.corpus).fingerprint()


def tokenizer_fingerprint(settings: Settings) -> str:
    """Return a digest of the tokenizer's files, without model weights in the same folder; `learned` without files."""
    path, key = settings.tokenizer.path, "tokenizer.path"
    if path is None:
        path, key = settings.model.path, "model.path"
    if path is None:
        return "learned"
    if path.startswith(HUB_PREFIX):
        return hub_folder(path, "tokenizer_config.json", key=key).name  # its revision
    files = tokenizer_files(path, key=key)
    return fingerprint([(file.name, sha256(file.read_bytes()).hexdigest()) for file in files])


def tokenizer_files(path: str, *, key: str = "tokenizer.path") -> list[Path]:
    """Return the files that a tokenizer on this machine may read."""
    if path.startswith(HUB_PREFIX):
        folder = hub_folder(path, *(f"*{suffix}" for suffix in TOKENIZER_SUFFIXES), key=key)
    else:
        folder = package_folder(path, key=key) if path.startswith(PACKAGE_PREFIX) else Path(path)
    if not folder.is_dir():
        raise InputError("no such tokenizer folder", path=path, key=key)
    return sorted(file for file in folder.iterdir() if file.suffix in TOKENIZER_SUFFIXES)


def _requested_task(settings: Settings) -> dict[str, Any]:
    auxiliary = {name: task.model_dump(mode="json") for name, task in settings.tasks.items()}
    requested = {"task": settings.task.model_dump(mode="json"), "seed": settings.seed}
    return {**requested, "tasks": auxiliary} if auxiliary else requested


def _requested_aligned(settings: Settings) -> dict[str, Any] | None:
    if not settings.reads_aligned:
        return None
    return {"sources": [source.model_dump(mode="json") for source in settings.aligned.sources]}


def _path(path: str | None) -> dict[str, str] | None:
    return None if path is None else {"path": path}


RECORD = "external_inputs.json"
COPIES = "external_inputs"
"""The folder of the copies, next to the record."""

LEVELS_ABOVE = 3
"""How many folders above a run its record may be; all runs of a bundle share a record."""

_FORMAT = 1


@dataclass(frozen=True)
class BundledInput:
    """An external input: the settings that request it, its digest, and its copy, relative to the record's folder."""

    name: str
    requested: dict[str, Any]
    fingerprint: str
    copy: str | None = None


@dataclass(frozen=True)
class BundledInputs:
    """The record of an unpacked bundle; it has no `inputs` in other folders."""

    root: Path
    inputs: tuple[BundledInput, ...] = ()

    def find(self, name: str, settings: Settings) -> BundledInput | None:
        """Return the bundle's input of this name if the settings request the same input, else None."""
        requested = requested_inputs(settings)[name]
        return next(
            (bundled for bundled in self.inputs if (bundled.name, bundled.requested) == (name, requested)), None
        )

    def copy_of(self, name: str, settings: Settings) -> Path | None:
        """Return the path of an input's copy; None without a copy."""
        bundled = self.find(name, settings)
        return None if bundled is None or bundled.copy is None else self.root / bundled.copy

    def task(self, settings: Settings) -> Task | None:
        """Return the labelled data as read where the bundle was made; None without a copy."""
        folder = self.copy_of("task", settings)
        return None if folder is None else read_task(folder)

    def explain_other_task(self, settings: Settings, error: InputError) -> InputError:
        """Return the error to raise if the settings request another task than the bundle holds."""
        bundled = next((bundled for bundled in self.inputs if bundled.name == "task"), None)
        if bundled is None:
            return error
        before, now = flatten(bundled.requested), flatten(requested_inputs(settings)["task"])
        changed = ", ".join(key for key in now if now[key] != before.get(key))
        return InputError(
            f"the bundle holds the task as read with another {changed}, and its files are not here: {error}"
        )

    def local_settings(self, settings: Settings) -> Settings:
        """Return the settings with paths that lead to the copies."""
        model, tokenizer = settings.model, settings.tokenizer
        checkpoint = self.copy_of("checkpoint", settings)
        if checkpoint is not None:
            model = model.model_copy(update={"path": str(checkpoint)})
        tokenizer_copy = self.copy_of("tokenizer", settings) if tokenizer.path is not None else None
        if tokenizer_copy is not None:
            tokenizer = tokenizer.model_copy(update={"path": str(tokenizer_copy)})
        return settings.model_copy(update={"model": model, "tokenizer": tokenizer})

    def why_missing(self, name: str, settings: Settings) -> str | None:
        """Return why an input cannot be read on this machine; None if it can be read."""
        bundled = self.find(name, settings)
        if bundled is None or bundled.copy is not None:
            return None
        return f"the {name} ({input_path(settings, name)}) stayed on the machine where the bundle was made"

    def as_json(self) -> str:
        """Return the content of the record file."""
        tree = {"format": _FORMAT, "inputs": [asdict(bundled) for bundled in self.inputs]}
        return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def find_bundled_inputs(folder: Path) -> BundledInputs:
    """Return the record of a run's bundle, from the run's folder or a parent folder."""
    for parent in (folder, *folder.absolute().parents[:LEVELS_ABOVE]):
        if (parent / RECORD).is_file():
            return _read_record(parent)
    return BundledInputs(folder)


def _read_record(root: Path) -> BundledInputs:
    path = root / RECORD
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        version = tree["format"]
        inputs = tuple(_parse_input(entry) for entry in tree["inputs"]) if version == _FORMAT else ()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError("not the record of a bundle", path=path, hint="was the file changed by hand?") from None
    if version != _FORMAT:
        raise InputError(f"written by a newer endtask (format {version!r:.20})", path=path, hint="upgrade endtask")
    if any(bundled.copy is not None and not _is_below(bundled.copy) for bundled in inputs):
        raise InputError("the path of a copy leads out of the bundle", path=path, hint="was the file changed by hand?")
    return BundledInputs(root, inputs)


def _parse_input(tree: Any) -> BundledInput:
    bundled = BundledInput(**tree)
    if not isinstance(bundled.requested, dict) or not isinstance(bundled.copy, str | None):
        raise TypeError
    if bundled.name not in EXTERNAL_INPUTS or not isinstance(bundled.fingerprint, str):
        raise ValueError
    return bundled


def _is_below(copy: str) -> bool:
    path = PurePosixPath(copy)
    return copy.isprintable() and not path.is_absolute() and ".." not in path.parts
