"""Corpora in the Hugging Face `datasets` format: `hf:NAME[:CONFIG[:SPLIT]]`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from endtask.corpus.sources import HUB_PREFIX
from endtask.errors import InputError
from endtask.io.digests import file_digest
from endtask.io.input_files import import_extra
from endtask.io.rows.base import Row


def hub_rows(path: str) -> Iterator[tuple[int, Row]]:
    """Yield (row number, row) of `hf:NAME[:CONFIG[:SPLIT]]`; the default split is `train`."""
    datasets = _datasets(path)
    name, config, split = split_address(path)
    with _input_errors(path, datasets):
        rows = datasets.load_dataset(name, config, split=split, streaming=True)
        yield from enumerate(rows, start=1)


def hub_digests(path: str) -> list[list[str]]:
    """Return what identifies the data: addresses with their revision, or name and digest of local files."""
    datasets = _datasets(path)
    name, config, split = split_address(path)
    with _input_errors(path, datasets):
        builder = datasets.load_dataset_builder(name, config)
    files = (builder.config.data_files or {}).get(split, ())
    return [["builder", type(builder).__name__, builder.config.name, split], *map(_digest, files)]


def split_address(path: str) -> tuple[str, str | None, str]:
    """Return name, config and split of a hub address.

    >>> split_address("hf:wikimedia/wikipedia:20231101.simple")
    ('wikimedia/wikipedia', '20231101.simple', 'train')
    """
    name, config, split, *rest = [*path.removeprefix(HUB_PREFIX).split(":"), "", ""]
    if not name or any(rest):
        hint = "write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT"
        raise InputError("not an address on the hub", path=path, hint=hint)
    return name, config or None, split or "train"


def _digest(address: str) -> list[str]:
    local = Path(address)
    return [local.name, file_digest(local)] if local.is_file() else [address]


def _datasets(path: str) -> Any:
    return import_extra("datasets", "hub", path, purpose="reading from the hub")


@contextmanager
def _input_errors(path: str, datasets: Any) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot be loaded: {reason}", path=path) from None
