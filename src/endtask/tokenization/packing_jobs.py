"""Tokenise a selection by the machines of a cluster, a row group for each job; the files are those of one machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from endtask.executors.base import Executor, Job, Report
from endtask.io.selection_table import count_groups, read_group
from endtask.tokenization.packed_texts import PackedTexts, join_packed, pack_passages
from endtask.tokenization.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_DONE = "shape.json"
"""The last file of packed texts."""


def pack_on_cluster(
    selection: Path, tokenizer: Path, max_length: int, folder: Path, executor: Executor, *, truncate: bool
) -> PackedTexts:
    """Tokenise the passages of a selection as `pack_passages` does; finished parts of an interrupted call stay."""
    parts = folder.absolute().with_name(f"{folder.name}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    common = {
        "selection": str(selection.absolute()),
        "tokenizer": str(tokenizer.absolute()),
        "max_length": max_length,
        "truncate": truncate,
    }
    folders = [parts / str(group) for group in range(count_groups(selection))]
    jobs: list[Job] = [
        {**common, "group": group, "into": str(part)}
        for group, part in enumerate(folders)
        if not (part / _DONE).exists()
    ]
    executor.run(__name__, jobs, lambda **_: None)
    packed = join_packed(folders, folder)
    shutil.rmtree(parts)
    return packed


def handle(job: Job, report: Report) -> None:
    """Tokenise the passages of a row group."""
    length, into = job["max_length"], Path(job["into"])
    texts = _texts(Path(job["selection"]), job["group"])
    pack_passages(texts, _tokenizer(job["tokenizer"]), length, into, truncate=job["truncate"])


def _texts(selection: Path, group: int) -> Iterator[str]:
    for batch in read_group(selection, group, ["text"]):
        yield from batch.column(0).to_pylist()


@lru_cache(maxsize=1)
def _tokenizer(path: str) -> PreTrainedTokenizerFast:
    return load_tokenizer(path)
