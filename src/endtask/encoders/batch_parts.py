"""Parts of a batch, for processes that train on it together: their losses add up to the loss of the whole batch.

Weights of texts and tokens stay those of the whole batch. Means over masked, labelled or all tokens are scaled by the
part's share of these tokens.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.encoders.batch import IGNORED, BatchShape, Layout, TextBatch, lay_out_tokens
from endtask.encoders.network import Network
from endtask.processes import Processes

_ROUND = 128  # block size of GPU kernels
_DEVIATIONS = 6.0
"""A part of fixed shape has rows for so many standard deviations more masked tokens than the mean part."""


def own_part(batch: TextBatch, network: Network, processes: Processes) -> TextBatch:
    """Return this process's part of a batch, with one process the batch."""
    if processes.count == 1:
        return batch
    layout = network.layout(batch.longest)
    return part_of(batch, processes.rank, processes.count, layout, fixed=network.fixed_shapes)


def part_of(batch: TextBatch, number: int, count: int, layout: Layout, *, fixed: bool = False) -> TextBatch:
    """Return a part of a batch: consecutive texts with about an equal share of the tokens.

    With more parts than texts the last parts have a text that does not count, since every process has to compute
    something. With `fixed` the parts of batches of one shape have one shape too.
    """
    offsets = batch.offsets.numpy().astype(np.int64)
    lengths = np.diff(offsets[: batch.texts + 1])
    edges = _edges(lengths, count, by_texts=fixed and layout.padded)
    texts = slice(int(edges[number]), int(edges[number + 1]))
    is_empty = texts.start == texts.stop
    texts = slice(0, 1) if is_empty else texts
    tokens = slice(int(offsets[texts.start]), int(offsets[texts.stop]))
    masked = np.empty(0, dtype=np.int64) if is_empty else _masked_in(batch, tokens)
    if fixed:
        layout = replace(layout, fixed_shape=_shape(batch, count, layout, len(masked)))
    ids, types = batch.input_ids[tokens].numpy(), batch.token_type_ids[tokens].numpy()
    firsts = np.add.reduceat((types == 0).astype(np.int64), offsets[texts] - tokens.start)
    part = lay_out_tokens(ids, lengths[texts], firsts, layout)
    part = replace(part, text_share=batch.text_share, token_share=batch.token_share)
    part = replace(part, real_share=_share(0 if is_empty else len(ids), batch.real_tokens))
    part = _with_answers(part, batch, texts, tokens, counts=not is_empty)
    return _with_masks(part, batch, masked, tokens.start, layout.fixed_shape)


def _edges(lengths: NDArray[np.int64], count: int, *, by_texts: bool) -> NDArray[np.int64]:
    """Return where parts begin and end, (count + 1,), by numbers of texts or of tokens; none is empty if possible."""
    numbers = np.arange(count + 1)
    if by_texts or len(lengths) <= count:
        return np.minimum(numbers * -(-len(lengths) // count), len(lengths))
    middles = np.cumsum(lengths) - lengths / 2
    edges = np.searchsorted(middles, lengths.sum() * numbers / count)
    edges = np.maximum.accumulate(edges - numbers) + numbers
    last: NDArray[np.int64] = np.minimum(edges, len(lengths) - count + numbers)
    return last


def _shape(batch: TextBatch, count: int, layout: Layout, masked: int) -> BatchShape:
    """Return the shape of every part of batches of this shape, larger only for a part with unusually many masks."""
    all_tokens, rows = len(batch.input_ids), len(batch.offsets) - 1
    texts = rows - (1 if layout.grid else all_tokens // layout.longest + 1)
    if layout.padded:
        texts = -(-texts // count)
        tokens = min(all_tokens, _round_up(texts * layout.longest))
    else:
        tokens = min(all_tokens, _round_up(-(-all_tokens // count) + layout.longest))
    padding = 1 if layout.grid else tokens // layout.longest + 1
    if batch.masked_positions is None:
        return BatchShape(tokens, texts + padding)
    mean = len(batch.masked_positions) * tokens / all_tokens
    most = min(len(batch.masked_positions), _round_up(int(mean + _DEVIATIONS * mean**0.5)))
    return BatchShape(tokens, texts + padding, max(most, _round_up(masked)))


def _masked_in(batch: TextBatch, tokens: slice) -> NDArray[np.int64]:
    """Return which of the masked positions are among some tokens."""
    if batch.masked_positions is None or batch.masked_targets is None:
        return np.empty(0, dtype=np.int64)
    positions, targets = batch.masked_positions.numpy(), batch.masked_targets.numpy()
    return np.flatnonzero((targets != IGNORED) & (positions >= tokens.start) & (positions < tokens.stop))


def _with_masks(
    part: TextBatch, batch: TextBatch, masked: NDArray[np.int64], start: int, shape: BatchShape | None
) -> TextBatch:
    """Return the part with its masked tokens, padded to its shape."""
    if batch.masked_positions is None or batch.masked_targets is None:
        return part
    missing = 0 if shape is None else shape.masked - len(masked)
    positions, targets = batch.masked_positions[masked] - start, batch.masked_targets[masked]
    return replace(
        part,
        masked=len(masked),
        masked_positions=_padded(positions, missing, 0),
        masked_targets=_padded(targets, missing, IGNORED),
        masked_share=_share(len(masked), batch.masked),
    )


def _with_answers(part: TextBatch, batch: TextBatch, texts: slice, tokens: slice, *, counts: bool) -> TextBatch:
    """Return the part with its labels, and their weights in the whole batch; 0 if the part does not count."""
    answers: dict[str, Tensor] = {}
    padding = {"labels": IGNORED, "weights": 0}
    for name, value in {"labels": batch.labels, "weights": batch.weights}.items():
        if value is None:
            continue
        by_token = len(value) == len(batch.input_ids)
        own = value[tokens if by_token else texts]
        size = len(part.input_ids) if by_token else len(part.offsets) - 1
        # A batch of fixed shape ends with padding, whose label depends on the task.
        is_padded = len(value) > (batch.real_tokens if by_token else batch.texts)
        answers[name] = _padded(own, size - len(own), value[-1] if is_padded else padding[name])
    if not counts and "weights" in answers:
        answers["weights"] = torch.zeros_like(answers["weights"])
    if batch.token_labels is None:
        return replace(part, **answers)  # type: ignore[arg-type]
    labels = _padded(batch.token_labels[tokens], len(part.input_ids) - len(batch.token_labels[tokens]), IGNORED)
    labelled = int((labels != IGNORED).sum()) if counts else 0
    if not labelled:
        labels = labels.clone()
        labels[0] = 0  # the mean over no labels is not a number
    share = _share(labelled, int((batch.token_labels != IGNORED).sum()))
    return replace(part, **answers, token_labels=labels, labelled_share=share)  # type: ignore[arg-type]


def _padded(values: Tensor, missing: int, value: Tensor | float) -> Tensor:
    """Return the values and `missing` rows of padding."""
    if not missing:
        return values
    rows = torch.empty((missing, *values.shape[1:]), dtype=values.dtype)
    rows[:] = value
    return torch.cat([values, rows])


def _share(some: int, of: int) -> Tensor:
    return torch.tensor(some / of if of else 0.0)


def _round_up(number: int) -> int:
    return -(-number // _ROUND) * _ROUND
