"""What choosing by gradients would cost on this machine, before anything is read: for `endtask check`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from endtask.files.selection_table import write_selection
from endtask.gradients.layers import choose_weights
from endtask.models.network import Network
from endtask.select.influence.fit import Fold, prepare_folds
from endtask.select.influence.folds import folds_of
from endtask.select.influence.limits import seconds_per_token
from endtask.select.influence.scoring_settings import scoring_settings, seed_of
from endtask.settings import Settings
from endtask.settings.influence import InfluenceSettings
from endtask.task import Task

BYTES_PER_TOKEN = 4.5
_OPTIMIZER_COPIES = 4  # weights, gradients and two moments


@dataclass(frozen=True)
class InfluenceCost:
    """Seconds of fitting and of scoring, and the most memory and disk that is held at a time."""

    fitting_seconds: float
    scoring_seconds: float
    memory_bytes: float
    disk_bytes: float

    def is_refused(self, allowed: float) -> bool:
        """Whether a run would stop: fitting alone takes more than the seconds allowed."""
        return self.fitting_seconds > allowed

    def within(self, allowed: float) -> tuple[float, str]:
        """The seconds of both where so many are allowed, and what a run would say to that.

        >>> InfluenceCost(26, 10, 0, 0).within(4)
        (4, 'fitting the scoring models would take about 26 s, more than the 4 s that it may: a run would be refused')
        >>> InfluenceCost(26, 10, 0, 0).within(31)
        (31, 'of the candidates, only about 50% would be scored, the best-ranked, in the 31 s that it may take')
        >>> InfluenceCost(26, 10, 0, 0).within(60)
        (36, '')
        """
        if self.is_refused(allowed):
            fitting = f"fitting the scoring models would take about {self.fitting_seconds:.0f} s"
            return allowed, f"{fitting}, more than the {allowed:.0f} s that it may: a run would be refused"
        seconds = self.fitting_seconds + self.scoring_seconds
        if seconds <= allowed:
            return seconds, ""
        share = (allowed - self.fitting_seconds) / self.scoring_seconds
        few = f"of the candidates, only about {share:.0%} would be scored, the best-ranked"
        return allowed, f"{few}, in the {allowed:.0f} s that it may take"


@dataclass(frozen=True)
class _Amounts:
    """What the cost is made of."""

    rows: int  # that the models are fitted on
    targets: int
    folds: int
    row_tokens: float
    candidates: float
    candidate_tokens: float  # of all candidates


def influence_cost(
    task: Task, few: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
) -> InfluenceCost:
    """From a short trial of the scoring model on `few`, a sample of the task's train rows."""
    own = settings.select.influence
    write_selection(folder / "none.parquet", [])
    parts = folds_of(task, own, seed_of(settings))
    # The rows of a sample stand for the fold's: they tell lengths and time, and no model is judged.
    sample = replace(few, splits={"train": few.train, "dev": few.train})
    once = settings.select.model_copy(update={"influence": own.model_copy(update={"checkpoints": 1})})
    trial = scoring_settings(settings.model_copy(update={"select": once}))
    (fold,) = prepare_folds(few, [sample], folder / "none.parquet", trial, folder / "influence")
    tokens = bytes_each / BYTES_PER_TOKEN
    amounts = _Amounts(
        rows=sum(len(part.train) for part in parts),
        targets=sum(len(part.dev) for part in parts),
        folds=len(parts),
        row_tokens=float(fold.targets.lengths.mean()),
        candidates=candidates,
        candidate_tokens=candidates * (tokens if own.whole_passages else min(tokens, own.max_length)),
    )
    return _cost(fold, amounts, own)


def _cost(fold: Fold, amounts: _Amounts, own: InfluenceSettings) -> InfluenceCost:
    phase = fold.phase()
    # A pass forward is a third of training; of the rest, the layers above the lowest that is compared.
    share = (1 + 2 / phase.network.config.num_hidden_layers) / 3 if own.layers == ("last",) else 1.0
    models = amounts.folds * own.checkpoints
    along = own.rho1 * min(own.max_length, amounts.candidate_tokens / max(1.0, amounts.candidates))
    fitted = own.epochs * amounts.rows * (amounts.row_tokens + along)
    scored = amounts.candidate_tokens * models * own.masks * share * _heavier(phase.network, own)
    weights = 4.0 * sum(weight.numel() for weight in phase.network.parameters())
    targets = own.checkpoints * amounts.targets * _target_bytes(phase.network, amounts.row_tokens, own)
    each = seconds_per_token(phase)
    table = 4.0 * math.ceil(amounts.candidates / own.candidate_batch) * _columns(amounts, own)
    return InfluenceCost(
        fitting_seconds=each * fitted,
        scoring_seconds=each * scored,
        memory_bytes=max(_OPTIMIZER_COPIES * weights, models * weights + max(targets, table)),
        disk_bytes=2.0 * amounts.candidate_tokens + table + models * weights,
    )


def _heavier(network: Network, own: InfluenceSettings) -> float:
    """How much more a token costs where candidates are scored than in fitting: more tokens are guessed.

    Every token goes through the layers, and those to be guessed are compared with the whole vocabulary.
    """
    size = network.config.hidden_size
    layers: float = 12.0 * size**2 * network.config.num_hidden_layers
    guess: float = size * network.config.vocab_size
    scored = own.score_mask_probability or own.mask_probability
    return (layers + scored * guess) / (layers + own.mask_probability * guess)


def _target_bytes(network: Network, row_tokens: float, own: InfluenceSettings) -> float:
    """Of one target's gradients under one set of weights, kept as rows or whole."""
    rows = 1.0 if own.layers == ("last",) and own.pooling == "cls" else row_tokens
    compared = choose_weights(network, own.layers).values()
    return sum(4.0 * min(sum(weight.shape) * rows, weight.numel()) for weight in compared)


def _columns(amounts: _Amounts, own: InfluenceSettings) -> int:
    """Numbers that are kept of each unit until something is chosen."""
    if own.choice == "top_k":
        return math.ceil(amounts.targets / own.target_batch)
    return own.greedy_size * amounts.folds * own.checkpoints if own.choice == "greedy" else 0
