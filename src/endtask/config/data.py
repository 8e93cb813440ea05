"""Settings of the data: the task, the corpus, retrieval, and the text of the domain."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from endtask.config.budget import TextAmount
from endtask.config.section import Fraction, Positive, Section
from endtask.errors import InputError
from endtask.io.addresses import DataPath
from endtask.registry import task_types


class SourceSettings(Section):
    """One named part of the corpus."""

    plain_key = "path"

    path: DataPath = Field(description="a file, a folder, a glob, an address (`s3://...`), `hf:NAME` or `docstrings`")
    name: str | None = Field(None, description="shown in reports; by default made from the file name")
    text: str | None = Field(None, description="column of the text; found by its usual names if unset")
    license: str | None = Field(None, description="recorded with every text of this source")


class ColumnSettings(Section):
    """The columns of the task's files; unset ones are found by their usual names."""

    text: str | None = Field(None, description="the text, or the first of a pair")
    text_pair: str | None = Field(None, description="the second text of a pair")
    label: str | None = Field(None, description="the class name, the score, or the list of labels")
    tokens: str | None = Field(None, description="the list of tokens, for token_classification")
    tags: str | None = Field(None, description="one tag per token, for token_classification")
    id: str | None = Field(None, description="a name for the row; by default its split and number")
    group: str | None = Field(None, description="rows with the same value stay together in splits, folds and tests")


class TaskSettings(Section):
    """The labelled data of the end task (`task`), or of an auxiliary task on the same encoder (`tasks.NAME`)."""

    plain_key = "path"

    path: DataPath = Field(
        "",
        description="a file, a folder with train/dev/test files or a folder per class, an address, `hf:NAME` or "
        "`docstrings`",
    )
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
    """Raise `ValueError` for an unknown task type; the message names the type of which it is an alias."""
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

    plain_key = "sources"
    plain_types = (str, list, tuple)

    sources: tuple[SourceSettings, ...] = Field((), description="read in this order, which is the corpus order")
    passage_characters: Positive = Field(2000, description="longer documents are cut at sentence ends")
    deduplicate: bool = Field(True, description="keep the first of equal passages")
    exclude: tuple[str, ...] = Field((), description="ids of documents or passages to leave out")
    on_error: Literal["stop", "skip"] = Field(
        "stop", description="what a row or file that cannot be read does; skip: it is left out, counted and named"
    )

    @field_validator("sources", mode="before")
    @classmethod
    def _one_source(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

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
    top_k: Positive | Literal["auto", "auto_large"] = Field(
        "auto",
        description="passages per example; auto: 5000 under 5,000 examples, 50 over 100,000, else 500; auto_large: "
        "twice as many, as TLM's large scale",
    )
    contamination_filter: bool = Field(True, description="drop passages that contain a dev or test text")


class DomainSettings(Section):
    """The domain: a random draw from the corpus, read by objectives with `texts: domain`."""

    sources: tuple[str, ...] = Field((), description="names of corpus sources to draw from; empty: the whole corpus")
    amount: TextAmount = Field(
        TextAmount.parse("10x"),
        description="passages as a multiple of the train rows (10x), an amount of text (300MB, 5% of the sources), all",
    )
