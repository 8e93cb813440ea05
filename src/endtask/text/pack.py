"""The pack stage: learn or load the tokenizer, then tokenise selection and task once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endtask.files.selection_table import SelectedTexts
from endtask.progress import bar
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.packed import PackedTexts, pack_examples, pack_passages
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
    which keeps [SEP] and both texts of a pair, never later.
    """
    with bar("tokenizer", None):
        tokenizer = tokenizer_for(task, selection, settings)
        save_tokenizer(tokenizer, folder / "tokenizer")
    with bar("tokens", None):
        external = pack_passages(SelectedTexts(selection), tokenizer, settings.train.max_length, folder / "external")
    counts = {"vocabulary": len(tokenizer), "external": _counts(external)}
    parts = [("internal", task.train, settings.train.max_length)]
    parts += [(split, examples, settings.finetune.max_length) for split, examples in task.splits.items()]
    for name, examples, max_length in parts:
        texts = ((example.text, example.text_pair) for example in examples)
        counts[name] = _counts(pack_examples(texts, tokenizer, max_length, folder / name))
    return counts


def tokenizer_for(task: Task, selection: Path, settings: Settings) -> PreTrainedTokenizerFast:
    """The tokenizer that the settings ask for."""
    if settings.tokenizer.path:
        return load_tokenizer(settings.tokenizer.path)
    longest = max(settings.train.max_length, settings.finetune.max_length)
    return train_tokenizer(TrainingTexts(task, selection), settings.tokenizer, longest)


def _counts(texts: PackedTexts) -> dict[str, int]:
    return {"texts": len(texts), "tokens": int(texts.lengths.sum())}
