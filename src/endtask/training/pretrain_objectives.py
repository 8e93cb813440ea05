"""Pre-training as a set of objectives: those of the settings, or TLM's corpus and task."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from endtask.config import ObjectiveSettings, Settings
from endtask.config.objectives import CORPUS_OBJECTIVE, TASK_OBJECTIVE, check_several_objectives
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.io.run_layout import TASKS
from endtask.objectives.base import Objective
from endtask.objectives.masking import Masking, rare_token_weights
from endtask.objectives.own_dropout import OwnDropout
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.tokenizer import load_tokenizer
from endtask.training.objective_builders import BUILDERS, FOLDERS, Ingredients, pretrain_head
from endtask.training.tlm_rules import automatic_rho1, scale_of

__all__ = ["CORPUS_OBJECTIVE", "TASK_OBJECTIVE", "joint_objectives", "masking_of", "pretrain_head", "rho1_of"]

_FEWEST_TASK_BATCHES = 100  # of an automatic rho1; the paper's least is 150


def joint_objectives(
    task: Task, packed: Path, network: Network, settings: Settings, *, steps: int | None = None
) -> dict[str, Objective]:
    """The objectives of pre-training by name; of TLM's two, only one where there is no text, or no turn, for the other.

    `steps` are those of the stage, where they are known.
    """
    masking, seed = masking_of(packed, settings), derive(settings.pretrain_seed, "pretrain", "data")
    given = Ingredients(task, packed, network, settings, masking, seed, steps)
    asked = {name: one for name, one in settings.used_objectives.items() if _has_text(name, one, given)}
    if not asked:
        raise InputError("inf leaves nothing to train on: there is no corpus text", key="pretrain.rho1")
    check_several_objectives(asked, settings.pretrain.weighting)
    objectives = {name: BUILDERS[one.kind](name, one, given) for name, one in asked.items()}
    if all(one.dropout is None for one in asked.values()):
        return objectives
    usual = settings.pretrain.dropout
    return {
        name: OwnDropout(objective, usual if (own := asked[name].dropout) is None else own)
        for name, objective in objectives.items()
    }


def _has_text(name: str, asked: ObjectiveSettings, given: Ingredients) -> bool:
    """Whether an objective has something to read; what the user asked for by name must have."""
    if asked.reads not in FOLDERS or given.texts(asked) is not None:
        return True
    if given.settings.pretrain.objectives:
        raise InputError(
            f"there is no text to read: the {asked.reads} is empty",
            key=f"pretrain.objectives.{name}.texts",
            hint=f"name a corpus, or leave the objective out with pretrain.objectives.{name}.weight=0",
        )
    return False


def rho1_of(examples: int, settings: Settings, steps: int | None) -> int:
    """Corpus batches per internal one: as given, or by the task's size, with enough task batches in all steps."""
    if settings.pretrain.rho1 != "auto":
        return int(settings.pretrain.rho1)
    by_size = automatic_rho1(examples, scale_of(settings))
    return by_size if steps is None else max(1, min(by_size, steps // _FEWEST_TASK_BATCHES - 1))


def masking_of(packed: Path, settings: Settings) -> Masking:
    """How pre-training hides tokens."""
    tokenizer, train = load_tokenizer(packed / "tokenizer"), settings.pretrain
    weights = None
    if train.mask_rare_exponent > 0:
        of_tasks = sorted((packed / TASKS).glob(f"*/{FOLDERS['task']}"))
        folders = [*(packed / name for name in FOLDERS.values()), *of_tasks]
        parts = [PackedTexts(folder) for folder in folders if folder.exists()]
        counts = sum((part.token_counts(len(tokenizer)) for part in parts), np.zeros(len(tokenizer), dtype=np.int64))
        weights = rare_token_weights(counts, train.mask_rare_exponent)
    return Masking(
        train.mask_probability,
        tokenizer.mask_token_id,
        len(tokenizer),
        tuple(tokenizer.all_special_ids),
        weights=weights,
    )
