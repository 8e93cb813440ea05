"""The limits on the cost of influence selection, and its estimate before a run: time, memory and disk space."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from endtask.config import Budget, Settings
from endtask.encoders.base import shape_of
from endtask.encoders.flops import training_flops
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.gradients.capture import choose_weights
from endtask.gradients.targets import Plan
from endtask.io.machine import available_memory
from endtask.io.selection_table import write_selection
from endtask.selectors.base import SelectionCost
from endtask.selectors.influence.config import InfluenceConfig, influence_config
from endtask.selectors.influence.scoring_model import Fold, folds_of, prepare_folds, scoring_settings
from endtask.task import Task
from endtask.training.budget_plan import measure_cost
from endtask.training.phase import Phase

BYTES_PER_TOKEN = 4.5
_OPTIMIZER_COPIES = 4  # weights, gradients and two moments
_KEY = "select.share_of_budget"
_SHARE_OF_MEMORY = 0.25
_TRIAL = Budget.parse("10s")
_COUNTED = Budget.parse("1flops")


@dataclass(frozen=True)
class Allowance:
    """The allowed cost of fitting and scoring, in seconds or FLOPs: a share of the training budget."""

    amount: float
    unit: str
    share: float

    @property
    def in_seconds(self) -> bool:
        """Whether the unit is seconds."""
        return self.unit == "seconds"

    def __str__(self) -> str:
        total = self._format(self.amount / self.share)
        return f"{self._format(self.amount)} ({100 * self.share:g}% of the training budget of {total})"

    def _format(self, amount: float) -> str:
        return f"{amount:,.0f} s" if self.in_seconds else f"{amount:.1e} FLOPs"

    def check_fit_cost(self, cost: float) -> None:
        """Raise `InputError` if fitting the scoring models alone exceeds the allowance."""
        if cost > self.amount:
            raise InputError(
                f"fitting the scoring models takes about {self._format(cost)}, more than {self}",
                key=_KEY,
                hint="raise it or the budget, or lower select.epochs or size; null: no limit",
            )

    def candidates(self, fitted: float, each: float) -> int:
        """Return how many candidates the allowance covers after fitting."""
        return max(0, int((self.amount - fitted) / each))

    def too_few(self, scored: int, candidates: int) -> InputError:
        """Return the error for an allowance that scores fewer candidates than the budget selects."""
        return InputError(
            f"{self} is enough to score {scored:,} of {candidates:,} candidates, no more than select.budget selects",
            key=_KEY,
            hint="raise it or the budget, lower select.size, or select less; null: no limit",
        )


def allowance(settings: Settings) -> Allowance | None:
    """Return the allowed cost of fitting and scoring; None without a limit.

    >>> str(allowance(Settings(budget=Budget.parse("10min"))))
    '60 s (10% of the training budget of 600 s)'
    """
    share, budget = influence_config(settings).share_of_budget, settings.budget
    if share is None:
        return None
    if budget.unit == "seconds":
        return Allowance(share * budget.amount, "seconds", share)
    return Allowance(share * _training_flops(settings), "flops", share)


def fitting_cost(phase: Phase, allowed: Allowance) -> float:
    """Return the cost of fitting a scoring model in the allowance's unit; a short trial measures seconds."""
    cost = measure_cost(phase, _TRIAL if allowed.in_seconds else _COUNTED)
    each = cost.seconds if allowed.in_seconds else cost.flops
    assert each is not None
    return phase.steps * each


def seconds_per_token(phase: Phase) -> float:
    """Return the seconds that training takes for a token, measured by a short trial."""
    cost = measure_cost(phase, _TRIAL)
    assert cost.seconds is not None
    return cost.seconds / cost.tokens


def target_memory(device: torch.device) -> int:
    """Return the bytes available for the gradients of all targets: a quarter of the free memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(_SHARE_OF_MEMORY * free)
    return int(_SHARE_OF_MEMORY * available_memory())


def check_size(plan: Plan, targets: int, memory: int) -> None:
    """Raise `InputError` if even the smallest form of the targets' gradients exceeds the memory."""
    needed = plan.bytes_per_target * targets
    if needed > memory:
        raise InputError(
            f"the gradients of {targets:,} targets take {needed / 1e6:,.1f} MB, and {memory / 1e6:,.1f} MB are free "
            "for them",
            key="select.layers",
            hint="compare fewer, lower select.size, or raise select.target_batch",
        )


