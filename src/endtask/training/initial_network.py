"""The initial network of a run, with random weights or from a checkpoint, and the initial weights of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from endtask.config import Settings
from endtask.encoders.checkpoint import Checkpoint, check_complete, check_tokenizer, load_network, open_checkpoint
from endtask.encoders.checkpoint_files import weight_files
from endtask.encoders.network import (
    TASK,
    Network,
    add_task_heads,
    auxiliary_head,
    build_network,
    load_auxiliary_head,
    pooling_of,
)
from endtask.errors import InputError
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packing import existing_tokenizer
from endtask.tokenization.tokenizer import load_tokenizer


def network_for(task: Task, packed: Path, settings: Settings, *, least_vocabulary: int = 0) -> Network:
    """Return the run's network with its initial weights and the heads of all objectives and tasks.

    `least_vocabulary` is the minimum size of the vocabulary, for estimates whose sample of texts has too few tokens.
    """
    network = _network(task, packed, settings, least_vocabulary)
    if not settings.skip_pretraining:
        for name, section in settings.used_objectives.items():
            section.part.add_heads(name, network, settings)
    add_task_heads(network, task, derive(settings.pretrain_seed, "weights"))
    return network


def network_of_auxiliary_task(task: Task, name: str, packed: Path, settings: Settings, weights: Path) -> Network:
    """Return a network for an auxiliary task, with the encoder and the head from a file of trained weights."""
    stock = settings.pretrain.model_copy(update={"task_head": "stock"})
    network = _network(task.auxiliary[name], packed, settings.model_copy(update={"pretrain": stock}))
    load_auxiliary_head(network, name, weights)
    return network


def _network(task: Task, packed: Path, settings: Settings, least_vocabulary: int = 0) -> Network:
    tokenizer = load_tokenizer(packed / "tokenizer")
    seed, tlm_head = derive(settings.pretrain_seed, "weights"), settings.has_tlm_head
    markers = tuple(tokenizer.convert_tokens_to_ids(list(settings.tokenizer.markers)))
    if settings.model.path is not None:
        checkpoint = open_checkpoint(settings.model.path)
        check_tokenizer(checkpoint, tokenizer, key=_tokenizer_key(settings), markers=settings.tokenizer.markers)
        _check_texts(checkpoint, task, settings)
        return load_network(
            checkpoint,
            settings.model,
            vocabulary=len(tokenizer),
            pad_id=tokenizer.pad_token_id,
            labels=task.labels,
            seed=seed,
            tlm_head=tlm_head,
            task_type=task.type,
            markers=markers,
        )
    return build_network(
        settings.model,
        vocabulary=max(len(tokenizer), least_vocabulary),
        special_ids={
            "pad": tokenizer.pad_token_id,
            "cls": tokenizer.cls_token_id,
            "sep": tokenizer.sep_token_id,
        },
        labels=task.labels,
        seed=seed,
        tlm_head=tlm_head,
        task_type=task.type,
        markers=markers,
    )


def check_checkpoint(task: Task, settings: Settings) -> None:
    """Raise `InputError` if training from `model.path` would fail; downloads a model of the Hugging Face hub."""
    assert settings.model.path is not None
    checkpoint = open_checkpoint(settings.model.path)
    tokenizer = existing_tokenizer(settings)
    assert tokenizer is not None
    check_tokenizer(checkpoint, tokenizer, key=_tokenizer_key(settings), markers=settings.tokenizer.markers)
    _check_texts(checkpoint, task, settings)
    pooling_of(settings.model, checkpoint.architecture, (0,))  # any id of an entity marker
    check_complete(weight_files(settings.model.path))


def _check_texts(checkpoint: Checkpoint, task: Task, settings: Settings) -> None:
    """Raise `InputError` if the checkpoint cannot read the lengths of the settings, or the pairs of a task."""
    lengths = {
        "pretrain.max_length": settings.pretrain.max_length,
        "pretrain.task_max_length": settings.pretrain.task_max_length or 0,
        "finetune.max_length": settings.finetune.max_length,
    }
    longest = checkpoint.max_length
    if too_long := {key: length for key, length in lengths.items() if length > longest}:
        key, length = next(iter(too_long.items()))
        raise InputError(
            f"{length} is more than the {longest} tokens that {checkpoint.path} can read",
            key=key,
            hint=f"{', '.join(too_long)} may be {longest} at most",
        )
    tasks = (task, *task.auxiliary.values())
    has_pairs = any(example.text_pair is not None for each in tasks for example in each.train)
    if has_pairs and not checkpoint.architecture.separates_pairs(checkpoint.config):
        raise InputError(
            "this checkpoint cannot tell the texts of a pair apart", path=checkpoint.path, key="model.path"
        )


def _tokenizer_key(settings: Settings) -> str:
    return "tokenizer.path" if settings.tokenizer.path else "model.path"


_KEY = "finetune.head"
_OTHER_NAMES = {
    "none": ("none", "n", "o", "neither"),
    "start": ("start", "s", "begin"),
    "end": ("end", "e"),
    "both": ("both", "s&e", "se", "start&end"),
    "no": ("no", "0", "false", "negative"),
    "yes": ("yes", "1", "true", "positive"),
}


@torch.no_grad()
def copy_aligned_head(network: Network, settings: Settings) -> None:
    """Copy the head of the first aligned objective with the task's classes, which are matched by name.

    All classes with a type, such as B-gene, start from the class without it.
    """
    head, rows = reused_objective(network.task_type, tuple(network.config.id2label.values()), settings)
    _copy(network.heads[head], network.heads[TASK], rows)


@torch.no_grad()
def copy_auxiliary_head(network: Network, name: str, task: Task, settings: Settings) -> None:
    """Copy the head of a fitting aligned objective for an auxiliary task; change nothing if there is none."""
    match = fitting_objective(task.task_type, task.labels, settings)
    if match is not None:
        head, rows = match
        _copy(network.heads[head], network.heads[auxiliary_head(name)], rows)


def reused_objective(task_type: Any, labels: Sequence[str], settings: Settings) -> tuple[str, list[int]]:
    """Return the head that a task can start from and its class for each label; raise `InputError` without one."""
    if not task_type.one_label:
        reason = f"a task of type {task_type.name!r} has no classes to start from"
        raise InputError(reason, key=_KEY, hint="use new or pretrained")
    match = fitting_objective(task_type, labels, settings)
    if match is None:
        raise InputError(
            f"no aligned objective answers with the task's classes ({', '.join(labels[:6])})",
            key=_KEY,
            hint="use new or pretrained, or see docs/how-to/align.md for the names that are understood",
        )
    return match


def fitting_objective(task_type: Any, labels: Sequence[str], settings: Settings) -> tuple[str, list[int]] | None:
    """Return the head that a task can start from and its class for each label, or None."""
    if not task_type.one_label:
        return None
    parts = [(name, section.part) for name, section in settings.used_objectives.items()]
    for name, part in sorted(parts, key=lambda item: item[1].head_is_reused_last):
        reusable = part.reusable_head(name, settings)
        if reusable is None:
            continue
        head, classes, per_token = reusable
        rows = [row for label in labels if (row := aligned_class(label, classes)) is not None]
        if per_token == task_type.per_token and len(rows) == len(labels):
            return head, rows
    return None


def aligned_class(label: str, classes: tuple[str, ...]) -> int | None:
    """Return the index of the aligned objective's class that a label of the task names, or None.

    >>> aligned_class("B-gene", ("O", "B", "I")), aligned_class("S&E", ("none", "start", "end", "both"))
    (1, 3)
    """
    label = label.strip().lower()
    for index, name in enumerate(map(str.lower, classes)):
        if label in (name, *_OTHER_NAMES.get(name, ())) or (len(name) == 1 and label.startswith(f"{name}-")):
            return index
    return None


def _copy(source: nn.Module, target: nn.Module, rows: list[int]) -> None:
    """Copy all weights of a head; the last layer has a row per class, of which `rows` are copied."""
    weights = dict(source.named_parameters())
    for name, weight in target.named_parameters():
        value = weights[name]
        is_last = name.split(".")[-2] in ("classifier", "out_proj")  # the names in the stock heads
        weight.copy_(value if value.shape == weight.shape and not is_last else value[rows])
