"""The options of influence selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator

from endtask.config import Settings
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
    """Options of `influence`: which small model scores, against which targets, and what is selected."""

    size: Literal["auto", "tiny", "mini", "compact", "small", "medium", "base", "large"] = Field(
        "auto",
        description="of the scoring model, which has model.architecture; auto: the largest with at most a tenth of the "
        "weights of the model to be trained; a given model.path is itself the scoring model",
    )
    epochs: Positive = Field(10, description="of fitting it on the train rows, with masked LM and the task together")
    learning_rate: PositiveNumber | Literal["auto"] = Field(
        "auto", description="of fitting; auto: 1e-3 from random weights, 5e-5 from a model.path"
    )
    recipe: Literal["default", "paper"] = Field(
        "default",
        description="default: fitting in batches of 32 with 15% masked, at most 4,096 targets; paper: batches of 16 "
        "with 10% masked, all targets, masked too, as in the ISS authors' code",
    )
    targets: Literal["folds", "dev"] = Field(
        "folds",
        description="the rows whose loss should fall; folds: each half of train under the model that was fitted on the "
        "other half; dev: dev under a model that was fitted on train",
    )
    layers: tuple[str, ...] = Field(
        ("last",),
        min_length=1,
        description="weights whose gradients are compared: last, three_quarters, half, quarter, embedding, "
        "or paths of Linear modules, `*` standing for anything",
    )
    measure: Literal["dot", "cosine"] = Field("cosine", description="of two gradients; the paper takes the dot product")
    candidate_batch: Positive = Field(1, description="neighboring candidates scored by their mean gradient (B_p)")
    target_batch: Positive = Field(1, description="targets compared by their mean gradient (B_t)")
    masks: Positive = Field(
        2,
        description="masks over which a candidate's gradient is averaged: n masks hide 1/n of its tokens each, so that "
        "all are predicted; 1: a single mask with the share of fitting (paper)",
    )
    choice: Literal["budget", "top_k"] = Field(
        "budget",
        description="budget: the highest mean of the ten best scores; top_k: the union of the best k of each target, "
        "with the k that fills select.budget (paper)",
    )
    share_of_budget: float | None = Field(
        0.1,
        gt=0,
        description="the limit of fitting and scoring, as a share of the training budget: beyond it only the "
        "best-ranked candidates are scored; null: no limit",
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


def influence_config(settings: Settings) -> InfluenceConfig:
    """Return the options of `influence` in a run, where it may be a member of `fusion`; else the defaults."""
    parts = settings.select.part.parts()
    return next((part.config for part in parts if isinstance(part.config, InfluenceConfig)), InfluenceConfig())
