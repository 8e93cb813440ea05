"""The pack stage: learn or load the tokenizer, then tokenise selection and task once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.files.selection_table import SelectedTexts, read_batches
from endtask.progress import bar
from endtask.records import Example
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.marks import add_marks
from endtask.text.packed import PackedTexts, Texts, pack_examples, pack_passages, pack_windows
from endtask.text.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class TrainingTexts:
    """What the tokenizer learns from: the selection and the train texts, never dev or test."""

    def __init__(self, task: Task, selection: Path) -> None:
        self._task, self._selection = task, SelectedTexts(selection)

    def __iter__(self) -> Iterator[str]:
        for example in self._task.splits["train"]:
            yield example.text
            if example.text_pair:
                yield example.text_pair
        yield from self._selection


def pack(task: Task, selection: Path, settings: Settings, folder: Path) -> dict[str, Any]:
    """Write `tokenizer/`, `external/`, `internal/` and one folder per split; returns counts for the manifest.

    `internal/` is the train split at stage 1's length, the splits have stage 2's: a text is cut by the tokenizer,
    which keeps [SEP] and both texts of a pair, never later. Only the splits are read by windows: in stage 1 a long
    task text loses its tail, as in the TLM authors' code.
    """
    refuse_windows_of_pairs(task, settings)
    with bar("tokenizer", None):
        tokenizer = tokenizer_for(task, selection, settings)
        save_tokenizer(tokenizer, folder / "tokenizer")
    with bar("tokens", None):
        external = pack_passages(
            SelectedTexts(selection),
            tokenizer,
            settings.train.max_length,
            folder / "external",
            truncate=settings.train.truncate_passages,
            ranks=best_first(selection),
        )
    counts = {"vocabulary": len(tokenizer), "external": _counts(external)}
    internal_length = settings.train.internal_max_length or settings.train.max_length
    internal = pack_examples(_texts_of(task.train), tokenizer, internal_length, folder / "internal")
    counts["internal"] = _counts(internal)
    for split, examples in task.splits.items():
        counts[split] = _counts(_pack_split(examples, tokenizer, settings, folder / split))
    return counts


def best_first(selection: Path) -> NDArray[np.int64]:
    """The place of each passage when all are put in order, best rank first; ties go as in the selection by rank."""
    names = ("rank", "score")
    batches = read_batches(selection, columns=names)
    figures = [np.stack([batch.column(name).to_numpy() for name in names]) for batch in batches]
    rank, score = np.concatenate([np.zeros((2, 0)), *figures], axis=1)  # an empty selection has no batches
    order = np.lexsort((np.arange(len(rank)), -score, rank))
    return np.argsort(order)


def tokenizer_for(task: Task, selection: Path, settings: Settings) -> PreTrainedTokenizerFast:
    """The tokenizer that the settings name, or that of the model they name, or one learned here."""
    given = given_tokenizer(settings)
    if given is not None:
        return given
    train, finetune = settings.train, settings.finetune
    longest = max(train.max_length, train.internal_max_length or 0, finetune.max_length)
    return train_tokenizer(TrainingTexts(task, selection), settings.tokenizer, longest, seed=settings.seed)


def given_tokenizer(settings: Settings) -> PreTrainedTokenizerFast | None:
    """The tokenizer that the settings name, or that of the model they name; marks that it lacks are added."""
    for key, path in (("tokenizer.path", settings.tokenizer.path), ("model.path", settings.model.path)):
        if path:
            tokenizer = load_tokenizer(path, key=key)
            add_marks(tokenizer, settings.tokenizer.marks)
            return tokenizer
    return None


def refuse_windows_of_pairs(task: Task, settings: Settings) -> None:
    """Windows are for single texts: which windows of two long texts belong together nobody can say."""
    if settings.finetune.window_stride is not None and task.kind == "pair":
        raise InputError(
            "text pairs cannot be read by windows",
            key="finetune.window_stride",
            hint="leave it unset; the longer text of a pair is then cut off first",
        )


def _pack_split(
    examples: tuple[Example, ...], tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path
) -> PackedTexts:
    length, stride = settings.finetune.max_length, settings.finetune.window_stride
    if stride is None:
        return pack_examples(_texts_of(examples), tokenizer, length, folder)
    return pack_windows((example.text for example in examples), tokenizer, length, stride, folder)


def _texts_of(examples: tuple[Example, ...]) -> Iterator[Texts]:
    return ((example.text, example.text_pair) for example in examples)


def _counts(texts: PackedTexts) -> dict[str, int]:
    return {"texts": len(texts), "tokens": int(texts.lengths.sum())}
