"""The typed settings of a run: every key, its default and its meaning, in the order of the stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from endtask.config.aligned import AlignedSettings
from endtask.config.budget import Budget, SizeBudget
from endtask.config.cluster import ClusterSettings
from endtask.config.data import CorpusSettings, DomainSettings, RetrieveSettings, TaskSettings
from endtask.config.model import ModelSettings, TokenizerSettings
from endtask.config.objectives import Objectives, check_tasks
from endtask.config.section import PartSection, Section, Seed, non_defaults
from endtask.config.training import FinetuneSettings, PretrainSettings
from endtask.io.home import LocalPath
from endtask.registry import Registry, metrics, selectors


class SelectSettings(PartSection):
    """Which of the retrieved passages are trained on: a selector, its options, and how much it may select."""

    registry: ClassVar[Registry[Any]] = selectors

    name: str = Field("best_rank", description="the selector")
    budget: SizeBudget | None = Field(
        SizeBudget.parse("5%, at least 20MB"),
        description="300MB, 50000passages, 5% of the corpus (with a minimum: `5%, at least 20MB`) or 20%retrieved, of "
        "what was retrieved; null: no limit",
    )


class EvaluateSettings(PartSection):
    """How predictions are scored."""

    registry: ClassVar[Registry[Any]] = metrics
    part_key: ClassVar[str] = "metric"

    metric: str = Field(
        "auto",
        description="the score that decides on dev and is reported on test; auto: macro_f1 for classes, pearson for "
        "numbers, micro_f1 for label sets, span_f1 for tags (accuracy where they make no spans); or a plug-in's",
    )
    positive_label: str | None = Field(
        None, description="the class that `f1` is about; unset: the last of the two that does not begin with `not`"
    )
    threshold: Annotated[float, Field(gt=0, lt=1)] | Literal["tuned"] = Field(
        0.5, description="for multilabel: the least probability of a predicted label; tuned: the best on dev"
    )

    @field_validator("metric")
    @classmethod
    def metric_can_decide(cls, metric: str) -> str:
        part = metrics.get(metric)
        if not (part.decides and part.higher_is_better):
            raise ValueError(f"{metric} is reported, but cannot choose between models")
        return metric


class Settings(Section):
    """All settings of a run."""

    output_dir: LocalPath = Field("", description="the run's folder")
    seed: Seed = Field(0, description="of splits, selection and pre-training; fine-tuning has its own")
    threads: int | None = Field(None, gt=0, le=1024, description="CPU threads; unset: all cores")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="auto: a GPU if there is one")
    distributed: Literal["auto", "ddp", "fsdp"] = Field(
        "auto",
        description="with several processes: each has all weights (ddp), or a part of them, which saves memory "
        "(fsdp); auto: fsdp for the size large on GPUs",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: bfloat16 on a GPU, and on a CPU with AMX"
    )
    compile: bool | Literal["auto", "graphs"] = Field(
        "auto",
        description="compile the training step; auto: on a GPU, where that pays; graphs: record and replay kernels as "
        "they are written, for short runs on an NVIDIA GPU (elsewhere false)",
    )
    report_to: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = Field(
        (), description="send the curves there as well; by default they stay in the run's folder"
    )
    cluster: ClusterSettings = ClusterSettings()
    skip_pretraining: bool = Field(False, description="fine-tune the initial weights, such as those of `model.path`")
    skip_finetuning: bool = Field(False, description="the model is that of pre-training, with the head trained there")
    budget: Budget = Field(
        Budget.parse("10min"),
        description="both training stages together: 600s, 10min, 50Mtok, 2000steps, 1e17flops",
    )
    task: TaskSettings = TaskSettings()
    tasks: dict[str, TaskSettings] = Field(
        {}, description="auxiliary tasks that share the encoder, by names of your own; each has the keys of `task`"
    )
    corpus: CorpusSettings = CorpusSettings()
    retrieve: RetrieveSettings = RetrieveSettings()
    select: SerializeAsAny[SelectSettings] = Field(default_factory=SelectSettings)
    domain: DomainSettings = DomainSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: SerializeAsAny[ModelSettings] = Field(default_factory=ModelSettings)
    aligned: AlignedSettings = AlignedSettings()
    pretrain: PretrainSettings = Field(default_factory=PretrainSettings)
    finetune: FinetuneSettings = FinetuneSettings()
    evaluate: SerializeAsAny[EvaluateSettings] = Field(default_factory=EvaluateSettings)

    @property
    def pretrain_seed(self) -> int:
        """The seed of pre-training: its own, or the run's."""
        return self.seed if self.pretrain.seed is None else self.pretrain.seed

    @property
    def has_selection(self) -> bool:
        """Whether the run has a selection: from its corpus, or from elsewhere."""
        selector = self.select.part_class
        return bool(selector.selects and (self.corpus.sources or not selector.reads_candidates))

    @property
    def reads_domain(self) -> bool:
        """Whether pre-training reads the domain's text."""
        return not self.skip_pretraining and self.pretrain.reads("domain")

    @property
    def reads_aligned(self) -> bool:
        """Whether pre-training reads the texts of the section `aligned`."""
        return not self.skip_pretraining and self.pretrain.reads("aligned")

    @property
    def learns_tokenizer(self) -> bool:
        """Whether the tokenizer is learned from the run's texts, and not loaded from a file or with a model."""
        return self.tokenizer.path is None and self.model.path is None

    @property
    def has_tlm_head(self) -> bool:
        """Whether pre-training has TLM's head; without fine-tuning it trains the head that is saved."""
        return self.pretrain.task_head == "tlm" and not self.skip_finetuning

    @property
    def model_seeds(self) -> tuple[int, ...]:
        """The seeds whose weights are scored: all of fine-tuning, or the first one for the weights of pre-training."""
        return self.finetune.seeds if not self.skip_finetuning else self.finetune.seeds[:1]

    @property
    def used_objectives(self) -> Objectives:
        """The objectives of pre-training with a weight above 0; the default ones include the auxiliary tasks."""
        if self.skip_pretraining:
            return self.pretrain.used_objectives
        return self.pretrain.objectives_with_tasks(self.tasks, has_selection=self.has_selection)

    @property
    def objectives_with_text(self) -> Objectives:
        """The used objectives, without those that read a selection where there is none."""
        used = self.used_objectives.items()
        return {name: item for name, item in used if item.reads != "selection" or self.has_selection}

    @property
    def learned_tasks(self) -> tuple[str, ...]:
        """The auxiliary tasks whose heads are among those that pre-training trains last."""
        if self.skip_pretraining:
            return ()
        used = self.used_objectives
        learned = {used[name].learned_task for name in self.pretrain.weighting.part.trained_last(tuple(used))}
        return tuple(name for name in self.tasks if name in learned)

    @property
    def scored_tasks(self) -> tuple[str, ...]:
        """The auxiliary tasks that the final weights can predict: those fine-tuned, or learned last in pre-training."""
        if not self.skip_finetuning:
            return tuple(self.tasks) if self.finetune.tasks == "all" else ()
        return self.learned_tasks

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_tracker(cls, value: Any) -> Any:
        """Accept the name of a tracker for a list of it, and `none` as in Hugging Face."""
        return () if value == "none" else (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def auxiliary_tasks_fit(self) -> Settings:
        check_tasks(self.tasks, self.pretrain.objectives)
        finetunes_tasks = self.finetune.tasks == "all"
        if finetunes_tasks and not self.tasks:
            raise ValueError("finetune.tasks: there are no auxiliary tasks; name them under `tasks`")
        if finetunes_tasks and not self.skip_finetuning:
            self._check_keep_better()
        elif not self.skip_pretraining:
            self._check_tasks_learned()
        return self

    def _check_keep_better(self) -> None:
        """Raise `ValueError` where `keep_better` could save the head of a task that pre-training does not learn."""
        if not self.finetune.keep_better:
            return
        for name in self.tasks:
            if name not in self.learned_tasks:
                last = " last" if self.pretrain.weighting.part.sequential else ""
                raise ValueError(
                    f"finetune.keep_better: pre-training does not learn {name}{last}, whose head may be saved "
                    "untrained; leave it off, or set finetune.tasks: main"
                )

    def _check_tasks_learned(self) -> None:
        """Raise `ValueError` for a task that no objective names; an objective of weight 0 names it too."""
        named = {**self.pretrain.objectives, **self.used_objectives}
        learned = {objective.learned_task for objective in named.values()}
        for name in self.tasks:
            if name in learned:
                continue
            remedy = f"add pretrain.objectives.{name}: {{kind: task, task: {name}}}"
            if self.pretrain.weighting.part.tlm_only:
                remedy = "pretrain.weighting: interleave trains two objectives, use equal, alternate or meta"
            missing = ["skip_finetuning: false"] if self.skip_finetuning else []
            missing += ["finetune.tasks: all"] if self.finetune.tasks != "all" else []
            raise ValueError(f"tasks.{name}: nothing learns it; {remedy}, or set {' and '.join(missing)}")

    @model_validator(mode="after")
    def lengths_fit(self) -> Settings:
        lengths = {
            "pretrain.max_length": self.pretrain.max_length,
            "pretrain.task_max_length": self.pretrain.task_max_length or 0,
            "finetune.max_length": self.finetune.max_length,
        }
        for name, length in lengths.items():
            # A checkpoint has its own limit.
            if length > self.model.max_position_embeddings and self.model.path is None:
                raise ValueError(
                    f"{name} {length} is more than model.max_position_embeddings {self.model.max_position_embeddings}"
                )
        return self

    @model_validator(mode="after")
    def markers_are_named(self) -> Settings:
        if self.model.pooling == "entity_markers" and not self.tokenizer.entity_markers:
            raise ValueError("model.pooling: there are no entity markers; name them under tokenizer.entity_markers")
        return self

    @model_validator(mode="after")
    def batches_hold_texts(self) -> Settings:
        train, finetune = self.pretrain, self.finetune
        batches = [
            ("pretrain.batch_size", train.batch_size, train.max_length),
            ("finetune.batch_size", finetune.batch_size, finetune.max_length),
        ]
        for name, objective in self.used_objectives.items():
            key = "pretrain.batch_size" if objective.batch_size is None else f"pretrain.objectives.{name}.batch_size"
            length = (train.task_max_length if objective.reads == "task" else None) or train.max_length
            batches.append((key, objective.batch_size or train.batch_size, length))
        for name, size, length in batches:
            if size.unit == "tokens" and size.amount < 2 * length:
                raise ValueError(f"{name} {size} is less than two texts of {length} tokens")
        return self

    @model_validator(mode="after")
    def aligned_texts_fit(self) -> Settings:
        if self.reads_aligned:
            self.aligned.check_use(self.tokenizer, max_length=self.pretrain.max_length)
        elif self.finetune.head == "aligned":
            raise ValueError("finetune.head: no objective of pre-training is aligned; see pretrain.objectives")
        return self

    @model_validator(mode="after")
    def stages_fit(self) -> Settings:
        if self.skip_pretraining and self.skip_finetuning:
            raise ValueError("skip_pretraining: true with skip_finetuning: true would train nothing")
        if self.skip_pretraining and self.finetune.start_from == "best":
            raise ValueError("finetune.start_from: best needs pre-training; skip_pretraining is true")
        if self.skip_finetuning and not self.pretrain.trains_task:
            raise ValueError(f"skip_finetuning: true with {self.without_task} would leave the task head untrained")
        if self.finetune.start_from == "best" and self.pretrain.eval_steps is None:
            raise ValueError("finetune.start_from: best needs pretrain.eval_steps")
        if self.pretrain.eval_steps is not None and not self.pretrain.trains_task:
            raise ValueError(
                f"pretrain.eval_steps: dev is scored by the task head, which {self.without_task} never trains"
            )
        return self

    @model_validator(mode="after")
    def finetuning_fits(self) -> Settings:
        self.finetune.check_loss(self.model.dropout)
        if self.finetune.head == "pretrained" and self.has_tlm_head:
            raise ValueError("finetune.head: pretrained needs pretrain.task_head: stock, the head of the saved model")
        trains_head = not self.skip_pretraining and self.pretrain.trains_task
        if self.finetune.keep_better and not trains_head:
            raise ValueError("finetune.keep_better needs pre-training that trains the task head")
        if self.finetune.head == "pretrained" and not trains_head:
            raise ValueError(
                "finetune.head: pretrained starts from pre-training's task head, which nothing has trained: "
                "all seeds would start from the same random head"
            )
        return self

    @property
    def without_task(self) -> str:
        """The settings that leave the task head untrained in pre-training, for messages."""
        objectives = self.pretrain.objectives.values()
        if any(item.sees_labels and item.weight for item in objectives) and not self.pretrain.weighting.part.sequential:
            changed = non_defaults(self.pretrain.weighting).items()
            return " and ".join(f"pretrain.weighting.{key}: {value}" for key, value in changed)
        last = " as the last of a sequence" if self.pretrain.weighting.part.sequential else ""
        return f"pretrain.objectives without the task{last}"

    def unused_settings(self) -> Iterator[str]:
        """Yield a line for each setting without effect, with the reason."""
        weighting = self.pretrain.weighting.part
        if not self.skip_pretraining:
            yield from weighting.unused_settings(self)
        elif weighting.needs_task:
            yield "pretrain.weighting without effect: skip_pretraining is true"
