"""The optimizer of a phase: AdamW that clips gradients and skips non-finite steps on the device.

A step never waits for the device, so Python queues the next one while it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from endtask.config.training import PhaseSettings
from endtask.encoders.network import GENERATOR, MASKED_LM
from endtask.encoders.weights import divided_as, whole

_HEADS = "heads."
ADAM_BETA1, ADAM_EPSILON = 0.9, 1e-6
"""The values in the code of all four papers."""
_WITH_ENCODER = (f"heads.{MASKED_LM}.", f"heads.{GENERATOR}.")


def base_rate(name: str, settings: PhaseSettings, learning_rate: float) -> float:
    """Return the peak learning rate of a parameter.

    >>> settings = PhaseSettings(head_learning_rate=0.1)
    >>> [base_rate(name, settings, 0.01) for name in ("heads.task.bias", "encoder.final_norm.weight")]
    [0.1, 0.01]
    """
    return settings.head_learning_rate or learning_rate if is_task_head(name) else learning_rate


def is_task_head(name: str) -> bool:
    """Return whether the settings of heads (learning rate, weight decay, clipping) apply to a parameter.

    The head of masked LM has the settings of the encoder, as in TARTAN's code; so does the generator of `replaced`.

    >>> [is_task_head(f"heads.{name}.bias") for name in ("task", "masked_lm", "generator.encoder")]
    [True, False, False]
    """
    return name.startswith(_HEADS) and not name.startswith(_WITH_ENCODER)


_NAMES_SHOWN = 5

Clipping = Literal["global", "task_heads", "each_head"]
"""Gradients are clipped by one norm, by the norms of encoder and task heads, or by those of encoder and each head."""


@dataclass(frozen=True)
class StepOutcome:
    """Gradient norm of a step and whether it was skipped; both stay on the device."""

    grad_norm: Tensor  # float32, before clipping
    skipped: Tensor  # bool: the norm was not finite


class _AdamW(torch.optim.AdamW):
    """AdamW that declares the two attributes which torch.amp.GradScaler sets on a fused optimizer."""

    grad_scale: Tensor | None = None  # divides the gradients
    found_inf: Tensor | None = None  # 1.0: the step changes no weights, moments or step counts


class Optimizer:
    """AdamW over all trainable parameters of a module.

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
        clip: Clipping = "global",
    ) -> None:
        parameters = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        _check_float32(parameters)
        self._parameters = parameters
        self._max_grad_norm = settings.max_grad_norm
        self._clip_groups = _clip_groups(parameters, clip)
        # MPS has a fused AdamW too; we could not test whether it honours `found_inf`.
        self._fused = device.type in ("cpu", "cuda") if fused is None else fused
        self._adamw = _build_adamw(parameters, settings, learning_rate, head_weight_decay, self._fused)
        self.rate_scale = 1.0
        self.skipped_total = torch.zeros((), dtype=torch.int64, device=device)
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=device)

    def scale_rate(self, factor: float) -> None:
        """Multiply all later learning rates by a factor, which is part of the state."""
        self.rate_scale *= factor

    @torch.no_grad()
    def step(self, factor: float) -> StepOutcome:
        """Update at `factor` times the peak learning rates and drop the gradients; skip if their norm is not finite."""
        gradients = [weight.grad for weight in self._parameters.values() if weight.grad is not None]
        if not gradients:
            raise ValueError("no parameter has a gradient; call backward() before step()")
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        skipped = ~norm.isfinite()
        divisor = None
        if self._max_grad_norm is not None and self._clip_groups:
            self._clip_by_group(self._max_grad_norm)
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
        # Only fused AdamW reads `grad_scale` and `found_inf` on the device; otherwise the host waits and decides.
        elif not bool(skipped):
            if divisor is not None:
                for weight in self._parameters.values():
                    if weight.grad is not None:
                        weight.grad.div_(divisor)
            self._adamw.step()

    def _clip_by_group(self, max_norm: float) -> None:
        """Clip the gradients of each group by their own norm."""
        for weights in self._clip_groups:
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            if gradients:
                norm = whole(torch.nn.utils.get_total_norm(gradients))
                torch._foreach_div_(gradients, (norm / max_norm).clamp(min=1.0))

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the moments and counters by name, without copying; an exact resume needs all of them."""
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
        """Copy a state from any device; raise ValueError and change nothing if names, shapes or types differ."""
        state = self.state_tensors()
        shared = state.keys() & tensors.keys()
        problems = {
            "lacks": state.keys() - tensors.keys(),
            "does not know": tensors.keys() - state.keys(),
            "has another shape or type of": [name for name in shared if _kind(state[name]) != _kind(tensors[name])],
        }
        if messages := [f"{problem} {_listed(names)}" for problem, names in problems.items() if names]:
            raise ValueError(f"the optimizer's state {', '.join(messages)}")
        for name, value in state.items():
            value.copy_(divided_as(value, tensors[name]))
        self.rate_scale = state["rate_scale"].item()


def _build_adamw(
    parameters: Mapping[str, nn.Parameter],
    settings: PhaseSettings,
    learning_rate: float,
    head_weight_decay: float | None,
    fused: bool,
) -> _AdamW:
    """Return AdamW with weight decay on matrices only, as BERT's, and with its state already created.

    AdamW creates the state of a parameter at its first update. State that always exists has the same names before the
    first step, for parameters whose objective was not scheduled yet, and after a skipped first step.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    head_decay = settings.weight_decay if head_weight_decay is None else head_weight_decay
    for name, weight in parameters.items():
        decay = head_decay if is_task_head(name) else settings.weight_decay
        peak = base_rate(name, settings, learning_rate)
        groups.setdefault((peak, decay if weight.ndim >= 2 else 0.0), []).append(weight)
    adamw = _AdamW(
        [{"params": weights, "weight_decay": decay, "peak_rate": peak} for (peak, decay), weights in groups.items()],
        betas=(ADAM_BETA1, settings.adam_beta2),
        eps=ADAM_EPSILON,
        fused=fused or None,
    )
    for weight in parameters.values():
        adamw.state[weight] = {
            "step": torch.zeros((), device=weight.device if fused else "cpu"),
            "exp_avg": torch.zeros_like(weight),
            "exp_avg_sq": torch.zeros_like(weight),
        }
    return adamw


def _clip_groups(parameters: Mapping[str, nn.Parameter], clip: Clipping) -> tuple[list[nn.Parameter], ...]:
    """Return the groups of parameters that are clipped by their own norm; none with global clipping."""
    if clip == "global":
        return ()
    groups: dict[str, list[nn.Parameter]] = {}
    for name, weight in parameters.items():
        if clip == "each_head":
            group = name.split(".")[1] if name.startswith(_HEADS) else ""
        else:
            group = "heads" if is_task_head(name) else ""
        groups.setdefault(group, []).append(weight)
    return tuple(groups.values())


def _check_float32(parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise ValueError for weights in fewer bits, which would round small updates to zero."""
    if names := [name for name, weight in parameters.items() if weight.dtype != torch.float32]:
        raise ValueError(f"weights to be trained must be float32: {_listed(names)}")


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(sorted(names)[:_NAMES_SHOWN]) + more