def _training_flops(settings: Settings) -> float:
    """Estimate the FLOPs of the run's training from its budget."""
    budget, train = settings.budget, settings.pretrain
    if budget.unit == "flops":
        return budget.amount
    tokens = budget.amount
    if budget.unit == "steps":
        size = train.batch_size
        texts = size.amount * train.max_length if size.unit == "texts" else size.amount
        tokens *= texts * train.gradient_accumulation_steps
    return training_flops(_parameters(settings), tokens)


def _parameters(settings: Settings) -> int:
    if settings.model.path is not None:
        from endtask.encoders.checkpoint import open_checkpoint

        config = open_checkpoint(settings.model.path).config
        hidden, layers, vocabulary = config.hidden_size, config.num_hidden_layers, config.vocab_size
    else:
        shape = shape_of(settings.model)
        hidden, layers, vocabulary = shape.hidden_size, shape.num_hidden_layers, settings.tokenizer.vocab_size
    return int(12 * hidden * hidden * layers + vocabulary * hidden)


@dataclass(frozen=True)
class _Amounts:
    """The quantities that the cost depends on."""

    rows: int  # on which the models are fitted
    targets: int
    folds: int
    row_tokens: float
    candidates: float
    candidate_tokens: float  # of all candidates


def influence_cost(
    task: Task, sample: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
) -> SelectionCost:
    """Estimate the cost by a short trial of the scoring model on a sample of the task's train rows."""
    config = influence_config(settings)
    write_selection(folder / "none.parquet", [])
    parts = folds_of(task, config, settings.seed)
    # The trial measures lengths and time only, so it can use the same rows for train and dev.
    rows = replace(sample, splits={"train": sample.train, "dev": sample.train})
    trial = scoring_settings(settings)
    (fold,) = prepare_folds(sample, [rows], folder / "none.parquet", trial, folder / "influence")
    tokens = bytes_each / BYTES_PER_TOKEN
    amounts = _Amounts(
        rows=sum(len(part.train) for part in parts),
        targets=sum(len(part.dev) for part in parts),
        folds=len(parts),
        row_tokens=float(fold.targets.lengths.mean()),
        candidates=candidates,
        candidate_tokens=candidates * min(tokens, trial.pretrain.max_length),
    )
    return _cost(fold, amounts, config)


def _cost(fold: Fold, amounts: _Amounts, config: InfluenceConfig) -> SelectionCost:
    phase = fold.phase()
    # The forward pass is a third of a training step; the backward pass stops at the lowest compared layer.
    share = (1 + 2 / phase.network.config.num_hidden_layers) / 3 if config.layers == ("last",) else 1.0
    fitted = config.epochs * amounts.rows * amounts.row_tokens
    scored = amounts.candidate_tokens * amounts.folds * config.masks * share * _token_cost_ratio(phase.network, config)
    weights = 4.0 * sum(weight.numel() for weight in phase.network.parameters())
    targets = amounts.targets * _target_bytes(phase.network, amounts.row_tokens, config)
    each = seconds_per_token(phase)
    table = 4.0 * math.ceil(amounts.candidates / config.candidate_batch) * _columns(amounts, config)
    return SelectionCost(
        fitting_seconds=each * fitted,
        scoring_seconds=each * scored,
        memory_bytes=max(_OPTIMIZER_COPIES * weights, amounts.folds * weights + max(targets, table)),
        disk_bytes=2.0 * amounts.candidate_tokens + table + amounts.folds * weights,
        budget_share=config.share_of_budget,
    )


def _token_cost_ratio(network: Network, config: InfluenceConfig) -> float:
    """Return the cost of a token in scoring over its cost in fitting, where fewer tokens are masked.

    All tokens pass through the layers; only masked tokens need logits over the vocabulary.
    """
    size = network.config.hidden_size
    layers: float = 12.0 * size**2 * network.config.num_hidden_layers
    logits: float = size * network.config.vocab_size
    fitted, scored = config.recipe_values.mask_probability, config.score_mask_probability
    return (layers + scored * logits) / (layers + fitted * logits)


def _target_bytes(network: Network, row_tokens: float, config: InfluenceConfig) -> float:
    """Return the bytes of a target's gradients in the smaller form, rows or matrices."""
    # A head that reads the first token gives the last layer's gradient a single row, other heads a row for each token.
    reads_first = network.architecture.pooling(network.config) == "cls" and not network.task_type.per_token
    rows = 1.0 if reads_first and config.layers == ("last",) else row_tokens
    compared = choose_weights(network, config.layers).values()
    return sum(4.0 * min(sum(weight.shape) * rows, weight.numel()) for weight in compared)


def _columns(amounts: _Amounts, config: InfluenceConfig) -> int:
    """Return how many scores of each unit are stored for the choice `top_k`."""
    return math.ceil(amounts.targets / config.target_batch) if config.choice == "top_k" else 0
