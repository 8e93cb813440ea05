"""What scoring may cost beside training, and how much memory the targets may take: decided once, before it starts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from endtask.errors import InputError
from endtask.files.machine import available_memory
from endtask.gradients.plan import Plan
from endtask.models.flops import training_flops
from endtask.models.sizes import shape_of
from endtask.settings import Budget, Settings
from endtask.train.loop import Phase
from endtask.train.plan import measure_cost

_KEY = "select.influence.share_of_budget"
_SHARE_OF_MEMORY = 0.25
_TRIAL = Budget.parse("10s")
_COUNTED = Budget.parse("1flops")


@dataclass(frozen=True)
class Allowance:
    """How much scoring may cost, in the unit in which training is budgeted: seconds, or else FLOPs."""

    amount: float
    unit: str
    share: float

    @property
    def in_seconds(self) -> bool:
        """Whether a clock decides."""
        return self.unit == "seconds"

    def __str__(self) -> str:
        whole = self._told(self.amount / self.share)
        return f"{self._told(self.amount)} ({100 * self.share:g}% of the training budget of {whole})"

    def _told(self, amount: float) -> str:
        return f"{amount:,.0f} s" if self.in_seconds else f"{amount:.1e} FLOPs"

    def refuse_fit(self, cost: float) -> None:
        """Refuse where fitting the scoring models alone costs more."""
        if cost > self.amount:
            raise InputError(
                f"fitting the scoring models takes about {self._told(cost)}, more than {self}",
                key=_KEY,
                hint="raise it or the budget, or lower select.influence.epochs or size; null: no limit",
            )

    def candidates(self, fitted: float, each: float) -> int:
        """How many candidates can be scored with what is left."""
        return max(0, int((self.amount - fitted) / each))

    def refuse_few(self, scored: int, candidates: int) -> None:
        """Refuse where fewer can be scored than are kept."""
        raise InputError(
            f"{self} is enough to score {scored:,} of {candidates:,} candidates, no more than select.budget keeps",
            key=_KEY,
            hint="raise it or the budget, lower select.influence.size, or keep less; null: no limit",
        )


def allowance(settings: Settings) -> Allowance | None:
    """What scoring may cost; None where it may cost anything.

    >>> str(allowance(Settings(budget=Budget.parse("10min"))))
    '60 s (10% of the training budget of 600 s)'
    """
    share, budget = settings.select.influence.share_of_budget, settings.budget
    if share is None:
        return None
    if budget.unit == "seconds":
        return Allowance(share * budget.amount, "seconds", share)
    return Allowance(share * _training_flops(settings), "flops", share)


def fitting_cost(phase: Phase, allowed: Allowance) -> float:
    """What a scoring model's training will cost, in the allowance's unit; a time is measured by a short trial."""
    cost = measure_cost(phase, _TRIAL if allowed.in_seconds else _COUNTED)
    each = cost.seconds if allowed.in_seconds else cost.flops
    assert each is not None
    return phase.steps * each


def seconds_per_token(phase: Phase) -> float:
    """Of training, measured by a short trial."""
    cost = measure_cost(phase, _TRIAL)
    assert cost.seconds is not None
    return cost.seconds / cost.tokens


def target_memory(device: torch.device) -> int:
    """The most that all targets' gradients may take: a quarter of what is free."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(_SHARE_OF_MEMORY * free)
    return int(_SHARE_OF_MEMORY * available_memory())


def refuse_large(plan: Plan, targets: int, memory: int) -> None:
    """Refuse where even the smallest form of the targets' gradients takes more memory than there is for them."""
    needed = plan.bytes_per_target * targets
    if needed > memory:
        raise InputError(
            f"the gradients of {targets:,} targets take {needed / 1e6:,.1f} MB, and {memory / 1e6:,.1f} MB are free "
            "for them",
            key="select.influence.most_targets",
            hint="lower it, set select.influence.rank, or compare fewer layers",
        )


def _training_flops(settings: Settings) -> float:
    """About what the run's training costs: 6 x parameters x tokens."""
    budget, train = settings.budget, settings.train
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
        from endtask.models.pretrained import open_checkpoint

        config = open_checkpoint(settings.model.path).config
        hidden, layers, vocabulary = config.hidden_size, config.num_hidden_layers, config.vocab_size
    else:
        shape = shape_of(settings.model)
        hidden, layers, vocabulary = shape.hidden_size, shape.num_hidden_layers, settings.tokenizer.vocab_size
    return int(12 * hidden * hidden * layers + vocabulary * hidden)
