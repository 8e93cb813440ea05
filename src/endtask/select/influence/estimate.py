"""What choosing by gradients would cost on this machine, before anything is read: for `endtask check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from endtask.files.selection_table import write_selection
from endtask.select.influence.fit import Fold, prepare_folds
from endtask.select.influence.folds import folds_of
from endtask.select.influence.limits import seconds_per_token
from endtask.select.influence.scoring_settings import scoring_settings, seed_of
from endtask.settings import Settings
from endtask.settings.influence import InfluenceSettings
from endtask.task import Task

_BYTES_PER_TOKEN = 4.5
_OPTIMIZER_COPIES = 4  # weights, gradients and two moments


@dataclass(frozen=True)
class InfluenceCost:
    """Seconds, and the most memory and disk that is held at a time."""

    seconds: float
    memory_bytes: float
    disk_bytes: float


@dataclass(frozen=True)
class _Amounts:
    """What the cost is made of."""

    rows: int  # that the models are fitted on
    targets: int
    row_tokens: float
    candidate_tokens: float  # of all candidates
    readings: int  # of each candidate


def influence_cost(
    task: Task, few: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
) -> InfluenceCost:
    """From a short trial of the scoring model on `few`, a sample of the task's train rows."""
    own = settings.select.influence
    write_selection(folder / "none.parquet", [])
    halves = folds_of(few, own.model_copy(update={"targets": "folds"}), seed_of(settings))
    fold = prepare_folds(few, halves, folder / "none.parquet", scoring_settings(settings), folder / "influence")[0]
    tokens = bytes_each / _BYTES_PER_TOKEN
    amounts = _Amounts(
        rows=len(task.train),
        targets=_targets(task, own),
        row_tokens=float(fold.targets.lengths.mean()),
        candidate_tokens=candidates * (tokens if own.whole_passages else min(tokens, own.max_length)),
        readings=(1 if own.targets == "dev" else 2) * own.checkpoints * own.masks,
    )
    return _cost(fold, amounts, own, candidates)


def _cost(fold: Fold, amounts: _Amounts, own: InfluenceSettings, candidates: float) -> InfluenceCost:
    phase = fold.phase()
    config = phase.network.config
    each = seconds_per_token(phase)
    # A pass forward is a third of training; of the rest, the layers above the lowest that is compared.
    share = (1 + 2 / config.num_hidden_layers) / 3 if own.layers == ("last",) else 1.0
    fitted = own.epochs * amounts.rows * amounts.row_tokens
    scored = amounts.candidate_tokens * amounts.readings * share
    rows = 1.0 if own.layers == ("last",) and own.pooling == "cls" else amounts.row_tokens
    each_target = 4.0 * min(2 * config.hidden_size * rows, config.hidden_size**2) * len(own.layers) * own.checkpoints
    weights = 4.0 * sum(weight.numel() for weight in phase.network.parameters())
    table = {"top_k": amounts.targets, "greedy": own.greedy_size * amounts.readings}.get(own.choice, 0)
    return InfluenceCost(
        seconds=each * (fitted + scored),
        memory_bytes=amounts.targets * each_target + _OPTIMIZER_COPIES * weights + 4.0 * candidates * table,
        disk_bytes=2.0 * amounts.candidate_tokens + 4.0 * candidates * table + amounts.readings * weights,
    )


def _targets(task: Task, own: InfluenceSettings) -> int:
    rows = len(task.dev if own.targets == "dev" else task.train)
    return rows if own.most_targets is None else min(rows, own.most_targets)
