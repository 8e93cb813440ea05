"""Settings of both training stages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from endtask.config.budget import BatchSize
from endtask.config.meta import MetaSettings
from endtask.config.objectives import (
    CORPUS_OBJECTIVE,
    TASK_OBJECTIVE,
    Objectives,
    ObjectiveSettings,
    check_names,
    tlm_objectives,
)
from endtask.config.reselect import ReselectSettings
from endtask.config.section import Fraction, Positive, PositiveNumber, Section, infinity_in_words


class PhaseSettings(Section):
    """What both training stages can be told."""

    head_learning_rate: PositiveNumber | None = Field(
        None, description="highest rate of the heads, but for that of masked LM; unset: that of the encoder"
    )
    weight_decay: float = Field(0.01, ge=0, description="of matrices; norms and biases have none")
    adam_beta1: Fraction = Field(0.9, description="memory of AdamW's mean gradient")
    adam_beta2: Fraction = Field(0.98, description="memory of AdamW's mean square")
    adam_epsilon: PositiveNumber = Field(1e-6, description="keeps AdamW from dividing by zero")
    lr_scheduler_type: Literal["linear", "cosine", "constant", "warmup_stable_decay"] = Field(
        "linear",
        description="how the rate falls after the warm-up, to zero at the last step; "
        "warmup_stable_decay: not before the last fifth of the steps, then linearly",
    )
    warmup_fraction: Fraction = Field(0.1, description="share of the steps in which the rate rises from 0")
    warmup_steps: int | None = Field(None, ge=0, description="the same as a number of steps; unset: by the share")
    max_grad_norm: PositiveNumber | None = Field(
        1.0, description="longer gradients are scaled down to this norm; null: never"
    )
    eval_steps: Positive | None = Field(None, description="score dev every so many steps")
    early_stopping_patience: Positive | None = Field(
        None, description="stop after so many scores without a better one; unset: never"
    )
    checkpoint_steps: Positive = Field(500, description="a killed run loses at most this many steps")


class PretrainSettings(PhaseSettings):
    """Pre-training: masked language modelling on the selection, jointly with the task (TLM), or other `objectives`."""

    objectives: dict[str, ObjectiveSettings] = Field(
        {}, description="what is learned, by names of your own; empty: `corpus` and `task` (TLM)"
    )
    weighting: Literal["interleave", "equal", "meta", "alternate", "sequence"] = Field(
        "interleave",
        description="interleave: `rho1` corpus batches, then an internal one (TLM); equal: all objectives at each "
        "step, by their weights (MT-TARTAN); meta: the same with learned weights (META-TARTAN); alternate: one "
        "objective per step, in turn; sequence: one objective after the other, each with a schedule of its own (DAPT, "
        "then TAPT)",
    )
    seed: int | None = Field(
        None, ge=0, description="of pre-training's random weights, order of texts and masks; unset: the run's `seed`"
    )
    learning_rate: PositiveNumber = Field(1e-3, description="highest rate, reached after the warm-up")
    head_weight_decay: float | None = Field(
        None, ge=0, description="of the matrices of the heads that head_learning_rate is for; unset: the same"
    )
    clip_heads_apart: bool = Field(
        False,
        description="encoder and these heads are clipped each by the norm of their own gradients, as in TARTAN's code; "
        "with `weighting: meta` all heads always are",
    )
    batch_size: BatchSize = Field(BatchSize.parse("4096tok"), description="texts (32) or tokens (4096tok) in a batch")
    task_batch_size: BatchSize | None = Field(None, description="of task batches; unset: the same")
    gradient_accumulation_steps: Positive = Field(1, description="batches that make up one step")
    batch_ramp_fraction: Fraction = Field(
        0.0, description="share of the steps in which the batches per step grow from 1 to all"
    )
    max_length: int = Field(128, ge=8, description="tokens per text; longer passages are cut into several")
    task_max_length: int | None = Field(None, ge=8, description="of task texts; unset: the same")
    truncate_passages: bool = Field(
        False, description="drop the tail of a long passage, as the authors' code does, instead of cutting it up"
    )
    mask_probability: float = Field(
        0.15, gt=0, lt=1, description="share of tokens to be guessed: 80% become [MASK], 10% a random token"
    )
    mask_rare_exponent: float = Field(
        0.0, ge=0, description="alpha: tokens are masked in proportion to count^-alpha; 0: all alike"
    )
    rho1: Annotated[int | Literal["inf", "auto"], BeforeValidator(infinity_in_words)] = Field(
        19,
        description="corpus batches per task batch; inf: never a task batch; auto: by the task's size",
    )
    rho1_end: int | None = Field(
        None,
        ge=0,
        description="the rho1 of the last step: the share of task batches changes linearly on the way; unset: never",
    )
    rho2: float = Field(20.0, ge=0, description="weight of masked LM against the task loss in task batches")
    task_head: Literal["stock", "tlm"] = Field(
        "stock", description="pre-training's head: that of the saved model, or the authors' own (dense, GELU, dense)"
    )
    update_unused_heads: bool = Field(
        False,
        description="momentum and decay go on moving the task head between its batches, as in the authors' code",
    )
    dropout: Fraction = Field(0.0, description="dropout during pre-training; little text is seen twice")
    meta: MetaSettings = Field(MetaSettings(), description="how `weighting: meta` learns its weights")
    reselect: ReselectSettings = Field(
        ReselectSettings(), description="which texts of the selection are read, decided anew on the way"
    )

    @model_validator(mode="after")
    def mix_fits(self) -> PretrainSettings:
        if isinstance(self.rho1, int) and self.rho1 < 0:
            raise ValueError(f"rho1 must be 0 or more, got {self.rho1}")
        if self.rho1 == "inf" and self.rho1_end is not None:
            raise ValueError("rho1_end needs a rho1 to start from; with rho1: inf there are no task batches")
        if self.early_stopping_patience is not None and self.eval_steps is None:
            raise ValueError("early_stopping_patience needs eval_steps: pre-training scores dev only if asked to")
        return self

    @model_validator(mode="after")
    def objectives_fit(self) -> PretrainSettings:
        check_names(self.objectives, "objectives")
        used = self.used_objectives
        if not used:
            raise ValueError("objectives: all have the weight 0, which leaves nothing to learn")
        if self.weighting == "interleave" and not used.keys() <= {CORPUS_OBJECTIVE, TASK_OBJECTIVE}:
            raise ValueError(
                f"weighting: interleave takes turns between {CORPUS_OBJECTIVE} and {TASK_OBJECTIVE}, "
                f"not {', '.join(used)}; use equal, meta, alternate or sequence"
            )
        if self.weighting == "interleave" and self.rho1 == "inf" and TASK_OBJECTIVE in used:
            raise ValueError(
                f"rho1: inf leaves no turn for objectives.{TASK_OBJECTIVE}; give it the weight 0, or say rho1"
            )
        for name, one in used.items() if self.weighting != "sequence" else ():
            for key in ("learning_rate", "warmup_fraction"):
                if getattr(one, key) is not None:
                    raise ValueError(f"objectives.{name}.{key}: only objectives of a sequence have their own")
        if self.weighting == "interleave" and (own := [n for n, one in used.items() if one.weight != 1]):
            raise ValueError(f"objectives.{own[0]}.weight: interleave goes by rho1 and rho2; leave it out, or 0")
        if self.weighting == "meta" and not any(one.sees_labels for one in used.values()):
            raise ValueError(self._without_task("weighting: meta learns for the task"))
        if self.weighting == "meta" and len(used) == 1:
            raise ValueError(
                f"weighting: meta has nothing to weigh, {next(iter(used))} is alone; add an objective, or use equal"
            )
        return self

    @model_validator(mode="after")
    def reselection_fits(self) -> PretrainSettings:
        if self.reselect.every is None:
            return self
        used = self.used_objectives.values()
        if not any(one.kind == "mlm" and one.reads == "selection" for one in used):
            raise ValueError("reselect.every: there is no masked LM on the selection, whose texts could be chosen anew")
        if not any(one.sees_labels for one in used):
            raise ValueError(self._without_task("reselect.every: texts are chosen for the task"))
        if self.weighting == "sequence":
            raise ValueError(
                "reselect.every: in a sequence the task is not learned beside the selection; use alternate"
            )
        return self

    @property
    def used_objectives(self) -> Objectives:
        """The objectives given, but for those of weight 0, or TLM's two; `Settings.used_objectives` knows the tasks."""
        if not self.objectives:
            return tlm_objectives(with_task=self.rho1 != "inf")
        return {name: one for name, one in self.objectives.items() if one.weight > 0}

    def _without_task(self, why: str) -> str:
        """The line where no objective that is used sees the labels, though it must: one may be there with weight 0."""
        left_out = next((name for name, one in self.objectives.items() if one.sees_labels), None)
        if left_out is None:
            return f"{why}; name an objective of kind task or joint"
        return f"objectives.{left_out}.weight: 0 leaves this objective out, but {why}; give it more than 0"

    @property
    def trains_task(self) -> bool:
        """Whether the task head learns in pre-training, and with what is learned last."""
        used = list(self.used_objectives.values())
        return any(one.sees_labels for one in (used[-1:] if self.weighting == "sequence" else used))

    @property
    def weighs_by_folds(self) -> bool:
        """Whether weights are learned, and parts of train judge them in turn."""
        return self.weighting == "meta" and self.meta.split == "folds"

    def reads(self, texts: str) -> bool:
        """Whether some objective reads the texts of this kind."""
        return any(one.reads == texts for one in self.used_objectives.values())


