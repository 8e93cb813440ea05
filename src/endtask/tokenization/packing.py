"""The pack stage: learn or load the tokenizer, then tokenise the selection and the task once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from endtask.config import Settings
from endtask.corpus.corpus import Corpus, DrawnDocuments
from endtask.errors import InputError, did_you_mean
from endtask.executors.choice import cluster_for
from endtask.io.run_layout import TASKS
from endtask.io.selection_table import SelectedTexts, table_rows
from endtask.progress import bar, say, warn
from endtask.records import Document, Example
from endtask.task import Task
from endtask.tokenization.aligned_texts import pack_aligned
from endtask.tokenization.packed_texts import (
    PackedTexts,
    Texts,
    WordStarts,
    pack_examples,
    pack_passages,
    pack_tagged,
    pack_windows,
)
from endtask.tokenization.packing_jobs import pack_on_cluster
from endtask.tokenization.special_tokens import add_markers, likely_markers, marker_pattern
from endtask.tokenization.subword_sampling import sampling_encoder
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


_MANY_CUT = 0.1
"""The share of train texts that may be cut off without a warning."""


class TrainingTexts:
    """The texts that the tokenizer learns from: train texts of all tasks, selection, domain and aligned objectives."""

    def __init__(self, task: Task, *files: Path, aligned: Iterable[Document] = ()) -> None:
        self._task, self._selected, self._aligned = task, [SelectedTexts(file) for file in files], aligned

    def __iter__(self) -> Iterator[str]:
        for task in (self._task, *self._task.auxiliary.values()):
            for example in task.splits["train"]:
                yield example.text
                if example.text_pair:
                    yield example.text_pair
        for texts in self._selected:
            yield from texts
        for document in self._aligned:
            yield document.text


def pack(
    task: Task,
    selection: Path,
    settings: Settings,
    folder: Path,
    *,
    domain: Path | None = None,
    aligned: DrawnDocuments | None = None,
) -> dict[str, Any]:
    """Write `tokenizer/`, `selection/`, `task/` and a folder per split; return counts for the manifest.

    Passages of `domain` go to `domain/`, those of `aligned` to `aligned/`, and the texts of an auxiliary task to
    `tasks/NAME/`, with the same folders as the end task.

    `task/` is the train split at the length of pre-training; the splits have the length of fine-tuning. The tokenizer
    truncates texts, which preserves [SEP] and both texts of a pair. Only the splits have windows: pre-training
    truncates long task texts, as in the TLM authors' code.
    """
    check_no_windows_of_pairs(task, settings)
    tokenizer = existing_tokenizer(settings)
    with bar("tokenizer", None):
        if tokenizer is None:
            tokenizer = tokenizer_for(task, selection, settings, domain=domain, aligned=aligned or ())
        save_tokenizer(tokenizer, folder / "tokenizer")
    with bar("tokens", None):
        passages = _pack_selection(selection, tokenizer, settings, folder)
    counts: dict[str, Any] = {"vocabulary": len(tokenizer), "selection": _counts(passages)}
    if domain is not None:
        counts["domain"] = _counts(_pack_domain(domain, tokenizer, settings, folder / "domain"))
    if aligned is not None:
        packed = _counts(_pack_aligned(aligned, tokenizer, settings, folder / "aligned"))
        counts["aligned"] = {**packed, "notes": _aligned_notes(aligned.corpus)}
    counts |= _pack_task(task, tokenizer, settings, folder)
    if task.auxiliary:
        counts[TASKS] = {
            name: _pack_task(auxiliary, tokenizer, settings, folder / TASKS / name, f" of {name}")
            for name, auxiliary in task.auxiliary.items()
        }
    return counts


def report_small_vocabulary(learned: int, settings: Settings) -> None:
    """Print a line if the learned vocabulary is smaller than `tokenizer.vocab_size`."""
    size = settings.tokenizer.vocab_size
    if learned < size and settings.learns_tokenizer:
        say(f"the texts give {learned:,} tokens, fewer than the {size:,} of tokenizer.vocab_size: all of them are used")


def _pack_task(
    task: Task, tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path, whose: str = ""
) -> dict[str, dict[str, int]]:
    """Pack the train split for pre-training and all splits for fine-tuning; warnings end with `whose`."""
    length = settings.pretrain.task_max_length or settings.pretrain.max_length
    counts = {"task": _counts(pack_task_texts(task.train, tokenizer, length, folder / "task"))}
    for split, examples in task.splits.items():
        packed = pack_split(examples, tokenizer, settings, folder / split)
        counts[split] = _counts(packed)
        if task.task_type.per_token:
            counts[split]["lost_words"] = _lost_words(folder / split, split + whose, settings.finetune.max_length)
        elif settings.finetune.window_stride is None:
            counts[split]["cut_texts"] = int((packed.lengths >= settings.finetune.max_length).sum())
        if settings.tokenizer.markers and not task.task_type.per_token:
            _warn_about_lost_markers(examples, tokenizer, settings, folder / split, split + whose)
    if "cut_texts" in counts["train"]:
        _warn_about_cut_texts(counts["train"], whose, settings.finetune.max_length, windows=not _has_pairs(task))
    return counts


def _pack_selection(
    selection: Path, tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path
) -> PackedTexts:
    """Tokenise the selection here, or on the machines of a cluster."""
    length, truncate = settings.pretrain.max_length, settings.pretrain.truncate_passages
    cluster = cluster_for(settings, folder) if table_rows(selection) else None
    if cluster is None:
        return pack_passages(SelectedTexts(selection), tokenizer, length, folder / "selection", truncate=truncate)
    return pack_on_cluster(selection, folder / "tokenizer", length, folder / "selection", cluster, truncate=truncate)


def _pack_domain(domain: Path, tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path) -> PackedTexts:
    length, truncate = settings.pretrain.max_length, settings.pretrain.truncate_passages
    with bar("tokens of the domain", None):
        return pack_passages(SelectedTexts(domain), tokenizer, length, folder, truncate=truncate)


def _pack_aligned(
    documents: DrawnDocuments, tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path
) -> PackedTexts:
    names, sampled = [source.name for source in documents.corpus.sources], settings.aligned.subword_sampling
    for name in sampled:
        if name not in names:
            hint = did_you_mean(name, names)
            raise InputError(f"there is no source {name!r}", key="aligned.subword_sampling", hint=hint)
    with bar("tokens of aligned objectives", None):
        encode = sampling_encoder(tokenizer, sampled, settings.seed)
        return pack_aligned(documents, tokenizer, settings.pretrain.max_length, folder, encode=encode)


def _aligned_notes(corpus: Corpus) -> list[str]:
    """Return sentences about what was not read of the text of aligned objectives, and print them."""
    notes = [*corpus.unread_lines(), *corpus.statistics.skipped_lines()]
    for note in notes:
        warn(note)
    return notes


def tokenizer_for(
    task: Task,
    selection: Path,
    settings: Settings,
    *,
    domain: Path | None = None,
    aligned: Iterable[Document] = (),
    max_texts: int | None = None,
) -> PreTrainedTokenizerFast:
    """Return the tokenizer of `tokenizer.path` or `model.path`, or learn one."""
    existing = existing_tokenizer(settings)
    if existing is not None:
        return existing
    train, finetune = settings.pretrain, settings.finetune
    longest = max(train.max_length, train.task_max_length or 0, finetune.max_length)
    texts = TrainingTexts(task, selection, *([] if domain is None else [domain]), aligned=aligned)
    return train_tokenizer(texts, settings.tokenizer, longest, max_texts=max_texts, seed=settings.seed)


def existing_tokenizer(settings: Settings) -> PreTrainedTokenizerFast | None:
    """Return the tokenizer of `tokenizer.path` or `model.path` with the entity markers added, or None."""
    for key, path in (("tokenizer.path", settings.tokenizer.path), ("model.path", settings.model.path)):
        if path:
            tokenizer = load_tokenizer(path, key=key)
            add_markers(tokenizer, settings.tokenizer.markers)
            return tokenizer
    return None


def with_detected_markers(settings: Settings, task: Task) -> Settings:
    """Return the settings with the markers of a task's train texts in place of `tokenizer.entity_markers: auto`."""
    if settings.tokenizer.entity_markers != "auto":
        return settings
    markers = () if task.task_type.per_token else likely_markers([example.text for example in task.train])
    return settings.model_copy(update={"tokenizer": settings.tokenizer.model_copy(update={"entity_markers": markers})})


