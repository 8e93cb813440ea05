"""The optimizer of a phase: AdamW, with clipping and skipped steps decided on the device.

A step asks the device nothing, so the next one can be queued while this one still runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from endtask.config.training import PhaseSettings
from endtask.encoders.network import GENERATOR, MASKED_LM

_HEADS = "heads."
ADAM_BETA1, ADAM_EPSILON = 0.9, 1e-6
"""The values of all four papers' code."""
_WITH_ENCODER = (f"heads.{MASKED_LM}.", f"heads.{GENERATOR}.")


def base_rate(name: str, settings: PhaseSettings, learning_rate: float) -> float:
    """Return the peak learning rate of a parameter.

    >>> settings = PhaseSettings(head_learning_rate=0.1)
    >>> [base_rate(name, settings, 0.01) for name in ("heads.task.bias", "encoder.final_norm.weight")]
    [0.1, 0.01]
    """
    return settings.head_learning_rate or learning_rate if is_apart(name) else learning_rate


def is_apart(name: str) -> bool:
    """Return whether a parameter belongs to a head that may have a learning rate, decay and clipping of its own.

    The head of masked LM goes with the encoder, as in TARTAN's code; so does the generator of `replaced`.

    >>> [is_apart(f"heads.{name}.bias") for name in ("task", "masked_lm", "generator.encoder")]
    [True, False, False]
    """
    return name.startswith(_HEADS) and not name.startswith(_WITH_ENCODER)


_NAMES_SHOWN = 5

Clipping = Literal["together", "heads apart", "each head apart"]
"""By which norms gradients are clipped: that of all, those of encoder and task heads, or of encoder and each head."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step did; both lie on the device until someone reads them."""

    grad_norm: Tensor  # float32, before clipping
    skipped: Tensor  # bool: the norm was not finite


class _AdamW(torch.optim.AdamW):
    """AdamW with the two attributes by which torch.amp.GradScaler talks to a fused optimizer, declared."""

    grad_scale: Tensor | None = None  # gradients are divided by this
    found_inf: Tensor | None = None  # 1.0: leave weights, moments and step counts alone


