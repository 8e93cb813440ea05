"""Tensors in safetensors files, whole or absent, no pickle."""

from __future__ import annotations

import json
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from endtask.encoders.device_context import RECORDING
from endtask.errors import InputError
from endtask.io.atomic import atomic_file

_MAKE_AGAIN = "run again with --from the stage that made it"
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The format's names."""


def save_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a small JSON header."""
    with atomic_file(path) as aside:
        write_safetensors(aside, tensors, header)


def write_safetensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write the format, fetching one tensor after the other.

    Not by the library's `save_file`: before version 0.8 that holds the interpreter's lock until all is written, and
    training, whose checkpoints another thread writes, stands still for as long.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # aligned, as the library's
    with open(path, "wb", buffering=0) as file:
        _write_all(file, _head(ordered, header))
        for _, value in ordered:
            _write_all(file, _fetch(value.detach().contiguous()).reshape(-1).view(torch.uint8).numpy().data)


def _fetch(value: Tensor) -> Tensor:
    """On the CPU; from a GPU through memory that it copies to by itself, for other copies hold up all its orders."""
    if not value.is_cuda:
        return value.cpu()
    with RECORDING:
        fetched = value.to("cpu", non_blocking=True)
        torch.cuda.current_stream(value.device).synchronize()
    return fetched


def _head(ordered: list[tuple[str, Tensor]], header: dict[str, Any]) -> bytes:
    """What stands before the data: its own length in eight bytes, then JSON, which ends at a multiple of eight."""
    tree: dict[str, Any] = {"__metadata__": {"endtask": json.dumps(header)}}
    end = 0
    for name, value in ordered:
        start, end = end, end + value.numel() * value.element_size()
        tree[name] = {"dtype": _DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [start, end]}
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_all(file: FileIO, data: bytes | memoryview) -> None:
    """An unbuffered file may take less than it is given, 2 GB at most on Linux."""
    rest = memoryview(data)
    while len(rest):
        rest = rest[file.write(rest) :]


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
