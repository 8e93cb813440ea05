"""The options of influence selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator

from endtask.config import Settings
from endtask.config.section import MOST, PartConfig, Positive, PositiveNumber


@dataclass(frozen=True)
class Recipe:
    """Values in which endtask differs from the ISS authors' code, and that no table of the paper varies."""

    batch_size: int  # texts, in fitting
    mask_probability: float  # in fitting, and in scoring under a single mask
    masks_targets: bool
    most_targets: int | None  # a sample of this size replaces more target rows


RECIPES = {
    "default": Recipe(batch_size=32, mask_probability=0.15, masks_targets=False, most_targets=4096),
    "paper": Recipe(batch_size=16, mask_probability=0.1, masks_targets=True, most_targets=None),
}


class InfluenceConfig(PartConfig):
    """Options of `influence`: the scoring model, its targets, and the choice by scores."""

    size: Literal["auto", "tiny", "mini", "compact", "small", "medium", "base", "large"] = Field(
        "auto",
        description="size of the scoring model, which has model.architecture; auto: the largest with at most a tenth "
        "of the weights of the trained model; with model.path the scoring model starts from that checkpoint",
    )
    model: str | None = Field(
        None,
        description="checkpoint that the scoring models start from (a folder, `package:NAME` or `hf:NAME`), with its "
        "own tokenizer; unset: model.path, or random weights",
    )
    first_round_steps: int = Field(
        0,
        ge=0,
        le=MOST,
        description="steps of masked LM, in the batches of `pretrain`, on the best-ranked candidates that fill "
        "select.budget, before the scoring models are fitted (two rounds); 0: none",
    )
    scoring_seed: Literal["run", "pretrain"] = Field(
        "run",
        description="seed of the scoring models; pretrain: that of pre-training, so that a comparison over seeds also "
        "varies the selection",
    )
    uninformed: Literal["error", "warn"] = Field(
        "error",
        description="what happens if a scoring model is no better than the commonest answer on rows that it was not "
        "fitted on",
    )
    epochs: Positive = Field(
        10, description="epochs of fitting the scoring model on the train rows, with masked LM and the task together"
    )
    learning_rate: PositiveNumber | Literal["auto"] = Field(
        "auto",
        description="learning rate of fitting; auto: 1e-3 from random weights, 5e-4 after a first round, 5e-5 from a "
        "checkpoint as wide as BERT-base (768), and (768 / width)² times that, at most 1e-3, from a narrower one",
    )
    recipe: Literal["default", "paper"] = Field(
        "default",
        description="default: fitting in batches of 32 with 15% masked, at most 4,096 targets; paper: batches of 16 "
        "with 10% masked, all targets, masked too, as in the ISS authors' code",
    )
    targets: Literal["folds", "dev"] = Field(
        "folds",
        description="the rows whose loss should fall; folds: each half of train under a model fitted on the other "
        "half; dev: dev under a model fitted on train",
    )
    layers: tuple[str, ...] = Field(
        ("last",),
        min_length=1,
        description="weights whose gradients are compared: last, three_quarters, half, quarter, embedding, "
        "or paths of Linear modules with `*` for any text",
    )
    measure: Literal["dot", "cosine"] = Field(
        "cosine", description="similarity of two gradients; the paper takes the dot product"
    )
    candidate_batch: Positive = Field(
        1, description="number of neighboring candidates scored by their mean gradient (B_p)"
    )
    target_batch: Positive = Field(1, description="number of targets compared by their mean gradient (B_t)")
    masks: Positive = Field(
        2,
        description="number of masks over which a candidate's gradient is averaged: each of n masks hides 1/n of its "
        "tokens, so that all are predicted; 1: a single mask with the share of fitting (paper)",
    )
    choice: Literal["budget", "top_k"] = Field(
        "budget",
        description="budget: select the highest means of the ten best scores; top_k: select the union of the best k of "
        "each target, with the k that fills select.budget (paper)",
    )
    share_of_budget: float | None = Field(
        0.1,
        gt=0,
        description="limit of fitting and scoring, as a share of the training budget; if all candidates would exceed "
        "it, only the best-ranked are scored; null: no limit",
    )

    @property
    def recipe_values(self) -> Recipe:
        """The values of `recipe`."""
        return RECIPES[self.recipe]

    @property
    def score_mask_probability(self) -> float:
        """The share of a candidate's tokens that each mask hides.

        >>> InfluenceConfig().score_mask_probability, InfluenceConfig(masks=1).score_mask_probability
        (0.5, 0.15)
        """
        return self.recipe_values.mask_probability if self.masks == 1 else 1 / self.masks

    def starts_from(self, settings: Settings) -> str | None:
        """Return the checkpoint that the scoring models start from; None for random weights."""
        return self.model or settings.model.path

    def seed(self, settings: Settings) -> int:
        """Return the seed of the scoring models."""
        return settings.pretrain_seed if self.scoring_seed == "pretrain" else settings.seed

    @field_validator("layers", mode="before")
    @classmethod
    def layers_are_a_list(cls, layers: object) -> object:
        if isinstance(layers, str):
            raise ValueError(f"give a list of layers, such as [{layers}]")
        return layers


def influence_config(settings: Settings) -> InfluenceConfig:
    """Return the options of `influence` in a run, also as a member of `fusion`; the defaults if it is not used."""
    parts = settings.select.part.parts()
    return next((part.config for part in parts if isinstance(part.config, InfluenceConfig)), InfluenceConfig())
