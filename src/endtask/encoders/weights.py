"""Read and write tensors in safetensors files, atomically and without pickle."""

from __future__ import annotations

import json
from io import FileIO
from pathlib import Path
from typing import Any

import torch
import xxhash
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
"""Names in the safetensors format."""
_NO_DIGEST = b"0" * 32


def save_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a small JSON header."""
    with atomic_file(path) as temporary:
        write_safetensors(temporary, tensors, header)


class DamagedTensors(InputError):
    """A file of tensors is cut off or its content changed."""

    def __init__(self, path: Path, problem: str, hint: str) -> None:
        super().__init__(f"damaged: {problem}", path=path, hint=hint)
        self.path = path


def write_safetensors(
    path: Path, tensors: dict[str, Tensor], header: dict[str, Any], *, with_digest: bool = False
) -> None:
    """Write a safetensors file, and copy one tensor after the other to the CPU.

    With a digest in its header, `load_tensors` notices any change of the file; the manifest of a finished stage has the
    digests of its files, but checkpoints are deleted before.

    The library's `save_file` before version 0.8 holds the interpreter's lock until the file is written, which would
    stop training while another thread writes a checkpoint.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # aligned as in the library
    start = _header(ordered, header, with_digest=with_digest)
    digest = xxhash.xxh3_128(start)
    with open(path, "wb", buffering=0) as file:
        _write_all(file, start)
        for _, value in ordered:
            data = _to_cpu(value.detach().contiguous()).reshape(-1).view(torch.uint8).numpy().data
            _write_all(file, data)
            if with_digest:
                digest.update(data)
        if with_digest:
            file.seek(start.index(_NO_DIGEST))
            _write_all(file, digest.hexdigest().encode())


def _to_cpu(value: Tensor) -> Tensor:
    """Return a tensor on the CPU; copies from a GPU asynchronously, since a blocking copy would delay its kernels."""
    if not value.is_cuda:
        return value.cpu()
    with RECORDING:
        copied = value.to("cpu", non_blocking=True)
        torch.cuda.current_stream(value.device).synchronize()
    return copied


def _header(ordered: list[tuple[str, Tensor]], metadata: dict[str, Any], *, with_digest: bool) -> bytes:
    """Return the bytes before the data: the header's length in 8 bytes, then JSON, padded to a multiple of 8."""
    tree: dict[str, Any] = {"__metadata__": {"endtask": json.dumps(metadata)}}
    if with_digest:
        tree["__metadata__"] = {"digest": _NO_DIGEST.decode(), **tree["__metadata__"]}
    end = 0
    for name, value in ordered:
        start, end = end, end + value.numel() * value.element_size()
        tree[name] = {"dtype": _DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [start, end]}
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all bytes; an unbuffered file may write fewer per call, at most 2 GB on Linux."""
    unwritten = memoryview(data)
    while len(unwritten):
        unwritten = unwritten[file.write(unwritten) :]


def load_tensors(path: Path, *, hint: str = _MAKE_AGAIN) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the header of a file; `hint` is the advice for a damaged file."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if "digest" in metadata and _digest_of(path, metadata["digest"]) != metadata["digest"]:
                raise DamagedTensors(path, "its content changed since it was written", hint)
            header = json.loads(metadata.get("endtask", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118
    except FileNotFoundError:
        raise InputError("no such weights file", path=path) from None
    except SafetensorError as error:
        raise DamagedTensors(path, str(error), hint) from None


def _digest_of(path: Path, stored: str) -> str:
    """Return the digest of a file as if its header had none yet."""
    with open(path, "rb") as file:
        size = file.read(8)
        start = size + file.read(int.from_bytes(size, "little"))
        digest = xxhash.xxh3_128(start.replace(stored.encode(), _NO_DIGEST, 1))
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor that is divided among processes as a whole, others unchanged; every process has to call it."""
    if not hasattr(tensor, "full_tensor"):  # of torch's DTensor
        return tensor
    full: Tensor = tensor.full_tensor()
    return full


def divided_as(target: Tensor, tensor: Tensor) -> Tensor:
    """Return a whole tensor divided among the processes as the target is; if it is whole, unchanged."""
    if not hasattr(target, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(target, DTensor)
    return distribute_tensor(tensor.to(target.device), target.device_mesh, target.placements)


def save_weights(path: Path, network: nn.Module, *, writes: bool = True) -> None:
    """Write the weights of a network; of several processes all have to call it, and one writes."""
    tensors = {name: whole(value) for name, value in network.state_dict().items()}
    if writes:
        save_tensors(path, tensors, {})


def load_weights(path: Path, network: nn.Module) -> None:
    """Read the weights of a network; raise `InputError` for missing or unexpected weights."""
    tensors, _ = load_tensors(path)
    load_state_dict(network, tensors, path)


def load_state_dict(network: nn.Module, tensors: dict[str, Tensor], path: Path, *, hint: str = _MAKE_AGAIN) -> None:
    """Load tensors read from `path`; raise `InputError` for missing or unexpected ones."""
    targets = network.state_dict()
    divided = {name: divided_as(targets[name], value) if name in targets else value for name, value in tensors.items()}
    try:
        network.load_state_dict(divided, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"does not fit the network: {reason}", path=path, hint=hint) from None
