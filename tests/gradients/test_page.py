"""The program on the documentation page runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from endtask.gradients.engine import masked_lm_losses, task_losses
from tests.gradients.batches import labelled_batch, make_network, masked_batch
from tests.gradients.oracle import flat_gradients


def test_the_program_on_the_page_gives_the_products(repository: Path) -> None:
    page = (repository / "docs" / "concepts" / "gradients.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    network = make_network()
    names: dict[str, Any] = {
        "network": network,
        "candidate_batch": masked_batch(network, [6, 9, 3]),
        "target_batch": labelled_batch(network, [4, 8]),
    }
    exec(program, names)
    one = flat_gradients(network, names["candidate_batch"], masked_lm_losses, ("last",))
    other = flat_gradients(network, names["target_batch"], task_losses, ("last",))
    assert torch.allclose(names["scores"], one @ other.T, atol=1e-12)
