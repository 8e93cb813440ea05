"""The optimizer of a phase: AdamW, or Muon and AdamW, with clipping and skipped steps decided on the device.

A step asks the device nothing, so the next one can be queued while this one still runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from endtask.settings.training import PhaseSettings
from endtask.train.muon import Muon
from endtask.train.rates import base_rate, decay_of, head_of, is_apart, layer_factors

_NAMES_SHOWN = 5


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
    >>> optimizer = build_optimizer(layer, PhaseSettings(), torch.device("cpu"), learning_rate=0.1)
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
        fused: bool,
        layer_decay: float = 1.0,
        clip_all_heads_apart: bool = False,
    ) -> None:
        parameters = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        _check_float32(parameters)
        matrices = muon_matrices(module) if settings.optimizer == "muon" else frozenset()
        factors = layer_factors(parameters, layer_decay)
        self._parameters = list(parameters.values())
        self._muon_rate = settings.muon_learning_rate
        self._max_grad_norm = settings.max_grad_norm
        self._clipped_apart = _sides(parameters, settings, all_heads=clip_all_heads_apart)
        self._fused = fused
        self._adamw_parameters = {name: weight for name, weight in parameters.items() if name not in matrices}
        peaks = {name: base_rate(name, settings, learning_rate) * factors[name] for name in self._adamw_parameters}
        self._adamw = _build_adamw(self._adamw_parameters, peaks, settings, fused)
        self._muon = Muon(
            {name: weight for name, weight in parameters.items() if name in matrices},
            weight_decay=settings.weight_decay,
            rate_factors=factors,
            dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
        )
        self.rate_scale = 1.0
        self.skipped_total = torch.zeros((), dtype=torch.int64, device=device)
        self.skipped_in_a_row = torch.zeros((), dtype=torch.int64, device=device)

    def scale_rate(self, factor: float) -> None:
        """Change all peak rates for good; part of the state."""
        self.rate_scale *= factor

    @torch.no_grad()
    def step(self, factor: float) -> StepOutcome:
        """Update at `factor` times the peak rates and drop the gradients; a norm that is not finite changes nothing."""
        gradients = [weight.grad for weight in self._parameters if weight.grad is not None]
        if not gradients:
            raise ValueError("no parameter has a gradient; call backward() before step()")
        norm = torch.nn.utils.get_total_norm(gradients)
        skipped = ~norm.isfinite()
        divisor = None
        if self._max_grad_norm is not None and self._clipped_apart:
            self._clip_apart(self._max_grad_norm)
        elif self._max_grad_norm is not None:
            divisor = (norm / self._max_grad_norm).clamp(min=1.0)
        factor *= self.rate_scale
        self._step_adamw(factor, divisor, skipped)
        self._muon.step(self._muon_rate * factor, divisor=divisor, skipped=skipped)
        self.skipped_total += skipped
        self.skipped_in_a_row.add_(1).mul_(skipped)
        for weight in self._parameters:
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
        for weight in self._adamw_parameters.values():
            if weight.grad is not None:
                weight.grad.div_(divisor)

    def state_tensors(self) -> dict[str, Tensor]:
        """All that exact resume needs, by name; the moments and counters in use, not copies."""
        adamw = {
            f"{name}/{key}": value
            for name, weight in self._adamw_parameters.items()
            for key, value in self._adamw.state[weight].items()
        }
        muon = {f"{name}/momentum_buffer": value for name, value in self._muon.momentum_buffers.items()}
        return {
            **adamw,
            **muon,
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


def build_optimizer(
    module: nn.Module,
    settings: PhaseSettings,
    device: torch.device,
    *,
    learning_rate: float,
    layer_decay: float = 1.0,
    clip_all_heads_apart: bool = False,
) -> Optimizer:
    """The optimizer that the settings ask for, over a module that lies on `device`.

    `clip_all_heads_apart` is for heads that learn by losses of another weight than the body's.
    """
    # MPS has a fused AdamW too, but nothing here could check that it honours `found_inf`.
    fused = device.type in ("cpu", "cuda")
    return Optimizer(
        module,
        settings,
        device,
        learning_rate=learning_rate,
        fused=fused,
        layer_decay=layer_decay,
        clip_all_heads_apart=clip_all_heads_apart,
    )


def muon_matrices(module: nn.Module) -> frozenset[str]:
    """Names of the parameters that Muon trains: the matrices inside the body's layers.

    Embeddings are tables of rows that are each looked up alone, so there is nothing to orthogonalise in them.
    """
    tables = {f"{name}.weight" for name, part in module.named_modules() if isinstance(part, nn.Embedding)}
    return frozenset(
        name
        for name, weight in module.named_parameters()
        if name.startswith("body.") and weight.ndim == 2 and name not in tables and ".embeddings." not in name
    )


def _build_adamw(
    parameters: Mapping[str, nn.Parameter], peaks: Mapping[str, float], settings: PhaseSettings, fused: bool
) -> _AdamW:
    """AdamW with weight decay on matrices only, as BERT's, and with its state made now rather than at the first step.

    State that is always there has the same names before the first step, for parameters whose objective has not had its
    turn yet, and after a first step that was skipped.
    """
    alike: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, weight in parameters.items():
        alike.setdefault((peaks[name], decay_of(name, settings) if weight.ndim >= 2 else 0.0), []).append(weight)
    groups = [{"params": weights, "weight_decay": decay, "peak_rate": peak} for (peak, decay), weights in alike.items()]
    betas = (settings.adam_beta1, settings.adam_beta2)
    adamw = _AdamW(groups, betas=betas, eps=settings.adam_epsilon, fused=fused or None)
    for weight in parameters.values():
        adamw.state[weight] = {
            "step": torch.zeros((), device=weight.device if fused else "cpu"),
            "exp_avg": torch.zeros_like(weight),
            "exp_avg_sq": torch.zeros_like(weight),
        }
    return adamw


def _sides(
    parameters: Mapping[str, nn.Parameter], settings: PhaseSettings, *, all_heads: bool
) -> tuple[list[nn.Parameter], ...]:
    """The encoder's parameters, and those of the heads that are told apart; nothing where all are clipped together.

    With `all_heads`, each head is a side of its own.
    """
    if not (all_heads or settings.clip_heads_apart):
        return ()
    sides: dict[str, list[nn.Parameter]] = {}
    for name, weight in parameters.items():
        side = head_of(name) if all_heads else "heads" if is_apart(name, settings) else None
        sides.setdefault(side or "encoder", []).append(weight)
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