def check_no_windows_of_pairs(task: Task, settings: Settings) -> None:
    """Raise `InputError` for `finetune.window_stride` with text pairs or tagged texts.

    It is undefined which windows of two long texts belong together, and overlapping windows read tagged words twice.
    """
    for name, auxiliary in task.auxiliary.items():
        _check_windows(auxiliary, settings, f"tasks.{name}: ")
    _check_windows(task, settings)


def _has_pairs(task: Task) -> bool:
    return any(example.text_pair is not None for example in task.train)


def _check_windows(task: Task, settings: Settings, whose: str = "") -> None:
    is_pair = _has_pairs(task)
    if settings.finetune.window_stride is not None and (is_pair or task.task_type.per_token):
        raise InputError(
            f"{whose}{'text pairs' if is_pair else 'tagged texts'} cannot be read by windows",
            key="finetune.window_stride",
            hint="leave it unset; "
            + ("the longer text of a pair is then truncated first" if is_pair else "raise finetune.max_length instead"),
        )


def pack_split(
    examples: tuple[Example, ...], tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path
) -> PackedTexts:
    """Tokenise the examples of a split at the length of fine-tuning, by windows if the settings say so."""
    length, stride = settings.finetune.max_length, settings.finetune.window_stride
    if stride is None:
        return pack_task_texts(examples, tokenizer, length, folder)
    return pack_windows((example.text for example in examples), tokenizer, length, stride, folder)


