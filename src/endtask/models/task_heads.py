"""The heads of further tasks on the shared body."""

from __future__ import annotations

import copy
from pathlib import Path

from endtask.models.network import TASK, Network, name_labels
from endtask.models.weights import fill, load_tensors
from endtask.seeds import derive
from endtask.task import Task


def further_head(name: str) -> str:
    """The head that answers a further task.

    >>> further_head("ner")
    'task_ner'
    """
    return f"{TASK}_{name}"


def add_task_heads(network: Network, task: Task, seed: int) -> None:
    """Give the network a stock head for each further task, with as many outputs as its labels want."""
    architecture = network.architecture
    for name, one in task.further.items():
        config = copy.deepcopy(network.config)
        name_labels(config, one.labels, one.kind)
        head = architecture.token_head(config) if one.kind == "tags" else architecture.task_head(config)
        own = derive(seed, "task", name)
        network.add_task_head(further_head(name), head, own, kind=one.kind, classes=config.num_labels)


def reset_further_heads(network: Network, task: Task, seed: int) -> None:
    """Give the heads of further tasks new random weights."""
    for name in task.further:
        network.reset_task_head(derive(seed, "head", name), further_head(name))


def take_further(network: Network, name: str, weights: Path) -> None:
    """Fill a network of a further task's own from the weights of the network that learned all tasks."""
    tensors, _ = load_tensors(weights)
    own, plain = f"heads.{further_head(name)}.", f"heads.{TASK}."
    renamed = {plain + key.removeprefix(own): value for key, value in tensors.items() if key.startswith(own)}
    others = {key: tensors[key] for key in network.state_dict() if key not in renamed}
    fill(network, {**others, **renamed}, weights)