class FinetuneSettings(PhaseSettings):
    """Fine-tuning: plain fine-tuning from pre-training's weights with a new head, once per seed."""

    learning_rate: PositiveNumber | Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] = Field(
        3e-4, description="highest rate; of several, the best on dev is kept"
    )
    batch_size: BatchSize = Field(BatchSize.parse("32"), description="texts (32) or tokens (4096tok) in a batch")
    max_length: int = Field(128, ge=8, description="tokens per text; the rest is cut off, or read by windows")
    window_stride: int | None = Field(
        None, ge=1, description="read long texts by windows that start so many tokens apart; unset: cut them off"
    )
    rdrop: float = Field(
        0.0,
        ge=0,
        description="weight of R-Drop: each batch is read twice, and answers that differ by dropout cost this much",
    )
    average_decay: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="score and save an exponential moving average of the weights, which keeps this share of itself at "
        "each step (0.999); unset: the weights themselves",
    )
    epochs: Positive = Field(10, description="at most; a budget may allow fewer")
    members: Positive = Field(
        1,
        description="fine-tune so many times from the same head in other orders, and take the mean of their weights "
        "(a model soup) as the model of a seed",
    )
    max_steps: Positive | None = Field(None, description="steps instead of epochs")
    start_from: Literal["last", "best"] = Field(
        "last", description="which of pre-training's weights; best on dev needs pretrain.eval_steps"
    )
    reset_head: bool = Field(True, description="start with a new task head, as the authors' code does")
    keep_better: bool = Field(
        False, description="keep pre-training's model where fine-tuning has none better on dev; needs reset_head: false"
    )
    tasks: Literal["main", "all"] = Field(
        "main",
        description="all: the auxiliary `tasks` too, batches in turn, every task as often as it has batches; "
        "each is then scored and saved",
    )
    budget_share: Fraction = Field(0.25, description="part of the run's budget for all fine-tuning seeds together")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="one fine-tuning run for each")

    @model_validator(mode="after")
    def better_than_something(self) -> FinetuneSettings:
        if self.keep_better and self.reset_head:
            raise ValueError("keep_better compares with pre-training's head; set reset_head: false with it")
        if self.keep_better and self.members > 1:
            raise ValueError(
                "members: the mean of several is not compared with pre-training; set keep_better: false with it"
            )
        return self

    @model_validator(mode="after")
    def windows_meet(self) -> FinetuneSettings:
        if self.window_stride is not None and self.window_stride > self.max_length - 2:
            raise ValueError(
                f"window_stride {self.window_stride} would skip tokens between windows of {self.max_length - 2} "
                "(max_length without its special tokens)"
            )
        return self

    @field_validator("seeds")
    @classmethod
    def seeds_differ(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if twice:
            raise ValueError(f"the seed {twice[0]} stands twice, which would pass for two runs")
        return seeds

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The rates to try."""
        return self.learning_rate if isinstance(self.learning_rate, tuple) else (self.learning_rate,)