def pack_task_texts(
    examples: tuple[Example, ...], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise examples, truncated to `max_length`; tagged examples are stored with the indices of their words."""
    if examples and examples[0].tokens is not None:
        return pack_tagged((example.tokens or () for example in examples), tokenizer, max_length, folder)
    return pack_examples(_texts_of(examples), tokenizer, max_length, folder)


def _lost_words(folder: Path, split: str, max_length: int) -> int:
    """Return the number of tagged words without a token, and warn if there are any."""
    words = WordStarts(PackedTexts(folder))
    if words.lost:
        count = f"{words.lost:,} of {int(words.words.sum()):,} words of {split}"
        warn(f"{count} are not read: most are after the {max_length} tokens of finetune.max_length")
    return words.lost


def _warn_about_cut_texts(train: dict[str, int], whose: str, max_length: int, *, windows: bool) -> None:
    """Warn if many train texts fill the length of fine-tuning, so that their rest is not read."""
    if train["cut_texts"] > _MANY_CUT * train["texts"]:
        count = f"{train['cut_texts']:,} of {train['texts']:,} texts of train{whose}"
        limit = f"the {max_length} tokens of finetune.max_length"
        remedy = "raise it, or set finetune.window_stride; both take" if windows else "raise it, which takes"
        warn(f"{count} fill {limit} and are cut off there: {remedy} time")


def _warn_about_lost_markers(
    examples: tuple[Example, ...], tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path, split: str
) -> None:
    """Warn about texts that lose an entity marker, and so the entity, by truncation to fine-tuning's length."""
    markers, texts = settings.tokenizer.markers, PackedTexts(folder)
    ids, any_marker = tokenizer.convert_tokens_to_ids(list(markers)), marker_pattern(markers)
    packed = np.zeros(len(examples), dtype=np.int64)
    for index, example in enumerate(texts.examples):  # sums over the windows of an example
        packed[example] += np.isin(texts[index], ids).sum()
    original = [len(any_marker.findall(f"{example.text} {example.text_pair or ''}")) for example in examples]
    if lost := int((packed < original).sum()):
        after = f"after the {settings.finetune.max_length} tokens of finetune.max_length"
        warn(f"{lost:,} of {len(examples):,} texts of {split} lose a marker {after}")


def _texts_of(examples: tuple[Example, ...]) -> Iterator[Texts]:
    return ((example.text, example.text_pair) for example in examples)


def _counts(texts: PackedTexts) -> dict[str, int]:
    return {"texts": len(texts), "tokens": int(texts.lengths.sum())}
