"""Settings of META-TARTAN: how the weights of objectives are learned while training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from endtask.settings.section import Fraction, Positive, PositiveNumber, Section


class MetaSettings(Section):
    """Weights that follow the gradient of held-out task loss (TARTAN, Algorithm 1)."""

    learning_rate: PositiveNumber = Field(
        # Paper: 1e-1, 5e-2, 3e-2 or 1e-2; the authors' scripts have 1e-2 for text and 5e-2 for images.
        0.05,
        description="eta: how far a cosine of 1 moves an objective's logit per step, whatever `every` is",
    )
    similarity: Literal["cosine", "dot"] = Field(
        "cosine",
        description="of an objective's gradient and the held-out one: Algorithm 1 has the cosine, Eq. 7 the product",
    )
    every: Positive = Field(
        # Paper: 1.
        4,
        description="steps from one look at the held-out loss to the next; in between the weights stay",
    )
    average: Fraction = Field(
        0.0, description="share of itself that a moving average of the similarities keeps at each look; 0: the newest"
    )
    floor: Fraction = Field(
        # Paper: 0.
        0.1,
        description="smallest weight of an objective, as a share of the one it starts with",
    )
    parameters: Literal["encoder", "body", "last_layers"] = Field(
        # Paper: body, in whose gradients word embeddings weigh much and mean little for the task.
        "encoder",
        description="gradients of what are compared: the body without its embeddings, all of it, or its last layers",
    )
    last_layers: Positive = Field(2, description="of `parameters: last_layers`: how many")
    sample: Positive | None = Field(
        None, description="of many auxiliary objectives, so many run at each step, in turns; unset: as `train.sample`"
    )
    split: Literal["folds", "dev"] = Field(
        # Paper: dev.
        "folds",
        description="held-out task data: a part of train that no objective reads meanwhile, or dev",
    )
    folds: int = Field(10, ge=2, description="parts of train that are held out in turn, each with all of its groups")
    fold_steps: Positive = Field(
        100, description="steps from one part to the next; fewer where else not every part would have its turn"
    )
    fit_batch: Positive = Field(32, description="examples that the separate head is fitted to (paper: 16 or 32)")
    gradient_batch: Positive = Field(32, description="held-out examples that give the gradient")
    head: Literal["closed_form", "adamw"] = Field(
        # Paper: adamw.
        "closed_form",
        description="how the separate head is fitted to the body's features: one regularised Newton step, or as in the "
        "paper by a few steps from random weights",
    )
    ridge: PositiveNumber = Field(
        1.0, description="of closed_form: penalty, in units of the features' mean squared length"
    )
    head_steps: Positive = Field(10, description="of adamw: steps")
    head_learning_rate: PositiveNumber = Field(1e-3, description="of adamw: rate")
    head_weight_decay: float = Field(0.1, ge=0, description="of adamw: decay")
    same_head: bool = Field(
        False, description="no separate head but the task's own, which drives the task's weight to 1 (section 5.4)"
    )

    example_weights: bool = Field(
        False,
        description="texts of masked LM batches count by the product of their gradients with the held-out one, in the "
        "last layer, as it was at the last look",
    )
