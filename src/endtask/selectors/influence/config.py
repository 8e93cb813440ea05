"""Options of the selector `influence`: which small model scores, against which targets, and what is selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator, model_validator

from endtask.config import Settings
from endtask.config.model import check_encoder
from endtask.config.section import PartConfig, Positive, PositiveNumber


@dataclass(frozen=True)
class Recipe:
    """Values in which the ISS authors' code differs from ours, and that no table of the paper varies."""

    batch_size: int  # texts, where the scoring model is fitted
    mask_probability: float  # where the scoring model is fitted, and where texts are scored under a single mask
    masks_targets: bool
    most_targets: int | None  # of more target rows so many are drawn


RECIPES = {
    "default": Recipe(batch_size=32, mask_probability=0.15, masks_targets=False, most_targets=4096),
    "paper": Recipe(batch_size=16, mask_probability=0.1, masks_targets=True, most_targets=None),
}


class InfluenceConfig(PartConfig):
    """Keep the texts whose gradients help the task (ISS)."""

    size: Literal["auto", "tiny", "mini", "compact", "small", "medium", "base", "large"] = Field(
        "auto",
        description="of the scoring model, as in model.size; auto: the largest with a tenth of the weights of the "
        "model to be trained; a given model.path is itself the scoring model",
    )
    architecture: str = Field("lean", description="of the scoring model, as in model.architecture")
    pooling: Literal["cls", "mean"] = Field(
        "cls", description="what its task head reads: of the first token, a target's gradient has a single row"
    )
    seed: int | None = Field(None, ge=0, description="of its random weights, folds and masks; unset: the run's `seed`")
    epochs: Positive = Field(10, description="over the task's train rows, with masked LM and the task together")
    learning_rate: PositiveNumber | Literal["auto"] = Field(
        "auto", description="highest rate of that training; auto: 1e-3 from random weights, 5e-5 from a model.path"
    )
    recipe: Literal["default", "paper"] = Field(
        "default",
        description="small values together; default: fit in batches of 32 with 15% masked, at most 4,096 targets; "
        "paper: batches of 16 with 10% masked, all targets, masked too, as in the ISS authors' code",
    )
    targets: Literal["folds", "dev"] = Field(
        "folds",
        description="whose loss is to fall: of each half of train under the model that was fitted on the other half, "
        "or of dev under one that was fitted on train",
    )
    layers: tuple[str, ...] = Field(
        ("last",),
        min_length=1,
        description="weights whose gradients are compared: last, three_quarters, half, quarter, embedding, "
        "or paths of Linear modules, `*` standing for anything",
    )
    measure: Literal["dot", "cosine"] = Field(
        "cosine", description="how two gradients are compared; the paper's is the dot product"
    )
    candidate_batch: Positive = Field(1, description="candidates whose mean gradient is scored as one (B_p)")
    target_batch: Positive = Field(1, description="targets whose mean gradient counts as one (B_t)")
    masks: Positive = Field(
        2,
        description="masks of each candidate, over which its gradient is averaged: n hide 1/n of its tokens each, so "
        "that all are predicted; 1: a single mask, of as many tokens as in fitting (paper)",
    )
    choice: Literal["budget", "top_k"] = Field(
        "budget",
        description="what is selected; budget: the highest mean of the ten best scores; top_k: the best k of each "
        "target, together, with the k that fills select.budget (paper)",
    )
    per_class: bool = Field(False, description="divide the budget among the classes, each taking in turn")
    share_of_budget: float | None = Field(
        0.1,
        gt=0,
        description="the most that scoring may cost, as a share of the training budget: beyond it only the best-ranked "
        "candidates are scored; null: no limit",
    )

    @property
    def recipe_values(self) -> Recipe:
        """The values that `recipe` stands for."""
        return RECIPES[self.recipe]

    @property
    def score_mask_probability(self) -> float:
        """The share of a candidate's tokens that each of its masks hides.

        >>> InfluenceConfig().score_mask_probability, InfluenceConfig(masks=1).score_mask_probability
        (0.5, 0.15)
        """
        return self.recipe_values.mask_probability if self.masks == 1 else 1 / self.masks

    @field_validator("layers", mode="before")
    @classmethod
    def layers_are_a_list(cls, layers: object) -> object:
        if isinstance(layers, str):
            raise ValueError(f"give a list of layers, such as [{layers}]")
        return layers

    @model_validator(mode="after")
    def pooling_fits(self) -> InfluenceConfig:
        check_encoder(self.architecture, pooling=self.pooling)
        return self


def influence_config(settings: Settings) -> InfluenceConfig:
    """Return the options of `influence` in a run, where it may be a member of `fusion`; else the defaults."""
    parts = settings.select.part.parts()
    return next((part.config for part in parts if isinstance(part.config, InfluenceConfig)), InfluenceConfig())
