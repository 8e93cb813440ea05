"""Rows of word vectors by token: the same products as a loop over single rows."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.gradients.arithmetic import LookupProducts, matrices
from endtask.gradients.rows import Block, LinearRows, LookupRows

WORDS = Block("words", 12, 3)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), kept_rows=st.integers(0, 40), tokens=st.integers(1, 12), count=st.integers(1, 5))
def test_every_row_meets_the_line_of_its_token(seed: int, kept_rows: int, tokens: int, count: int) -> None:
    random = torch.Generator().manual_seed(seed)
    asked = torch.randint(0, tokens, (kept_rows,), generator=random)
    kept = LookupRows(tokens=asked, right=_normal(kept_rows, random), owners=torch.arange(kept_rows))
    owners = torch.arange(count).repeat_interleave(2)
    places = torch.randint(0, WORDS.height, (2 * count,), generator=random)
    lookups = LookupRows(tokens=places, right=_normal(2 * count, random), owners=owners)
    left = torch.randn(2 * count, WORDS.height, generator=random, dtype=torch.float64)
    linear = LinearRows(left=left, right=_normal(2 * count, random), owners=owners)

    found = LookupProducts(kept, WORDS.layer).products((lookups, linear), count)

    whole = matrices((lookups, linear), count, WORDS)
    assert found.shape == (count, kept_rows)
    for row, token in enumerate(asked.tolist()):
        torch.testing.assert_close(found[:, row], whole[:, token] @ kept.right[row])


def _normal(rows: int, random: torch.Generator) -> torch.Tensor:
    return torch.randn(rows, WORDS.width, generator=random, dtype=torch.float64)
