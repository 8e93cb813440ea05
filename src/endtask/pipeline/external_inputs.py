"""The data that a run reads from outside its folder: which settings say where it lies, and what identifies it."""

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

DATA = ("task", "corpus", "unlabelled", "selection", "aligned", "tokenizer", "checkpoint")
TOKENIZER_SUFFIXES = (".json", ".txt", ".model")


def asked_of(settings: Settings) -> dict[str, Any]:
    """For each kind of data, the settings that say which is meant; None where none of the kind is read.

    >>> asked_of(Settings())["checkpoint"] is None
    True
    """
    has_corpus = bool(settings.corpus.sources) and reads_corpus(settings)
    return {
        "task": _asked_of_task(settings),
        "corpus": {"corpus": settings.corpus.model_dump(mode="json")} if has_corpus else None,
        "unlabelled": _path(settings.retrieve.unlabelled),
        "selection": _path(_selector_path(settings)),
        "aligned": _asked_of_aligned(settings),
        "tokenizer": _path(settings.tokenizer.path or settings.model.path),
        "checkpoint": _path(settings.model.path),
    }


def data_path(settings: Settings, name: str) -> str:
    """Where data of a kind lies, as the user wrote it."""
    if name == "aligned":
        return ", ".join(source.path for source in settings.aligned.sources)
    if name == "corpus":
        return ", ".join(source.path for source in settings.corpus.sources)
    paths = {
        "task": ", ".join(one.path for one in (settings.task, *settings.tasks.values())),
        "unlabelled": settings.retrieve.unlabelled,
        "selection": _selector_path(settings),
        "tokenizer": settings.tokenizer.path or settings.model.path,
        "checkpoint": settings.model.path,
    }
    return str(paths[name])


def needs_corpus(select: SelectSettings) -> bool:
    """Whether the corpus has a part in the selection."""
    return bool(select.part.reads_corpus(select.budget))


def selection_digest(settings: Settings) -> str:
    """Return what identifies the files that the selector reads beside the corpus; `none` without any."""
    found = [part.external_digest() for part in settings.select.part.parts() if part.external_path() is not None]
    return "none" if not found else found[0] if len(found) == 1 else fingerprint(found)


def _selector_path(settings: Settings) -> str | None:
    """What the selector reads beside the corpus: an imported file, or an embedding."""
    paths = [path for part in settings.select.part.parts() if (path := part.external_path()) is not None]
    return ", ".join(paths) or None


def reads_corpus(settings: Settings) -> bool:
    """Whether the corpus is read at all: for the selection, or for the domain's text."""
    return needs_corpus(settings.select) or settings.reads_domain


def unread_corpus(settings: Settings) -> str | None:
    """What to tell a user whose corpus no stage would read; None where it is read, or there is none."""
    if not settings.corpus.sources or reads_corpus(settings):
        return None
    could = [name for name, one in settings.pretrain.objectives.items() if one.reads == "domain" and not one.weight]
    hint = f"pretrain.objectives.{could[0]}.weight=1 would" if could else "another select.name would"
    return f"nothing reads the corpus: select.name is none, and no objective reads the domain ({hint})"


def aligned_fingerprint(settings: Settings) -> str:
    """A hash of the files that aligned objectives read, their list of words included."""
    if not settings.reads_aligned:
        return "none"
    words = settings.aligned.word_list
    return fingerprint(
        Corpus.aligned(settings.aligned, settings.corpus).fingerprint(), None if words is None else _digest_of(words)
    )


def unlabelled_fingerprint(path: str | None) -> str:
    """A hash of the files of unlabelled task texts."""
    return "none" if path is None else fingerprint([file_digest(file) for file in find_files(path).paths])


def tokenizer_fingerprint(settings: Settings) -> str:
    """A hash of a given tokenizer's files; the model's weights may lie beside them and do not count."""
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
    """The files that a tokenizer on this machine may read."""
    if path.startswith(HUB_PREFIX):
        folder = hub_folder(path, *(f"*{suffix}" for suffix in TOKENIZER_SUFFIXES), key=key)
    else:
        folder = package_folder(path, key=key) if path.startswith(PACKAGE_PREFIX) else Path(path)
    if not folder.is_dir():
        raise InputError("no such tokenizer folder", path=path, key=key)
    return sorted(file for file in folder.iterdir() if file.suffix in TOKENIZER_SUFFIXES)


def _asked_of_task(settings: Settings) -> dict[str, Any]:
    auxiliary = {name: one.model_dump(mode="json") for name, one in settings.tasks.items()}
    asked = {"task": settings.task.model_dump(mode="json"), "seed": settings.seed}
    return {**asked, "tasks": auxiliary} if auxiliary else asked


def _asked_of_aligned(settings: Settings) -> dict[str, Any] | None:
    if not settings.reads_aligned:
        return None
    sources = [source.model_dump(mode="json") for source in settings.aligned.sources]
    return {"sources": sources, "word_list": settings.aligned.word_list}


def _digest_of(path: str) -> str:
    if not Path(path).is_file():
        raise InputError("no such file", path=path, key="aligned.word_list")
    return file_digest(Path(path))


def _path(path: str | None) -> dict[str, str] | None:
    return None if path is None else {"path": path}
