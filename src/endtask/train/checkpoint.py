"""Checkpoints: weights, optimizer state and counters in one safetensors file, whole or absent, no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from endtask.models.network import Network
from endtask.models.weights import fill, load_tensors, save_tensors

CHECKPOINT = "checkpoint.safetensors"
_START_OVER = "delete it to train this stage again from its start"


def save_checkpoint(
    folder: Path, network: Network, optimizer: torch.optim.Optimizer, step: int, memory: dict[str, Any]
) -> None:
    """Write everything a resumed run needs; `memory` holds plain values such as the best dev score so far."""
    tensors = {f"network/{name}": weight for name, weight in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer/{name}/{key}"] = value
    save_tensors(folder / CHECKPOINT, tensors, {"step": step, "memory": memory})


def load_checkpoint(
    folder: Path, network: Network, optimizer: torch.optim.Optimizer
) -> tuple[int, dict[str, Any]] | None:
    """Restore weights and optimizer; returns (steps done, memory), or None where there is no checkpoint."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    tensors, header = load_tensors(path, hint=_START_OVER)
    weights = {name.removeprefix("network/"): value for name, value in tensors.items() if name.startswith("network/")}
    fill(network, weights, path, hint=_START_OVER)
    for name, parameter in network.named_parameters():
        prefix = f"optimizer/{name}/"
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if state:
            moments = {key: value.to(parameter.device) for key, value in state.items() if key != "step"}
            on_device = any(group.get("fused") for group in optimizer.param_groups)
            moments["step"] = state["step"].to(parameter.device if on_device else "cpu")
            optimizer.state[parameter] = moments
    return int(header["step"]), dict(header["memory"])
