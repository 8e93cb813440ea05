"""The typed settings of a run: every key, its default and its meaning, in the order of the work."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from endtask.settings.budget import Budget, SizeBudget

TaskKind = Literal["text", "pair", "score", "tags"]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A frozen group of settings that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class ColumnSettings(Section):
    """Which column of the task's files holds what; unset ones are found by their usual names."""

    text: str | None = Field(None, description="the text, or the first of a pair")
    text_pair: str | None = Field(None, description="the second text of a pair")
    label: str | None = Field(None, description="the class name or the score")
    tokens: str | None = Field(None, description="the list of tokens, for kind `tags`")
    tags: str | None = Field(None, description="one tag per token, for kind `tags`")
    id: str | None = Field(None, description="a name for the row; by default its split and number")
    group: str | None = Field(None, description="rows with the same value stay in one split when dev is carved")


class TaskSettings(Section):
    """The labelled data."""

    path: str = Field("", description="a file, a folder with train/dev/test files, `hf:NAME` or `docstrings`")
    kind: TaskKind | Literal["auto"] = Field("auto", description="auto: told by the columns and labels")
    columns: ColumnSettings = Field(ColumnSettings(), description="which column holds what")
    dev_fraction: Fraction = Field(0.1, description="share of train carved off where no dev split is given")
    test_fraction: Fraction = Field(0.1, description="the same for a missing test split; 0: do without")


class SourceSettings(Section):
    """One named part of the corpus."""

    path: str = Field(description="a file, a folder, a glob, `hf:NAME` or `docstrings`")
    name: str | None = Field(None, description="shown in reports; by default made from the file name")
    text: str | None = Field(None, description="column of the text; found by its usual names if unset")
    licence: str | None = Field(None, description="noted beside every text of this source")


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
    """Which passages each example asks for (BM25 with the example's text as query)."""

    query: Literal["auto", "full", "rake", "idf"] = Field(
        "auto",
        description="what asks: the full text, its RAKE key phrases, or its rarest words; "
        "auto: key phrases of texts over 150 words, else the full text",
    )
    query_words: Positive = Field(64, description="words kept of a query by `rake` and `idf`")
    unlabelled: str | None = Field(None, description="a file, folder or glob of unlabelled task texts that ask too")
    top_k: Positive | Literal["auto"] = Field(
        "auto", description="passages per example; auto: 5000 under 5,000 examples, 50 over 100,000, else 500"
    )
    large_scale: bool = Field(False, description="double the automatic top_k, as the paper does for its large models")
    k1: float = Field(1.2, ge=0, description="BM25: how soon repeats of a word stop counting")
    b: float = Field(0.75, ge=0, le=1, description="BM25: how much long passages are marked down")
    guard: bool = Field(True, description="drop passages that contain a dev or test text")
    near_duplicates: float | None = Field(
        None,
        gt=0,
        le=1,
        description="collapse passages at least this alike (MinHash, e.g. 0.8); unset: only equal ones",
    )


class SelectSettings(Section):
    """Which of the retrieved passages are trained on."""

    selector: Literal["best_rank", "random", "imported", "none"] = Field(
        "best_rank",
        description="the rule that chooses; random: from the whole corpus; imported: from `path`; none: no corpus text",
    )
    path: str | None = Field(None, description="a selection of your own: JSONL, CSV, TSV or Parquet with a text column")
    per_class: bool = Field(False, description="deal the budget to the classes in turn")
    budget: SizeBudget | None = Field(
        SizeBudget.parse("5%"),
        description="300MB, 50000passages or 5% of the corpus; null: all retrieved, or the whole of `path`",
    )


class TokenizerSettings(Section):
    """Trained on selection + task text, or loaded from `path`."""

    path: str | None = Field(None, description="folder of a Hugging Face fast tokenizer")
    vocab_size: int = Field(8000, ge=64, description="tokens to learn, special ones included")
    lowercase: bool = Field(True, description="fold upper case before cutting into tokens")


