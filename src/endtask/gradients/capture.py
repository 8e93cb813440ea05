"""Capture inputs and outputs of chosen weights in a forward pass; autograd starts at the first of them.

All products with a weight call torch's function `linear` and all lookups of word vectors call `embedding`, in any
module and for any part of a weight. Capturing these two functions needs no hooks in the models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from endtask.encoders.batch import TextBatch, from_table
from endtask.encoders.network import Network
from endtask.errors import InputError, did_you_mean
from endtask.gradients.rows import Block, LinearRows, LookupRows, Rows


@dataclass(frozen=True)
class Use:
    """One use of a weight in a forward pass."""

    block: Block
    inputs: Tensor  # (..., width), or token ids (...)
    output: Tensor  # (..., height), or vectors (..., width); part of the autograd graph
    in_head: bool
    padding: int | None = None  # the token whose vector is not trained

    @property
    def is_lookup(self) -> bool:
        """Whether the use looks up word vectors instead of multiplying."""
        return not self.inputs.is_floating_point()


class Capture(TorchFunctionMode):
    """Collects every use of some weights in `uses` while active.

    With all weights frozen, the output of the first use starts the autograd graph: layers below run as under
    `no_grad`, and the backward pass computes gradients of later outputs only.
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
        arguments = {**dict(zip(("input", "weight"), args, strict=False)), **(kwargs or {})}
        block = self._block(arguments["weight"])
        if block is None:
            return out
        if not out.requires_grad:
            out = out.detach().requires_grad_(True)
        self.uses.append(Use(block, arguments["input"].detach(), out, self.in_head, arguments.get("padding_idx")))
        return out

    def _block(self, weight: Tensor) -> Block | None:
        """Return the chosen weight, or the part of its rows, that shares memory with this weight, or None."""
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
    training = [module for module in network.modules() if module.training]
    trainable = [weight for weight in network.parameters() if weight.requires_grad]
    try:
        for module in training:
            module.training = False
        for weight in trainable:
            weight.requires_grad_(False)
        with torch.enable_grad():
            yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)
        for module in training:
            module.training = True


def rows_of(use: Use, grad_output: Tensor, batch: TextBatch) -> Rows:
    """Return the nonzero rows of a use from the gradient of its output."""
    owners = _owners(use, batch)
    inputs = use.inputs
    if use.output.dim() == 3:  # a padded table (S, T, ...), or all tokens as one text (1, N, ...)
        inputs, grad_output = from_table(inputs, batch), from_table(grad_output, batch)
    nonzero = grad_output.any(dim=1)
    if use.is_lookup and use.padding is not None:
        nonzero &= inputs != use.padding
    indices = nonzero.nonzero().squeeze(1)
    gradients = wide(grad_output[indices])
    if use.is_lookup:
        return LookupRows(tokens=inputs[indices], right=gradients, owners=owners[indices])
    return LinearRows(left=gradients, right=wide(inputs[indices]), owners=owners[indices])


def _owners(use: Use, batch: TextBatch) -> Tensor:
    """Return the text of each row: of every token in the encoder, of every masked position in a head."""
    if not use.in_head:
        return batch.text_ids
    assert batch.masked_positions is not None
    if len(use.inputs) != len(batch.masked_positions):
        raise ValueError(f"{use.block} is used in a head at {len(use.inputs)} other positions than the masked ones")
    return batch.text_ids[batch.masked_positions]


def wide(values: Tensor) -> Tensor:
    """Return the values in float32, or in float64 if they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


DEPTHS = {"quarter": 0.25, "half": 0.5, "three_quarters": 0.75, "last": 1.0}
"""Names of attention output projections by the depth of the layer; of 12 layers the 3rd, 6th, 9th and 12th."""
EMBEDDING = "embedding"


def choose_weights(network: Network, layers: Sequence[str]) -> dict[str, nn.Parameter]:
    """Return the weights that the names select, by their module's path in the encoder, in the encoder's order.

    A name is `last`, `three_quarters`, `half`, `quarter` (the attention output projection at that depth, as in ISS),
    `embedding` (the word vectors), or the path of a Linear module, with `*` as wildcard.
    """
    if isinstance(layers, str) or not layers:
        raise InputError("give a list of at least one layer", key="layers", hint="such as [last]")
    known = _known_weights(network)
    chosen = {path for name in layers for path in _paths(network, name, list(known))}
    return {path: weight for path, weight in known.items() if path in chosen}


def _known_weights(network: Network) -> dict[str, nn.Parameter]:
    embeddings = network.architecture.embeddings(network.encoder)
    weights = dict(network.encoder.named_parameters())
    return {
        path: weights[f"{path}.weight"]
        for path, module in network.encoder.named_modules()
        if isinstance(module, nn.Linear) or module is embeddings
    }


def _paths(network: Network, name: str, known: list[str]) -> list[str]:
    if name in DEPTHS:
        return [output_projection(network, DEPTHS[name])]
    if name == EMBEDDING:
        embeddings = network.architecture.embeddings(network.encoder)
        return [path for path, module in network.encoder.named_modules() if module is embeddings]
    matching = [path for path in known if fnmatchcase(path, name)]
    if not matching:
        hint = did_you_mean(name, [*DEPTHS, EMBEDDING, *known])
        raise InputError(f"{network.architecture.name} has no layer {name!r}", key="layers", hint=hint)
    return matching


def output_projection(network: Network, depth: float) -> str:
    """Return the path of the attention output projection at a depth, as a share of the layers.

    >>> from types import SimpleNamespace as Some
    >>> from endtask.encoders.bert import Bert
    >>> output_projection(Some(architecture=Bert(), config=Some(num_hidden_layers=12)), 0.25)
    'encoder.layer.2.attention.output.dense'
    """
    number = max(1, math.ceil(depth * network.config.num_hidden_layers))
    projection = network.architecture.output_projection
    if projection is None:
        raise InputError(f"{network.architecture.name} has no attention output projections", key="layers")
    return projection.format(number - 1)
