"""Settings of both training stages."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from endtask.config.budget import BatchSize
from endtask.config.objectives import (
    CORPUS_OBJECTIVE,
    TASK_OBJECTIVE,
    Objectives,
    ObjectiveSettings,
    check_names,
    is_tlm,
    tlm_objectives,
    with_tlm_kinds,
)
from endtask.config.section import LARGEST, Fraction, PartSection, Positive, PositiveNumber, Section, Seed, Warmup
from endtask.registry import Registry, objectives, weightings

TextLength = Annotated[int, Field(ge=8, le=LARGEST["max_position_embeddings"])]
"""In tokens."""


class WeightingSettings(PartSection):
    """Which objectives train at a step and how much each counts: a weighting and its options."""

    registry: ClassVar[Registry[Any]] = weightings

    name: str = Field("interleave", description="the weighting")


class PhaseSettings(Section):
    """Settings of a training phase."""

    head_learning_rate: PositiveNumber | None = Field(
        None, description="peak learning rate of the heads except masked LM's; unset: learning_rate"
    )
    weight_decay: float = Field(0.01, ge=0, description="weight decay of matrices; norms and biases have none")
    adam_beta2: Fraction = Field(0.98, description="decay of AdamW's mean squared gradient")
    lr_scheduler_type: Literal["linear", "cosine", "constant", "warmup_stable_decay"] = Field(
        "linear",
        description="how the learning rate falls after the warm-up, to zero at the last step; "
        "warmup_stable_decay: not before the last fifth of the steps, then linearly",
    )
    warmup_steps: Warmup = Field(
        0.1, description="steps in which the learning rate rises from 0; below 1: as a share of all steps"
    )
    max_grad_norm: PositiveNumber | None = Field(
        1.0, description="longer gradients are scaled down to this norm; null: never"
    )
    eval_steps: Positive | None = Field(None, description="score dev every so many steps")
    early_stopping_patience: Positive | None = Field(
        None, description="stop after so many scores without a better one; unset: never"
    )
    checkpoint_steps: Positive = Field(500, description="a killed run loses at most this many steps")


RESELECTION_FOLDS = 10
"""Parts of train that are held out in turn and score the texts, unless `weighting: meta` has parts of its own."""


class ReselectSettings(Section):
    """Re-selection: every so many steps, choose the texts that now help the task most (beyond the papers)."""

    every: Positive | None = Field(
        None, description="steps from one re-selection to the next, the first after so many; unset: never"
    )
    reservoir: Positive | None = Field(
        4096, description="texts of the selection that are drawn and scored at each re-selection; null: all"
    )
    keep: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of the scored texts that is read until the next re-selection, the highest scores first",
    )


class PretrainSettings(PhaseSettings):
    """Pre-training: masked language modelling on the selection, jointly with the task (TLM), or other `objectives`."""

    objectives: SerializeAsAny[dict[str, ObjectiveSettings]] = Field(
        default_factory=tlm_objectives, description="what is learned, by names of your own; by default TLM's two"
    )
    weighting: SerializeAsAny[WeightingSettings] = Field(
        default_factory=WeightingSettings, description="which objectives train at a step, and with which weights"
    )
    seed: Seed | None = Field(
        None, description="of pre-training's random weights, order of texts and masks; unset: the run's `seed`"
    )
    learning_rate: PositiveNumber = Field(1e-3, description="peak learning rate, after the warm-up")
    head_weight_decay: float | None = Field(
        None, ge=0, description="weight decay of the heads that head_learning_rate is for; unset: weight_decay"
    )
    clip_heads_apart: bool = Field(
        False,
        description="encoder and these heads are clipped each by the norm of their own gradients, as in TARTAN's code; "
        "with `weighting: meta` all heads always are",
    )
    batch_size: BatchSize = Field(BatchSize.parse("4096tok"), description="texts (32) or tokens (4096tok) in a batch")
    gradient_accumulation_steps: int = Field(1, gt=0, le=1024, description="batches that make up one step")
    batch_ramp_fraction: Fraction = Field(
        0.0, description="share of the steps in which the batches per step grow from 1 to all"
    )
    max_length: TextLength = Field(128, description="tokens per text; longer passages are cut into several")
    task_max_length: TextLength | None = Field(None, description="of task texts; unset: the same")
    truncate_passages: bool = Field(
        False, description="drop the tail of a long passage, as the authors' code does, instead of cutting it up"
    )
    mask_probability: float = Field(
        0.15, gt=0, lt=1, description="share of tokens to predict: 80% become [MASK], 10% a random token"
    )
    mask_rare_exponent: float = Field(
        0.0, ge=0, description="alpha: tokens are masked in proportion to count^-alpha; 0: all alike"
    )
    task_head: Literal["stock", "tlm"] = Field(
        "stock",
        description="pre-training's head: that of the saved model; or dense, GELU, dense as in the TLM authors' code, "
        "which momentum and weight decay move between its batches too",
    )
    dropout: Fraction = Field(0.0, description="dropout during pre-training; little text is seen twice")
    reselect: ReselectSettings = Field(
        ReselectSettings(), description="repeated choice of the texts of the selection during pre-training"
    )

    @field_validator("objectives", mode="before")
    @classmethod
    def tlm_kinds(cls, value: Any) -> Any:
        return with_tlm_kinds(value)

    @model_validator(mode="after")
    def objectives_fit(self) -> PretrainSettings:
        check_names(self.objectives, "objectives")
        if self.early_stopping_patience is not None and self.eval_steps is None:
            raise ValueError("early_stopping_patience needs eval_steps: pre-training then scores dev on the way")
        used = self.used_objectives
        if not used:
            raise ValueError("objectives: all have the weight 0, which leaves nothing to learn")
        weighting = self.weighting.part
        if weighting.needs_task and not self.trains_task:
            raise ValueError(self._without_task(f"weighting: {self.weighting.name} needs the task's labels"))
        weighting.check_objectives(used)
        for name, item in used.items() if not weighting.sequential else ():
            for key in ("learning_rate", "warmup_steps"):
                if getattr(item, key) is not None:
                    raise ValueError(f"objectives.{name}.{key}: only objectives of a sequence have their own")
        return self

    @model_validator(mode="after")
    def reselection_fits(self) -> PretrainSettings:
        if self.reselect.every is None:
            return self
        used = self.used_objectives.values()
        if not any(item.part_class.reselectable and item.reads == "selection" for item in used):
            raise ValueError("reselect.every: no masked LM reads the selection, so there are no texts to choose")
        if not any(item.sees_labels for item in used):
            raise ValueError(self._without_task("reselect.every: texts are chosen for the task"))
        if self.weighting.part.sequential:
            raise ValueError("reselect.every: a sequence does not learn the task and the selection together")
        return self

    @property
    def skips_objectives_without_text(self) -> bool:
        """Whether these are TLM's two objectives, whatever their options; others must have text to read."""
        return is_tlm(self.objectives)

    @property
    def used_objectives(self) -> Objectives:
        """The objectives with a weight above 0 that the weighting trains; `Settings.used_objectives` adds the tasks."""
        weighted = {name: objective for name, objective in self.objectives.items() if objective.weight > 0}
        return {name: weighted[name] for name in self.weighting.part.trained(tuple(weighted))}

    def objectives_with_tasks(self, tasks: Collection[str], *, has_selection: bool) -> Objectives:
        """Return the used objectives, and where they are TLM's two, an objective for each auxiliary task as well.

        A weighting for TLM's two alone, such as `interleave`, leaves the tasks to fine-tuning.
        """
        used, weighting = self.used_objectives, self.weighting.part
        if not tasks or not is_tlm(self.objectives) or weighting.tlm_only:
            return used
        if not has_selection:
            used.pop(CORPUS_OBJECTIVE, None)
        auxiliary = {name: ObjectiveSettings(kind="task", task=name) for name in tasks}
        if weighting.sequential and TASK_OBJECTIVE in used:
            # The end task comes last: its head has to fit the last weights.
            auxiliary[TASK_OBJECTIVE] = used.pop(TASK_OBJECTIVE)
        return {**used, **auxiliary}

    def _without_task(self, why: str) -> str:
        """Return the message for settings that need an objective with the task's labels; one may have the weight 0."""
        not_used = next((name for name, item in self.objectives.items() if item.sees_labels and not item.weight), None)
        if not_used is None:
            return f"{why}; name an objective of kind task or joint"
        return f"objectives.{not_used}.weight: 0 leaves this objective out, but {why}; give it more than 0"

    @property
    def trains_task(self) -> bool:
        """Whether the objectives that pre-training trains last include one for the task head."""
        used = self.used_objectives
        return any(used[name].sees_labels for name in self.weighting.part.trained_last(tuple(used)))

    def reads(self, texts: str) -> bool:
        """Whether some objective reads these texts."""
        return any(item.reads == texts for item in self.used_objectives.values())


