"""The typed settings of a run: every key, its default and its meaning, in the order of the work."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from endtask.config.aligned import AlignedSettings
from endtask.config.auxiliary_tasks import check_tasks, objectives_with_tasks
from endtask.config.budget import Budget, SizeBudget
from endtask.config.domain import DomainSettings
from endtask.config.evaluate import EvaluateSettings
from endtask.config.model import ModelSettings, TokenizerSettings
from endtask.config.objectives import Objectives, is_tlm
from endtask.config.part_section import PartSection
from endtask.config.section import Fraction, Positive, Section
from endtask.config.source import SourceSettings
from endtask.config.training import FinetuneSettings, PretrainSettings
from endtask.errors import InputError
from endtask.registry import Registry, selectors, task_types


class ColumnSettings(Section):
    """Which column of the task's files holds what; unset ones are found by their usual names."""

    text: str | None = Field(None, description="the text, or the first of a pair")
    text_pair: str | None = Field(None, description="the second text of a pair")
    label: str | None = Field(None, description="the class name, the score, or the list of labels")
    tokens: str | None = Field(None, description="the list of tokens, for token_classification")
    tags: str | None = Field(None, description="one tag per token, for token_classification")
    id: str | None = Field(None, description="a name for the row; by default its split and number")
    group: str | None = Field(None, description="rows with the same value stay together in splits, folds and tests")


class TaskSettings(Section):
    """The labelled data of the end task (`task`), or of a auxiliary task on the same body (`tasks.NAME`)."""

    path: str = Field("", description="a file, a folder with train/dev/test files, `hf:NAME` or `docstrings`")
    type: str = Field(
        "auto",
        description="text, pair, regression, multilabel or token_classification; auto: detected from the columns and "
        "the labels",
    )
    columns: ColumnSettings = Field(ColumnSettings(), description="which column holds what")
    label_delimiter: str | None = Field(
        None, min_length=1, description="for multilabel: what separates the labels of a cell, such as `;`"
    )
    dev_fraction: Fraction = Field(0.1, description="share of train carved off where no dev split is given")
    test_fraction: Fraction = Field(0.1, description="the same for a missing test split; 0: do without")

    @field_validator("type")
    @classmethod
    def type_is_registered(cls, name: str) -> str:
        if name != "auto":
            _check_registered(name)
        return name


def _check_registered(name: str) -> None:
    """Raise `ValueError` where there is no task type of this name, with the one that others call so."""
    plain = name.lower().replace("-", "_")
    for known in task_types.names():
        if name != known and plain in (known, *task_types.get(known).aliases):
            raise ValueError(f"there is no task type {name!r} (did you mean {known!r}?)")
    try:
        task_types.get(name)
    except InputError as error:
        raise ValueError(str(error)) from None


class CorpusSettings(Section):
    """The pile of unlabelled text."""

    sources: tuple[SourceSettings, ...] = Field((), description="read in this order, which is the corpus order")
    passage_characters: Positive = Field(2000, description="longer documents are cut at sentence ends")
    deduplicate: bool = Field(True, description="keep the first of equal passages")
    exclude: tuple[str, ...] = Field((), description="ids of documents or passages to leave out")

    @model_validator(mode="after")
    def names_differ(self) -> CorpusSettings:
        names = [source.name for source in self.sources if source.name]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two sources are named {twice[0]!r}")
        return self


class RetrieveSettings(Section):
    """Which passages are retrieved (BM25 with each example's text as query)."""

    query: Literal["auto", "full", "rake"] = Field(
        "auto",
        description="the full text, or its RAKE key phrases; auto: key phrases of texts over 150 words",
    )
    query_words: Positive = Field(64, description="words of a query with `rake`")
    unlabelled: str | None = Field(None, description="a file, folder or glob of unlabelled task texts, also queries")
    top_k: Positive | Literal["auto", "auto_large"] = Field(
        "auto",
        description="passages per example; auto: 5000 under 5,000 examples, 50 over 100,000, else 500; auto_large: "
        "twice as many, as TLM's large scale",
    )
    k1: float = Field(1.2, ge=0, description="BM25: how soon repeats of a word stop counting")
    b: float = Field(0.75, ge=0, le=1, description="BM25: how much the length of a passage lowers its score")
    contamination_filter: bool = Field(True, description="drop passages that contain a dev or test text")


