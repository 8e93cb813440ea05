"""Settings of META-TARTAN: how the weights of objectives are learned while training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from endtask.config.section import Fraction, Positive, PositiveNumber, Section


class MetaSettings(Section):
    """Weights that follow the gradient of held-out task loss (TARTAN, Algorithm 1)."""

    learning_rate: PositiveNumber = Field(
        # Paper: 1e-1, 5e-2, 3e-2 or 1e-2; the authors' scripts have 1e-2 for text and 5e-2 for images.
        0.05,
        description="eta: how far a cosine of 1 moves an objective's logit per step, whatever `every` is",
    )
    every: Positive = Field(
        # Paper: 1.
        4,
        description="steps from one look at the held-out loss to the next; in between the weights stay",
    )
    floor: Fraction = Field(
        # Paper: 0.
        0.1,
        description="smallest weight of an objective, as a share of the one it starts with",
    )
    parameters: Literal["encoder", "body"] = Field(
        # Paper: body, in whose gradients word embeddings weigh much and mean little for the task.
        "encoder",
        description="gradients of what are compared: the encoder without its embeddings, or all of it",
    )
    split: Literal["folds", "dev"] = Field(
        # Paper: dev.
        "folds",
        description="held-out task data: a part of train that no objective reads meanwhile, or dev",
    )
    folds: int = Field(10, ge=2, description="parts of train that are held out in turn, each with all of its groups")
    fit_batch: Positive = Field(32, description="examples that the separate head is fitted to (paper: 16 or 32)")
    gradient_batch: Positive = Field(32, description="held-out examples that give the gradient")
    head: Literal["closed_form", "adamw"] = Field(
        # Paper: adamw.
        "closed_form",
        description="how the separate head is fitted to the encoder's features: one regularised Newton step, or as in the "
        "paper by a few steps from random weights",
    )
    same_head: bool = Field(
        False, description="no separate head but the task's own, which drives the task's weight to 1 (section 5.4)"
    )
