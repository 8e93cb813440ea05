"""The candidates, targets and networks of the engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.job import Folders
from benchmarks.selection.cases import LENGTH, SIZES, Case
from benchmarks.training.inputs import MASKED_SHARE, SEED, shuffled, vocabulary_folder
from endtask.config import ModelSettings
from endtask.encoders.batch import TextBatch, batch_shape_for, lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network, build_network
from endtask.objectives.masking import Masking
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts

TARGETS, LABELS = "targets", "labels.npy"
DROPOUT = 0.1


@dataclass(frozen=True)
class Setup(Folders):
    """The folders, the numbers of targets and candidates, and the time of a case."""

    vocabulary: int
    targets: int
    candidates: int
    """The number of candidates that endtask scores; its peers stop after `seconds`."""
    seconds: float
    fitting_steps: int

    @property
    def folder(self) -> Path:
        """The folder of the texts of this vocabulary."""
        return vocabulary_folder(self.texts, self.vocabulary)

    @property
    def labels(self) -> torch.Tensor:
        """The classes of the targets: (targets,)."""
        return torch.from_numpy(np.load(self.folder / TARGETS / LABELS)[: self.targets])

    def tokenizer(self) -> Any:
        """Return the tokenizer of the texts."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(str(self.folder / "tokenizer"))


def device_context_of(case: Case) -> DeviceContext:
    """Return the device and precision of a case."""
    dtype = torch.bfloat16 if case.precision == "bfloat16" else torch.float32
    return DeviceContext(torch.device(case.device), dtype)


def network_of(case: Case, setup: Setup, context: DeviceContext) -> Network:
    """Return the network of a case with random weights, on its device, not compiled."""
    tokenizer, dimensions = setup.tokenizer(), SIZES[case.size].dimensions(gated=case.network == "lean")
    settings = ModelSettings(architecture=case.network, pooling=case.pooling, **dimensions)
    special = {"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}
    labels = tuple(str(number) for number in range(int(setup.labels.max()) + 1))
    network = build_network(settings, vocabulary=len(tokenizer), special_ids=special, labels=labels, seed=SEED)
    network.to(context.device)
    network.dtype = context.dtype
    network.set_dropout(DROPOUT)
    if not network.architecture.padded:  # with padding, endtask pads like its peers
        network.backend = network.choose_backend("auto", context, fixed_shapes=False)
    return network


def candidate_batches(setup: Setup, network: Network, size: int, count: int, text: str = "full") -> Iterator[TextBatch]:
    """Yield `count` masked batches of `size` full sequences, or of task texts."""
    texts = PackedTexts(setup.folder / text)
    masking = masking_of(setup)
    layout = network.layout(LENGTH)
    # Full sequences are equally long, so only the number of masked positions varies.
    fixed_shape = batch_shape_for(size * LENGTH, size, MASKED_SHARE, layout) if text == "full" else None
    order = shuffled(len(texts), size * count)
    for number in range(count):
        batch = lay_out(texts, order[number * size : (number + 1) * size], layout)
        yield masking.apply(batch, generator(SEED, "selection benchmark", number), fixed_shape)


def target_batches(setup: Setup, network: Network, size: int) -> Iterator[tuple[np.ndarray[Any, Any], TextBatch]]:
    """Yield labelled batches of `size` targets with their indices."""
    texts, labels = PackedTexts(setup.folder / TARGETS), setup.labels
    layout = network.layout(LENGTH)
    for first in range(0, setup.targets, size):
        indices = np.arange(first, min(first + size, setup.targets))
        yield indices, replace(lay_out(texts, indices, layout), labels=labels[indices])


def masking_of(setup: Setup) -> Masking:
    """Return the masking of the benchmark."""
    tokenizer = setup.tokenizer()
    return Masking(MASKED_SHARE, tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids))


@contextmanager
def tensor_float(allowed: bool) -> Iterator[None]:
    """Let float32 products use TF32 inside the block, if `allowed` and supported by the device."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