class SelectSettings(PartSection):
    """Which of the retrieved passages are trained on: a selector, its options, and how much it may select."""

    registry: ClassVar[Registry[Any]] = selectors

    name: str = Field("best_rank", description="the selector")
    budget: SizeBudget | None = Field(
        SizeBudget.parse("5%"),
        description="300MB, 50000passages, 5% of the corpus or 20%retrieved, of what was retrieved; null: no limit",
    )


class Settings(Section):
    """All settings of a run."""

    output_dir: str = Field("", description="the run's folder")
    seed: int = Field(0, ge=0, description="of splits, selection and pre-training; fine-tuning has its own")
    threads: Positive | None = Field(None, description="CPU threads; unset: all cores")
    keep_scratch: bool = Field(
        True, description="keep what was read of each shard, so that a changed corpus redoes only what changed"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="auto: a GPU if there is one")
    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 on a GPU")
    compile: bool | Literal["auto", "graphs"] = Field(
        "auto",
        description="compile the training step; auto: on a GPU, where that pays; graphs: record and replay kernels as "
        "they are written, for short runs on an NVIDIA GPU (elsewhere false)",
    )
    report_to: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = Field(
        (), description="send the curves there as well; by default they stay in the run's folder"
    )
    max_skipped_steps: Positive = Field(
        10, description="steps in a row with a broken loss before training goes back to its last checkpoint"
    )
    skip_pretraining: bool = Field(
        False, description="fine-tune the initial weights, such as those of a given checkpoint"
    )
    skip_finetuning: bool = Field(False, description="the model is that of pre-training, with the head trained there")
    budget: Budget = Field(
        Budget.parse("10min"),
        description="both training stages together: 600s, 10min, 50Mtok, 2000steps, 1e17flops",
    )
    bundle_size: SizeBudget = Field(
        SizeBudget.parse("60MB"), description="the largest file that `endtask bundle` may write, in bytes: 60MB"
    )
    task: TaskSettings = TaskSettings()
    tasks: dict[str, TaskSettings] = Field(
        {}, description="auxiliary tasks that share the encoder, by names of your own; each is told as `task` is"
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
        """Whether texts are selected: of a corpus, or elsewhere."""
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
        """Whether the tokenizer is learned from the run's texts, not given, as a file or with a model."""
        return self.tokenizer.path is None and self.model.path is None

    @property
    def may_pool_markers(self) -> bool:
        """Whether `model.pooling: auto` means the marks; of a given checkpoint, as far as the settings can tell."""
        if self.model.pooling != "auto" or not self.tokenizer.entity_markers:
            return False
        return self.model.path is not None or "entity_markers" in self.model.part_class.poolings

    @property
    def model_seeds(self) -> tuple[int, ...]:
        """The seeds whose weights are scored: every fine-tuning seed, or the first for what pre-training made."""
        return self.finetune.seeds if not self.skip_finetuning else self.finetune.seeds[:1]

    @property
    def used_objectives(self) -> Objectives:
        """What pre-training learns, the auxiliary tasks among it where nobody said what; without those of weight 0."""
        return objectives_with_tasks(self)

    @property
    def objectives_with_text(self) -> Objectives:
        """Those used, but for masked LM on a selection that there will not be."""
        used = self.used_objectives.items()
        return {name: one for name, one in used if one.reads != "selection" or self.has_selection}

    @property
    def learned_tasks(self) -> tuple[str, ...]:
        """The auxiliary tasks whose heads learn in pre-training, and with what is learned last."""
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

    @model_validator(mode="after")
    def auxiliary_tasks_fit(self) -> Settings:
        check_tasks(self)
        return self

    @field_validator("bundle_size")
    @classmethod
    def bundle_size_is_of_a_file(cls, size: SizeBudget) -> SizeBudget:
        if size.unit != "bytes":
            raise ValueError(f"{str(size)!r} is not the size of a file; write it like 60MB")
        return size

    @model_validator(mode="after")
    def lengths_fit(self) -> Settings:
        lengths = {
            "pretrain.max_length": self.pretrain.max_length,
            "pretrain.task_max_length": self.pretrain.task_max_length or 0,
            "finetune.max_length": self.finetune.max_length,
        }
        for name, length in lengths.items():
            # A given checkpoint says itself how much it reads.
            if length > self.model.max_position_embeddings and self.model.path is None:
                raise ValueError(
                    f"{name} {length} is more than model.max_position_embeddings {self.model.max_position_embeddings}"
                )
        return self

    @model_validator(mode="after")
    def markers_are_named(self) -> Settings:
        if self.model.pooling == "entity_markers" and not self.tokenizer.entity_markers:
            raise ValueError("model.pooling: there are no marks to read; name them under tokenizer.entity_markers")
        return self

    @model_validator(mode="after")
    def batches_hold_texts(self) -> Settings:
        train, finetune = self.pretrain, self.finetune
        internal = train.task_batch_size or train.batch_size
        batches = {
            "pretrain.batch_size": (train.batch_size, train.max_length),
            "pretrain.task_batch_size": (internal, train.task_max_length or train.max_length),
            "finetune.batch_size": (finetune.batch_size, finetune.max_length),
        }
        for name, one in self.used_objectives.items():
            if one.batch_size is not None:
                length = (train.task_max_length if one.reads == "task" else None) or train.max_length
                batches[f"pretrain.objectives.{name}.batch_size"] = (one.batch_size, length)
        for name, (size, length) in batches.items():
            if size.unit == "tokens" and size.amount < 2 * length:
                raise ValueError(f"{name} {size} is less than two texts of {length} tokens")
        return self

    @model_validator(mode="after")
    def aligned_texts_fit(self) -> Settings:
        if self.reads_aligned:
            self.aligned.check_use(self.tokenizer, max_length=self.pretrain.max_length)
        elif self.aligned.keep_head:
            raise ValueError("aligned.keep_head: no objective of pre-training is aligned; see pretrain.objectives")
        if self.aligned.keep_head and not self.finetune.reset_head:
            raise ValueError("aligned.keep_head: finetune.reset_head: false keeps the task's head; set one of the two")
        return self

    @model_validator(mode="after")
    def stages_fit(self) -> Settings:
        if self.skip_pretraining and self.skip_finetuning:
            raise ValueError("skip_pretraining: true with skip_finetuning: true would train nothing")
        if self.skip_pretraining and self.finetune.start_from == "best":
            raise ValueError("finetune.start_from: best needs pre-training; skip_pretraining is true")
        if self.skip_finetuning and self.pretrain.task_head != "stock":
            raise ValueError("skip_finetuning: true needs pretrain.task_head: stock, the head of the saved model")
        if self.skip_finetuning and not self.pretrain.trains_task:
            raise ValueError(f"skip_finetuning: true with {self._without_task} would leave the task head untrained")
        if self.finetune.start_from == "best" and self.pretrain.eval_steps is None:
            raise ValueError("finetune.start_from: best needs pretrain.eval_steps")
        if self.pretrain.eval_steps is not None and not self.pretrain.trains_task:
            raise ValueError(
                f"pretrain.eval_steps: dev is scored by the task head, which {self._without_task} never trains"
            )
        if self.finetune.rdrop and not self.model.dropout:
            raise ValueError("finetune.rdrop compares answers under dropout; model.dropout is 0")
        if not self.finetune.reset_head and self.pretrain.task_head != "stock":
            raise ValueError("finetune.reset_head: false needs pretrain.task_head: stock, the head of the saved model")
        trains_head = not self.skip_pretraining and self.pretrain.trains_task
        if self.finetune.keep_better and not trains_head:
            raise ValueError("finetune.keep_better needs pre-training that trains the task head")
        if not self.finetune.reset_head and not trains_head:
            raise ValueError(
                "finetune.reset_head: false keeps pre-training's task head, which nothing has trained: "
                "all seeds would start from the same random one"
            )
        return self

    @property
    def _without_task(self) -> str:
        if is_tlm(self.pretrain.objectives):
            return f"pretrain.weighting: {self.pretrain.weighting.name} without the task"
        last = " as the last of a sequence" if self.pretrain.weighting.part.sequential else ""
        return f"pretrain.objectives without the task{last}"
