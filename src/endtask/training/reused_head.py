"""The head of an aligned objective as the first weights of the task's own head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from endtask.config import Settings
from endtask.encoders.auxiliary_heads import auxiliary_head
from endtask.encoders.network import TASK, Network
from endtask.errors import InputError
from endtask.task import Task

_KEY = "aligned.keep_head"
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
        raise InputError(reason, key=_KEY, hint="leave it off")
    found = fitting_objective(task_type, labels, settings)
    if found is None:
        raise InputError(
            f"no aligned objective answers with the task's classes ({', '.join(labels[:6])})",
            key=_KEY,
            hint="leave it off, or see docs/how-to/align.md for the names that are understood",
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