_FinetuningLoss: Any = objectives.get("task").finetuning


class FinetuneSettings(PhaseSettings, _FinetuningLoss):  # type: ignore[misc]
    """Fine-tuning: plain fine-tuning from pre-training's weights with a new head, once per seed."""

    learning_rate: PositiveNumber | Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] = Field(
        3e-4, description="peak learning rate; of several, the one that is best on dev"
    )
    batch_size: BatchSize = Field(BatchSize.parse("32"), description="texts (32) or tokens (4096tok) in a batch")
    max_length: TextLength = Field(128, description="tokens per text; the rest is cut off, or read by windows")
    window_stride: Positive | None = Field(
        None, description="read long texts by windows that start so many tokens apart; unset: cut them off"
    )
    epochs: Positive = Field(10, description="at most; a budget may allow fewer")
    max_steps: Positive | None = Field(None, description="steps instead of epochs")
    start_from: Literal["last", "best"] = Field(
        "last", description="which of pre-training's weights; best on dev needs pretrain.eval_steps"
    )
    head: Literal["new", "pretrained", "aligned"] = Field(
        "new",
        description="the first weights of the task head: new, as in the authors' code; those of pre-training's task "
        "head; or those of the first aligned objective with the task's classes, matched by their names",
    )
    keep_better: bool = Field(
        False,
        description="keep pre-training's model where fine-tuning has none better on dev; needs head: pretrained",
    )
    tasks: Literal["main", "all"] = Field(
        "main",
        description="all: the auxiliary `tasks` too, in alternating batches, every task as often as it has batches; "
        "each is then scored and saved",
    )
    budget_share: Fraction | Literal["auto"] = Field(
        "auto",
        description="share of the run's budget for all fine-tuning seeds together; auto: what all their epochs need, "
        "at most three quarters; pre-training gets the rest, or nothing where a checkpoint's epochs need nine tenths",
    )
    seeds: tuple[Seed, ...] = Field((0, 1, 2), min_length=1, description="one fine-tuning run for each")
    fallback: Literal["none", "tfidf"] = Field(
        "none", description="tfidf: save the linear model over TF-IDF instead where it scores higher on dev"
    )

    @model_validator(mode="after")
    def better_than_something(self) -> FinetuneSettings:
        if self.keep_better and self.head != "pretrained":
            raise ValueError("keep_better compares with pre-training's head; set head: pretrained with it")
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
            raise ValueError(f"the seed {twice[0]} is given twice and would count as two runs")
        return seeds

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The rates to try."""
        return self.learning_rate if isinstance(self.learning_rate, tuple) else (self.learning_rate,)
