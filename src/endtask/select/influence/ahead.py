"""What would stop the selector after the corpus was read, met before."""

from __future__ import annotations

from endtask.gradients.layers import DEPTHS, EMBEDDING
from endtask.models.network import Network, build_network
from endtask.models.pretrained import load_network, open_checkpoint
from endtask.select.influence.fit import refuse_unknown_layers
from endtask.select.influence.folds import folds_of
from endtask.select.influence.scoring_settings import scoring_settings, seed_of
from endtask.settings import Settings
from endtask.task import Task


def refuse_impossible_influence(task: Task, settings: Settings) -> None:
    """Refuse train rows that cannot be halved, and layers that the scoring model does not have."""
    own = settings.select.influence
    folds_of(task, own, seed_of(settings))
    if not set(own.layers) <= {*DEPTHS, EMBEDDING}:  # those every network has
        refuse_unknown_layers(_network(task, scoring_settings(settings)), own.layers)


def _network(task: Task, settings: Settings) -> Network:
    """A scoring model as far as the names of its layers go: there is no vocabulary yet."""
    if settings.model.path is not None:
        checkpoint = open_checkpoint(settings.model.path)
        return load_network(checkpoint, settings.model, pad_id=0, labels=task.labels, seed=0, kind=task.kind)
    special_ids = {"pad": 0, "cls": 1, "sep": 2}
    return build_network(
        settings.model, vocabulary=8, special_ids=special_ids, labels=task.labels, seed=0, kind=task.kind
    )
