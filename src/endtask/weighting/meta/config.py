"""The options of META-TARTAN."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from endtask.config.section import MOST, Fraction, PartConfig, Positive, PositiveNumber
from endtask.weighting.base import TASK_WARMUP

LEARNED_WEIGHTS = "learned weights"
"""The name of the weight updates in tables of costs and of data usage."""


class MetaConfig(PartConfig):
    """Weights that follow the gradient of held-out task loss (TARTAN, Algorithm 1)."""

    learning_rate: PositiveNumber = Field(
        # Paper: 1e-1, 5e-2, 3e-2 or 1e-2; the authors' scripts have 1e-2 for text and 5e-2 for images.
        0.05,
        description="eta: how far a cosine of 1 moves an objective's logit per step, whatever `every` is",
    )
    every: Positive = Field(
        # Paper: 1.
        4,
        description="steps from one weight update to the next; in between the weights stay",
    )
    floor: Fraction = Field(
        # Paper: 0.
        0.1,
        description="smallest weight of an objective, as a share of its initial weight",
    )
    parameters: Literal["layers", "all"] = Field(
        # Paper: all; gradients of word embeddings are large in them and say little about the task.
        "layers",
        description="whose gradients are compared: the encoder's without its embeddings, or all of the encoder's",
    )
    task_warmup: Fraction = TASK_WARMUP
    split: Literal["folds", "dev"] = Field(
        # Paper: dev.
        "folds",
        description="held-out task data: a part of train that no objective reads meanwhile, or dev",
    )
    folds: int = Field(
        10, ge=2, le=MOST, description="parts of train that are held out in turn, each with all of its groups"
    )
    fit_batch: Positive = Field(32, description="examples that the separate head is fitted to (paper: 16 or 32)")
    gradient_batch: Positive = Field(32, description="held-out examples that give the gradient")
    head: Literal["closed_form", "adamw", "task"] = Field(
        # Paper: adamw.
        "closed_form",
        description="the head of the held-out loss: fitted to the encoder's features by one regularised Newton step; "
        "by a few steps from random weights, as in the paper; or the task's own, which drives the task's weight to 1",
    )
