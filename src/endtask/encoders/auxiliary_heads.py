"""The heads of auxiliary tasks on the shared encoder."""

from __future__ import annotations

import copy
from pathlib import Path

from endtask.encoders.network import TASK, Network, name_labels
from endtask.encoders.weights import fill, load_tensors
from endtask.seeds import derive
from endtask.task import Task


def auxiliary_head(name: str) -> str:
    """The head that answers a auxiliary task.

    >>> auxiliary_head("ner")
    'task_ner'
    """
    return f"{TASK}_{name}"


def add_task_heads(network: Network, task: Task, seed: int) -> None:
    """Give the network a stock head for each auxiliary task, with as many outputs as its labels want."""
    architecture = network.architecture
    for name, auxiliary in task.auxiliary.items():
        config = copy.deepcopy(network.config)
        name_labels(config, auxiliary.labels, auxiliary.type)
        task_type, own = auxiliary.task_type, derive(seed, "task", name)
        head = task_type.head(architecture, config)
        network.add_task_head(auxiliary_head(name), head, own, task_type=task_type, classes=config.num_labels)


def reset_auxiliary_heads(network: Network, task: Task, seed: int) -> None:
    """Give the heads of auxiliary tasks new random weights."""
    for name in task.auxiliary:
        network.reset_task_head(derive(seed, "head", name), auxiliary_head(name))


def take_auxiliary_head(network: Network, name: str, weights: Path) -> None:
    """Fill a network of a auxiliary task's own from the weights of the network that learned all tasks."""
    tensors, _ = load_tensors(weights)
    own, plain = f"heads.{auxiliary_head(name)}.", f"heads.{TASK}."
    renamed = {plain + key.removeprefix(own): value for key, value in tensors.items() if key.startswith(own)}
    others = {key: tensors[key] for key in network.state_dict() if key not in renamed}
    fill(network, {**others, **renamed}, weights)