class Optimizer:
    """All trained parameters of a module, stepped together.

    >>> layer = nn.Linear(2, 1)
    >>> optimizer = Optimizer(layer, PhaseSettings(), torch.device("cpu"), learning_rate=0.1)
    >>> layer(torch.ones(2)).sum().backward()
    >>> bool(optimizer.step(1.0).skipped), int(optimizer.skipped_total)
    (False, 0)
    """

    def __init__(
        self,
        module: nn.Module,
        settings: PhaseSettings,
        device: torch.device,
        *,
        learning_rate: float,
        fused: bool | None = None,
        head_weight_decay: float | None = None,
        clip: Clipping = "together",
    ) -> None:
        parameters = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        _check_float32(parameters)
        self._parameters = parameters
        self._max_grad_norm = settings.max_grad_norm
        self._clipped_apart = _sides(parameters, clip)
        # MPS has a fused AdamW too, but nothing here could check that it honours `found_inf`.
        self._fused = device.type in ("cpu", "cuda") if fused is None else fused
        self._adamw = _build_adamw(parameters, settings, learning_rate, head_weight_decay, self._fused)
        self.rate_scale = 1.0
        self.skipped_total = torch.zeros((), dtype=torch.int64, device=device)
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=device)

    def scale_rate(self, factor: float) -> None:
        """Change all peak rates for good; part of the state."""
        self.rate_scale *= factor

    @torch.no_grad()
    def step(self, factor: float) -> StepOutcome:
        """Update at `factor` times the peak rates and drop the gradients; a norm that is not finite changes nothing."""
        gradients = [weight.grad for weight in self._parameters.values() if weight.grad is not None]
        if not gradients:
            raise ValueError("no parameter has a gradient; call backward() before step()")
        norm = torch.nn.utils.get_total_norm(gradients)
        skipped = ~norm.isfinite()
        divisor = None
        if self._max_grad_norm is not None and self._clipped_apart:
            self._clip_apart(self._max_grad_norm)
        elif self._max_grad_norm is not None:
            divisor = (norm / self._max_grad_norm).clamp(min=1.0)
        self._step_adamw(factor * self.rate_scale, divisor, skipped)
        self.skipped_total += skipped
        self.skipped_in_a_row.add_(1).mul_(skipped)
        for weight in self._parameters.values():
            weight.grad = None
        return StepOutcome(norm, skipped)

    def _step_adamw(self, factor: float, divisor: Tensor | None, skipped: Tensor) -> None:
        for group in self._adamw.param_groups:
            group["lr"] = group["peak_rate"] * factor
        if self._fused:
            self._adamw.grad_scale, self._adamw.found_inf = divisor, skipped.float()
            self._adamw.step()
        # Only fused AdamW reads its orders on the device; elsewhere the host must wait and decide.
        elif not bool(skipped):
            if divisor is not None:
                self._divide_gradients(divisor)
            self._adamw.step()

    def _clip_apart(self, longest: float) -> None:
        """Divide the gradients of encoder and heads, each by what their own norm is too long."""
        for weights in self._clipped_apart:
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            if gradients:
                norm = torch.nn.utils.get_total_norm(gradients)
                torch._foreach_div_(gradients, (norm / longest).clamp(min=1.0))

    def _divide_gradients(self, divisor: Tensor) -> None:
        for weight in self._parameters.values():
            if weight.grad is not None:
                weight.grad.div_(divisor)

    def state_tensors(self) -> dict[str, Tensor]:
        """All that exact resume needs, by name; the moments and counters in use, not copies."""
        adamw = {
            f"{name}/{key}": value
            for name, weight in self._parameters.items()
            for key, value in self._adamw.state[weight].items()
        }
        return {
            **adamw,
            "skipped_total": self.skipped_total,
            "skipped_in_a_row": self.skipped_in_a_row,
            "rate_scale": torch.tensor(self.rate_scale, dtype=torch.float64),
        }

    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a state from any device; ValueError, and nothing changed, if it does not fit."""
        own = self.state_tensors()
        unlike = [name for name in own.keys() & tensors.keys() if _kind(own[name]) != _kind(tensors[name])]
        problems = {
            "lacks": own.keys() - tensors.keys(),
            "does not know": tensors.keys() - own.keys(),
            "has another shape or type of": unlike,
        }
        if found := [f"{problem} {_listed(names)}" for problem, names in problems.items() if names]:
            raise ValueError(f"the optimizer's state {', '.join(found)}")
        for name, value in own.items():
            value.copy_(tensors[name])
        self.rate_scale = own["rate_scale"].item()


def _build_adamw(
    parameters: Mapping[str, nn.Parameter],
    settings: PhaseSettings,
    learning_rate: float,
    head_weight_decay: float | None,
    fused: bool,
) -> _AdamW:
    """AdamW with weight decay on matrices only, as BERT's, and with its state made now rather than at the first step.

    State that is always there has the same names before the first step, for parameters whose objective has not had its
    turn yet, and after a first step that was skipped.
    """
    alike: dict[tuple[float, float], list[nn.Parameter]] = {}
    of_heads = settings.weight_decay if head_weight_decay is None else head_weight_decay
    for name, weight in parameters.items():
        decay = of_heads if is_apart(name) else settings.weight_decay
        peak = base_rate(name, settings, learning_rate)
        alike.setdefault((peak, decay if weight.ndim >= 2 else 0.0), []).append(weight)
    groups = [{"params": weights, "weight_decay": decay, "peak_rate": peak} for (peak, decay), weights in alike.items()]
    adamw = _AdamW(groups, betas=(ADAM_BETA1, settings.adam_beta2), eps=ADAM_EPSILON, fused=fused or None)
    for weight in parameters.values():
        adamw.state[weight] = {
            "step": torch.zeros((), device=weight.device if fused else "cpu"),
            "exp_avg": torch.zeros_like(weight),
            "exp_avg_sq": torch.zeros_like(weight),
        }
    return adamw


def _sides(parameters: Mapping[str, nn.Parameter], clip: Clipping) -> tuple[list[nn.Parameter], ...]:
    """The encoder's parameters, and those of the heads, as they are clipped; nothing where all are clipped together."""
    if clip == "together":
        return ()
    sides: dict[str, list[nn.Parameter]] = {}
    for name, weight in parameters.items():
        if clip == "each head apart":
            side = name.split(".")[1] if name.startswith(_HEADS) else ""
        else:
            side = "heads" if is_apart(name) else ""
        sides.setdefault(side, []).append(weight)
    return tuple(sides.values())


def _check_float32(parameters: Mapping[str, nn.Parameter]) -> None:
    """In fewer bits small updates round to nothing; the products may run in bfloat16, the weights may not."""
    if other := [name for name, weight in parameters.items() if weight.dtype != torch.float32]:
        raise ValueError(f"weights to be trained must be float32: {_listed(other)}")


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(sorted(names)[:_NAMES_SHOWN]) + more
