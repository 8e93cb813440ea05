"""Tensors in safetensors files, whole or absent, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from endtask.errors import InputError
from endtask.files.atomic import whole_file

_MAKE_AGAIN = "run again with --from the stage that made it"


def save_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a small JSON header."""
    with whole_file(path) as aside:
        contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(contiguous, str(aside), metadata={"endtask": json.dumps(header)})


def load_tensors(path: Path, *, hint: str = _MAKE_AGAIN) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and header back; `hint` says what to do about a damaged file."""
    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("endtask", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118
    except FileNotFoundError:
        raise InputError("no such weights file", path=path) from None
    except SafetensorError as error:
        raise InputError(f"damaged: {error}", path=path, hint=hint) from None


def save_weights(path: Path, network: nn.Module) -> None:
    """Write the network's weights alone."""
    save_tensors(path, network.state_dict(), {})


def load_weights(path: Path, network: nn.Module) -> None:
    """Read weights back; missing or unexpected ones are errors."""
    tensors, _ = load_tensors(path)
    fill(network, tensors, path)


def fill(network: nn.Module, tensors: dict[str, Tensor], path: Path, *, hint: str = _MAKE_AGAIN) -> None:
    """Put tensors read from `path` into the network, all of them and nothing else."""
    try:
        network.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"does not fit the network: {reason}", path=path, hint=hint) from None
