"""The network that a run starts from: random weights, or a given checkpoint."""

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
    pooling_of,
    take_auxiliary_head,
)
from endtask.errors import InputError
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packing import given_tokenizer
from endtask.tokenization.tokenizer import load_tokenizer


def network_for(task: Task, packed: Path, settings: Settings, *, least_vocabulary: int = 0) -> Network:
    """The run's network with its first weights, and a head for each objective of pre-training that has its own.

    `least_vocabulary` is for a look ahead, whose few texts do not have all the tokens that a run will learn.
    """
    network = _network(task, packed, settings, least_vocabulary)
    if not settings.skip_pretraining:
        for name, section in settings.used_objectives.items():
            section.part.add_heads(name, network, settings)
    add_task_heads(network, task, derive(settings.pretrain_seed, "weights"))
    return network


def network_of_auxiliary_task(task: Task, name: str, packed: Path, settings: Settings, weights: Path) -> Network:
    """A network of a auxiliary task's own, with the encoder and the head that were trained for it."""
    stock = settings.pretrain.model_copy(update={"task_head": "stock"})
    network = _network(task.auxiliary[name], packed, settings.model_copy(update={"pretrain": stock}))
    take_auxiliary_head(network, name, weights)
    return network


def _network(task: Task, packed: Path, settings: Settings, least_vocabulary: int = 0) -> Network:
    tokenizer = load_tokenizer(packed / "tokenizer")
    seed, tlm_head = derive(settings.pretrain_seed, "weights"), settings.pretrain.task_head == "tlm"
    markers = tuple(tokenizer.convert_tokens_to_ids(list(settings.tokenizer.entity_markers)))
    if settings.model.path is not None:
        checkpoint = open_checkpoint(settings.model.path)
        check_tokenizer(checkpoint, tokenizer, key=_tokenizer_key(settings))
        _check_texts(checkpoint, task, settings)
        return load_network(
            checkpoint,
            settings.model,
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
    """Meet, before any work, what would stop the training from a given checkpoint; what is on the hub is fetched."""
    assert settings.model.path is not None
    checkpoint = open_checkpoint(settings.model.path)
    tokenizer = given_tokenizer(settings)
    assert tokenizer is not None
    check_tokenizer(checkpoint, tokenizer, key=_tokenizer_key(settings))
    _check_texts(checkpoint, task, settings)
    pooling_of(settings.model, checkpoint.architecture, (0,))  # whatever number its marks will have
    check_complete(weight_files(settings.model.path))


def _check_texts(checkpoint: Checkpoint, task: Task, settings: Settings) -> None:
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
    is_pair = any(example.text_pair is not None for one in tasks for example in one.train)
    if is_pair and not checkpoint.architecture.separates_pairs(checkpoint.config):
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
def keep_aligned_head(network: Network, settings: Settings) -> None:
    """Copy the head of the first aligned objective that is shaped like the task's; classes go by their names.

    Classes with types, such as B-gene, all begin as the one without.
    """
    head, rows = reused_objective(network.task_type, tuple(network.config.id2label.values()), settings)
    _copy(network.heads[head], network.heads[TASK], rows)


@torch.no_grad()
def reuse_auxiliary_head(network: Network, name: str, task: Task, settings: Settings) -> None:
    """The same for a auxiliary task; where no objective is shaped like it, its head stays as it is."""
    found = fitting_objective(task.task_type, task.labels, settings)
    if found is not None:
        _copy(network.heads[found[0]], network.heads[auxiliary_head(name)], found[1])


def reused_objective(task_type: Any, labels: Sequence[str], settings: Settings) -> tuple[str, list[int]]:
    """Return the head that a task of this type can start from, and its class for each label; raises `InputError`."""
    if not task_type.one_label:
        reason = f"a task of type {task_type.name!r} has no classes to start from"
        raise InputError(reason, key=_KEY, hint="use new or pretrained")
    found = fitting_objective(task_type, labels, settings)
    if found is None:
        raise InputError(
            f"no aligned objective answers with the task's classes ({', '.join(labels[:6])})",
            key=_KEY,
            hint="use new or pretrained, or see docs/how-to/align.md for the names that are understood",
        )
    return found


def fitting_objective(task_type: Any, labels: Sequence[str], settings: Settings) -> tuple[str, list[int]] | None:
    """Return the same, or None."""
    if not task_type.one_label:
        return None
    parts = [(name, section.part) for name, section in settings.used_objectives.items()]
    for name, part in sorted(parts, key=lambda item: item[1].head_is_reused_last):
        head = part.reusable_head(name, settings)
        if head is None or head[2] != task_type.per_token:
            continue
        rows = [row for label in labels if (row := aligned_class(label, head[1])) is not None]
        if len(rows) == len(labels):
            return head[0], rows
    return None


def aligned_class(label: str, classes: tuple[str, ...]) -> int | None:
    """The class of an aligned objective that a label of the task stands for.

    >>> aligned_class("B-gene", ("O", "B", "I")), aligned_class("S&E", ("none", "start", "end", "both"))
    (1, 3)
    """
    plain = label.strip().lower()
    for number, name in enumerate(classes):
        own = name.lower()
        if plain == own or plain in _OTHER_NAMES.get(own, ()) or (len(own) == 1 and plain.startswith(f"{own}-")):
            return number
    return None


def _copy(source: nn.Module, target: nn.Module, rows: list[int]) -> None:
    """All weights as they are, but of the last layer the rows of the classes."""
    weights = dict(source.named_parameters())
    for name, weight in target.named_parameters():
        value = weights[name]
        weight.copy_(value if value.shape == weight.shape and not _is_last(name) else value[rows])


def _is_last(name: str) -> bool:
    """Whether a weight is of the layer with one row per class, as the stock heads call it."""
    return name.split(".")[-2] in ("classifier", "out_proj")
