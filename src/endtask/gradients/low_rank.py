"""The best approximation of every gradient by a few rows."""

from __future__ import annotations

import torch
from torch import Tensor

from endtask.gradients.arithmetic import by_owners, most_rows, tables
from endtask.gradients.rows import LinearRows


def truncate(rows: LinearRows, count: int, rank: int) -> tuple[LinearRows, Tensor]:
    """At most `rank` rows for each owner, and the share of its squared norm that they hold: (count,), 1 where it is 0.

    These are the largest singular vectors of its matrix, so no other `rank` rows come closer (Eckart and Young, 1936);
    the matrix itself is never built.

    >>> rows = LinearRows(left=torch.eye(2), right=torch.tensor([[3.0, 0.0], [0.0, 4.0]]), owners=torch.tensor([0, 0]))
    >>> kept, share = truncate(rows, 1, rank=1)
    >>> (kept.left.T @ kept.right).abs().round(decimals=4).tolist(), round(share.item(), 4)
    ([[0.0, 0.0], [0.0, 4.0]], 0.64)
    """
    most = most_rows((rows,))
    held = max(1, most * (rows.left.shape[1] + rows.right.shape[1] + 4 * most))
    parts, shares, done = [], [], 0
    for size, part in by_owners((rows,), count, held):
        padded = tables(part[0], size)
        assert isinstance(padded, LinearRows)
        left, right, share = _truncated(padded.left, padded.right, min(rank, most))
        owners = torch.arange(done, done + size, device=left.device).repeat_interleave(left.shape[1])
        parts.append((left.flatten(0, 1), right.flatten(0, 1), owners))
        shares.append(share)
        done += size
    left, right, owners = (torch.cat(values) for values in zip(*parts, strict=True))
    present = right.any(dim=1)
    return LinearRows(left=left, right=right, owners=owners).part(present.nonzero().squeeze(1)), torch.cat(shares)


def _truncated(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """(n, m, height), (n, m, width) -> (n, rank, height), (n, rank, width), (n,)

    With L L^T = C C^T, the singular values of L^T R are those of C^T R, whose squares are the eigenvalues of
    C^T (R R^T) C = V S^2 V^T, an (m, m) matrix. Then B = V^T C^T R are the right factors and (R B^T S^-2)^T L the
    left ones, of length 1. Squares want double precision.
    """
    wide_left, wide_right = left.double(), right.double()
    values, vectors = torch.linalg.eigh(wide_left @ wide_left.mT)
    root = vectors * values.clamp(min=0).sqrt()[:, None]  # C: (n, m, m)
    squares, turns = torch.linalg.eigh(root.mT @ (wide_right @ wide_right.mT) @ root)  # ascending
    total = squares.clamp(min=0).sum(1)
    squares, turns = squares[:, squares.shape[1] - rank :], turns[:, :, turns.shape[2] - rank :]
    sound = squares > torch.finfo(squares.dtype).eps * total[:, None]  # the rest is rounding
    new_right = torch.where(sound[:, :, None], (root @ turns).mT @ wide_right, 0)
    new_left = torch.where(sound, 1 / squares, 0)[:, :, None] * (new_right @ wide_right.mT) @ wide_left
    share = torch.where(total > 0, torch.where(sound, squares, 0).sum(1) / total, 1)
    return new_left.to(left.dtype), new_right.to(right.dtype), share