class ModelSettings(Section):
    """The encoder; explicit sizes override the named one."""

    architecture: Literal["bert", "modernbert"] = Field(
        "modernbert", description="Hugging Face's own classes; bert reads the first token, modernbert the mean"
    )
    size: Literal["tiny", "mini", "small", "medium", "base"] = Field(
        "tiny", description="a named set of the sizes below"
    )
    hidden_size: Positive | None = Field(None, description="width of a token's vector")
    num_hidden_layers: Positive | None = Field(None, description="number of layers")
    num_attention_heads: Positive | None = Field(None, description="must divide the hidden size")
    intermediate_size: Positive | None = Field(None, description="width inside the feed-forward blocks")
    max_position_embeddings: Positive = Field(512, description="longest text the model can ever read, in tokens")
    dropout: Fraction = Field(0.1, description="dropout of the encoder and its heads, stage 1 apart")


class TrainSettings(Section):
    """Stage 1: masked language modelling on the selection, jointly with the task (TLM)."""

    learning_rate: float = Field(1e-3, gt=0, description="highest rate, reached after the warm-up")
    weight_decay: float = Field(0.01, ge=0, description="of AdamW")
    warmup_fraction: Fraction = Field(0.1, description="share of the steps in which the rate rises from 0")
    batch_size: Positive = Field(32, description="texts per step")
    max_length: int = Field(128, ge=8, description="tokens per text; longer passages are cut into several")
    mask_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens to be guessed")
    rho1: int = Field(19, ge=0, description="external batches per internal (task) batch")
    rho2: float = Field(20.0, ge=0, description="weight of masked LM against the task loss in internal batches")
    normalize_internal_loss: bool = Field(
        True, description="divide the internal loss by rho2 + 1, as the authors' code does"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="longer gradients are scaled down to this norm")
    dropout: Fraction = Field(0.0, description="dropout during stage 1; little text is seen twice")
    checkpoint_steps: Positive = Field(500, description="a killed run loses at most this many steps")


class FinetuneSettings(Section):
    """Stage 2: plain fine-tuning from the last weights of stage 1 with a new head, once per seed."""

    learning_rate: float = Field(3e-4, gt=0, description="highest rate, reached after the warm-up")
    weight_decay: float = Field(0.01, ge=0, description="of AdamW")
    warmup_fraction: Fraction = Field(0.1, description="share of the steps in which the rate rises from 0")
    batch_size: Positive = Field(32, description="texts per step")
    max_length: int = Field(128, ge=8, description="tokens per text; the rest is cut off")
    epochs: Positive = Field(10, description="at most; a budget may allow fewer")
    budget_share: Fraction = Field(0.25, description="part of the run's budget for all fine-tuning seeds together")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="one fine-tuning run for each")
    max_grad_norm: float = Field(1.0, gt=0, description="longer gradients are scaled down to this norm")
    checkpoint_steps: Positive = Field(500, description="a killed run loses at most this many steps")


class EvaluateSettings(Section):
    """How predictions are scored."""

    metric: Literal["macro_f1", "micro_f1", "accuracy"] = Field(
        "macro_f1", description="the score that decides on dev and is reported on test"
    )
    batch_size: Positive = Field(64, description="texts per forward pass; changes speed only")


class Settings(Section):
    """All settings of a run."""

    output_dir: str = Field("", description="the run's folder")
    seed: int = Field(0, ge=0, description="of splits, selection and stage 1; fine-tuning has its own")
    threads: Positive | None = Field(None, description="CPU threads; unset: all cores")
    keep_scratch: bool = Field(
        True, description="keep what was read of each shard, so that a changed corpus redoes only what changed"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="auto: a GPU if there is one")
    budget: Budget = Field(
        Budget.parse("10min"),
        description="both training stages together: 600s, 10min, 50Mtok, 2000steps, 1e17flops",
    )
    task: TaskSettings = TaskSettings()
    corpus: CorpusSettings = CorpusSettings()
    retrieve: RetrieveSettings = RetrieveSettings()
    select: SelectSettings = SelectSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    evaluate: EvaluateSettings = EvaluateSettings()

    @model_validator(mode="after")
    def lengths_fit(self) -> Settings:
        for name, length in (("train", self.train.max_length), ("finetune", self.finetune.max_length)):
            if length > self.model.max_position_embeddings:
                raise ValueError(
                    f"{name}.max_length {length} is more than model.max_position_embeddings "
                    f"{self.model.max_position_embeddings}"
                )
        return self
