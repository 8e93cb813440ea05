"""Capture inputs and outputs of chosen weights in a forward pass; autograd starts at the first of them.

Every product with a weight passes torch's function `linear` and every reading of word vectors passes `embedding`,
whatever module or part of a weight it belongs to; so these two are watched, and the models need no hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from endtask.encoders.batch import TextBatch, from_table
from endtask.gradients.rows import Block, LinearRows, LookupRows, Rows


@dataclass(frozen=True)
class Use:
    """One use of a weight in a forward pass."""

    block: Block
    inputs: Tensor  # (..., width), or token ids (...)
    output: Tensor  # (..., height), or vectors (..., width); part of the autograd graph
    in_head: bool
    padding: int | None = None  # the token whose vector is never trained

    @property
    def is_lookup(self) -> bool:
        """Whether word vectors were looked up, not multiplied."""
        return not self.inputs.is_floating_point()


class Capture(TorchFunctionMode):
    """While active, `uses` collects every use of the given weights.

    With all weights frozen, the output of a first use becomes the start of the autograd graph: what lies below runs
    as under `no_grad`, and the backward pass computes nothing but gradients of outputs above.
    """

    def __init__(self, weights: Mapping[str, nn.Parameter]) -> None:
        super().__init__()
        self.uses: list[Use] = []
        self.in_head = False
        self._weights = [(layer, weight, weight.data_ptr()) for layer, weight in weights.items()]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is not functional.linear and func is not functional.embedding:
            return out
        # Both take input and weight first.
        given = {**dict(zip(("input", "weight"), args, strict=False)), **(kwargs or {})}
        block = self._block(given["weight"])
        if block is None:
            return out
        if not out.requires_grad:
            out = out.detach().requires_grad_(True)
        self.uses.append(Use(block, given["input"].detach(), out, self.in_head, given.get("padding_idx")))
        return out

    def _block(self, weight: Tensor) -> Block | None:
        """Return the chosen weight that shares memory with this one, or with some of its rows; None without one."""
        for layer, full, start in self._weights:
            offset = weight.data_ptr() - start
            if 0 <= offset < full.nbytes:
                if weight.stride() != full.stride() or weight.shape[1:] != full.shape[1:]:
                    raise ValueError(f"{layer} is used in a way that is not understood: {tuple(weight.shape)}")
                first = offset // (full.stride(0) * full.element_size())
                return Block(layer, weight.shape[0], weight.shape[1], first, len(full))
        return None


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Disable dropout and the gradients of weights inside; restores both afterwards."""
    active = [module for module in network.modules() if module.training]
    wanted = [weight for weight in network.parameters() if weight.requires_grad]
    try:
        for module in active:
            module.training = False
        for weight in wanted:
            weight.requires_grad_(False)
        with torch.enable_grad():
            yield
    finally:
        for weight in wanted:
            weight.requires_grad_(True)
        for module in active:
            module.training = True


def rows_of(use: Use, slope: Tensor, batch: TextBatch) -> Rows:
    """Return the rows of a use, from the gradient at its output, without zero rows."""
    owners = _owners(use, batch)
    inputs = use.inputs
    if use.output.dim() == 3:  # a padded table (S, T, ...), or all tokens as one text (1, N, ...)
        inputs, slope = from_table(inputs, batch), from_table(slope, batch)
    wanted = slope.any(dim=1)
    if use.is_lookup and use.padding is not None:
        wanted &= inputs != use.padding
    where = wanted.nonzero().squeeze(1)
    gradients = wide(slope[where])
    if use.is_lookup:
        return LookupRows(tokens=inputs[where], right=gradients, owners=owners[where])
    return LinearRows(left=gradients, right=wide(inputs[where]), owners=owners[where])


def _owners(use: Use, batch: TextBatch) -> Tensor:
    """Return the text of each row: of every token in the encoder, of every masked position in a head."""
    if not use.in_head:
        return batch.text_ids
    assert batch.masked_positions is not None
    if len(use.inputs) != len(batch.masked_positions):
        raise ValueError(f"{use.block} is used in a head at {len(use.inputs)} other positions than the masked ones")
    return batch.text_ids[batch.masked_positions]


def wide(values: Tensor) -> Tensor:
    """Return the values in float32, or float64 where they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
