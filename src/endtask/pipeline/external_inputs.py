"""External inputs of a run: which settings request them, where they are, and their digests."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from endtask.config import SelectSettings, Settings
from endtask.corpus import Corpus
from endtask.corpus.sources import HUB_PREFIX, find_files
from endtask.encoders.checkpoint_files import hub_folder
from endtask.errors import InputError
from endtask.io.digests import file_digest, fingerprint
from endtask.io.installed_package import PACKAGE_PREFIX, package_folder

EXTERNAL_INPUTS = ("task", "corpus", "unlabelled", "selection", "aligned", "tokenizer", "checkpoint")
TOKENIZER_SUFFIXES = (".json", ".txt", ".model")


def requested_inputs(settings: Settings) -> dict[str, Any]:
    """Return, for each external input, the settings that request it; None where the run does not read it.

    >>> requested_inputs(Settings())["checkpoint"] is None
    True
    """
    has_corpus = bool(settings.corpus.sources) and reads_corpus(settings)
    return {
        "task": _requested_task(settings),
        "corpus": {"corpus": settings.corpus.model_dump(mode="json")} if has_corpus else None,
        "unlabelled": _path(settings.retrieve.unlabelled),
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
        "unlabelled": settings.retrieve.unlabelled,
        "selection": _selector_path(settings),
        "tokenizer": settings.tokenizer.path or settings.model.path,
        "checkpoint": settings.model.path,
    }
    return str(paths[name])


def needs_corpus(select: SelectSettings) -> bool:
    """Return whether the selection depends on the corpus."""
    return bool(select.part.reads_corpus(select.budget))


def selection_digest(settings: Settings) -> str:
    """Return a digest of the files that the selector reads in addition to the corpus; `none` without any."""
    found = [part.external_digest() for part in settings.select.part.parts() if part.external_path() is not None]
    return "none" if not found else found[0] if len(found) == 1 else fingerprint(found)


def _selector_path(settings: Settings) -> str | None:
    """Return what the selector reads in addition to the corpus, such as an imported file or an embedding."""
    paths = [path for part in settings.select.part.parts() if (path := part.external_path()) is not None]
    return ", ".join(paths) or None


def reads_corpus(settings: Settings) -> bool:
    """Return whether the run reads the corpus, for the selection or for the domain's text."""
    return needs_corpus(settings.select) or settings.reads_domain


def unread_corpus(settings: Settings) -> str | None:
    """Return a warning where the settings name a corpus that no stage reads; None otherwise."""
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


def unlabelled_fingerprint(path: str | None) -> str:
    """Return a digest of the files of unlabelled task texts."""
    return "none" if path is None else fingerprint([file_digest(file) for file in find_files(path).paths])


def tokenizer_fingerprint(settings: Settings) -> str:
    """Return a digest of a given tokenizer's files; model weights in the same folder do not count."""
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
