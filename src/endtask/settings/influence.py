"""Settings of the selector `influence`: which small model scores, against which targets, and what is kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from endtask.settings.budget import BatchSize
from endtask.settings.section import Fraction, Positive, PositiveNumber, Section


class InfluenceSettings(Section):
    """Keep the texts whose gradients help the task (ISS)."""

    size: Literal["auto", "tiny", "mini", "compact", "small", "medium", "base", "large"] = Field(
        "auto",
        description="of the scoring model, as in model.size; auto: the largest with a tenth of the weights of the "
        "model to be trained; a given model.path is itself the scoring model",
    )
    architecture: Literal["lean", "bert", "roberta", "modernbert"] = Field(
        "lean", description="of the scoring model, as in model.architecture"
    )
    pooling: Literal["cls", "mean"] = Field(
        "cls", description="what its task head reads: of the first token, a target's gradient has a single row"
    )
    seed: int | None = Field(None, ge=0, description="of its random weights, folds and masks; unset: the run's `seed`")
    epochs: Positive = Field(10, description="over the task's train rows, with masked LM and the task together")
    rho1: int = Field(
        0, ge=0, description="batches of candidates, masked LM, for each of the task in that training; 0: none (paper)"
    )
    learning_rate: PositiveNumber | Literal["auto"] = Field(
        "auto", description="highest rate of that training; auto: 1e-3 from random weights, 5e-5 from a model.path"
    )
    batch_size: BatchSize = Field(BatchSize.parse("32"), description="texts (32) or tokens (4096tok) in its batches")
    mlm_weight: PositiveNumber = Field(3.0, description="weight of masked LM against the task loss in that training")
    dropout: Fraction = Field(0.1, description="dropout in that training; off when texts are scored")
    mask_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens to be guessed in that training")
    score_mask_probability: float | None = Field(
        0.5, gt=0, lt=1, description="the same where candidates are scored; null: mask_probability (paper)"
    )
    max_length: int = Field(128, ge=8, description="tokens of a text that are read")
    whole_passages: bool = Field(
        False, description="read long candidates piece by piece to their end; false: their first `max_length` tokens"
    )
    targets: Literal["folds", "dev"] = Field(
        "folds",
        description="whose loss is to fall: of each half of train under the model that was fitted on the other half, "
        "or of dev under one that was fitted on train",
    )
    most_targets: Positive | None = Field(4096, description="draw so many of more target rows; null: take all")
    layers: tuple[str, ...] = Field(
        ("last",),
        min_length=1,
        description="weights whose gradients are compared: last, three_quarters, half, quarter, embedding, "
        "or paths of Linear modules, `*` standing for anything",
    )
    measure: Literal["dot", "cosine"] = Field(
        "cosine", description="how two gradients are compared; the paper's is the dot product"
    )
    rank: Positive | None = Field(
        None, description="keep each target's gradient as so few rows, where that is cheaper; unset: exact"
    )
    candidate_batch: Positive = Field(1, description="candidates whose mean gradient is scored as one (B_p)")
    target_batch: Positive = Field(1, description="targets whose mean gradient counts as one (B_t)")
    masks: Positive = Field(
        2,
        description="masks of each candidate, over which its gradient is averaged; none hides what another has, "
        "before each token was hidden once",
    )
    mask_targets: bool = Field(False, description="read targets masked too, as the authors' code does")
    checkpoints: Positive = Field(1, description="weights from along its training, over which scores are averaged")
    choice: Literal["budget", "top_k", "greedy"] = Field(
        "budget",
        description="what is kept; budget: the highest mean of `top_targets` best scores; top_k: the best `top_k` "
        "of each target, together (paper); greedy: what together comes closest to the targets' mean gradients",
    )
    top_targets: Positive = Field(10, description="for `budget`: how many of a candidate's best scores are averaged")
    top_k: Positive | None = Field(
        None, description="for `top_k`: candidates per target; unset: as many as fill select.budget"
    )
    greedy_size: Positive = Field(512, description="for `greedy`: numbers to which each gradient is projected")
    share_of_budget: float | None = Field(
        0.1,
        gt=0,
        description="the most that scoring may cost, as a share of the training budget: beyond it only the best-ranked "
        "candidates are scored; null: no limit",
    )

    @field_validator("layers", mode="before")
    @classmethod
    def layers_are_a_list(cls, layers: object) -> object:
        if isinstance(layers, str):
            raise ValueError(f"give a list of layers, such as [{layers}]")
        return layers

    @model_validator(mode="after")
    def choices_fit(self) -> InfluenceSettings:
        if self.top_k is not None and self.choice != "top_k":
            raise ValueError(f"top_k: {self.top_k} goes with choice: top_k; the choice is {self.choice}")
        if self.pooling == "mean" and self.architecture in ("bert", "roberta"):
            raise ValueError(f"pooling: mean: the stock head of {self.architecture} reads the first token")
        if self.batch_size.unit == "tokens" and self.batch_size.amount < 2 * self.max_length:
            raise ValueError(f"batch_size {self.batch_size} is less than two texts of {self.max_length} tokens")
        return self
