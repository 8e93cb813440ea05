"""The slow oracle: one text at a time through autograd, whole gradients, dot products."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from endtask.encoders.batch import TextBatch
from endtask.encoders.network import Network
from endtask.gradients.capture import choose_weights
from endtask.gradients.engine import TextLosses


def alone(batch: TextBatch, text: int) -> TextBatch:
    """One text of a batch, with the same masks, as if it had been laid out by itself."""
    first, end = (int(place) for place in batch.offsets[text : text + 2])
    size = end - first
    changed = replace(
        batch,
        **{name: getattr(batch, name)[first:end] for name in ("input_ids", "position_ids", "token_type_ids")},
        text_ids=torch.zeros(size, dtype=torch.int64),
        offsets=torch.tensor([0, size], dtype=torch.int32),
        longest=size,
        grid=torch.arange(size)[None],
        texts=1,
        real_tokens=size,
        padded_tokens=size,
        squared_lengths=size * size,
        even=True,
    )
    for name in ("labels", "weights"):
        values = getattr(batch, name)
        if values is not None:  # tags have one for each token
            mine = slice(first, end) if len(values) == len(batch.input_ids) else slice(text, text + 1)
            changed = replace(changed, **{name: values[mine]})
    if batch.masked_positions is None or batch.masked_targets is None:
        return changed
    inside = (batch.masked_positions >= first) & (batch.masked_positions < end)
    positions, targets = batch.masked_positions[inside] - first, batch.masked_targets[inside]
    return replace(changed, masked=len(positions), masked_positions=positions, masked_targets=targets)


def flat_gradients(network: Network, batch: TextBatch, losses: TextLosses, layers: tuple[str, ...]) -> Tensor:
    """The whole gradient of every text's own loss: (texts, weights)."""
    weights = list(choose_weights(network, layers).values())
    lines = []
    for text in range(batch.texts):
        single = alone(batch, text)
        loss = losses(network, network(single), single)
        assert loss.shape == (1,)
        parts = torch.autograd.grad(loss.squeeze(), weights, allow_unused=True, materialize_grads=True)
        lines.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(lines)


def relative_error(products: Tensor, one: Tensor, other: Tensor) -> float:
    """The largest difference to the products of flat gradients, relative to the product of their norms."""
    norms = one.norm(dim=1)[:, None] * other.norm(dim=1)
    difference = (products - one @ other.T).abs()
    assert bool((difference[norms == 0] == 0).all())
    return float((difference / norms.clamp(min=torch.finfo(norms.dtype).tiny)).max())
