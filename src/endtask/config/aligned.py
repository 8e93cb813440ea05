"""Settings of the text and the recipe of aligned objectives: pre-training shaped like the end task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from endtask.config.data import SourceSettings
from endtask.config.section import Positive, Section

if TYPE_CHECKING:
    from endtask.config.model import TokenizerSettings

FEWEST_TOKENS = 32
"""The shortest input that leaves room for a text beside an acronym or a title."""


class AlignedSettings(Section):
    """Text and recipe of aligned objectives: pre-training shaped like the end task (objective alignment)."""

    sources: tuple[SourceSettings, ...] = Field(
        (), description="what hyperlinks, acronyms, next_sentence and aligned read; rows may carry `links`"
    )
    passages: Positive | None = Field(None, description="read at most so many passages, drawn by `seed`; unset: all")
    subword_sampling: tuple[str, ...] = Field(
        (),
        description="names of sources whose words are split into subwords at random, by a unigram tokenizer "
        "(subword regularization)",
    )
    recipe: Literal["spans", "pair_match", "marked_relation"] = Field(
        "spans",
        description="what an objective of kind `aligned` learns: which words start and end a span; whether two texts "
        "belong together; whether two marked spans do",
    )
    spans_from: Literal["markup", "title_case", "quotes", "word_list"] = Field(
        "markup",
        description="where spans come from: the rows' `links`; words in capitals (for tokenizers that fold case); "
        "quoted words, whose quotation marks are taken out; a list in `word_list`",
    )
    word_list: str | None = Field(None, description="a text file with one word or phrase per line, for spans_from")
    span_labels: Literal["boundaries", "bio"] = Field(
        "boundaries", description="classes of words: start, end, both, none; or B, I, O"
    )
    labelled_tokens: Literal["first", "all"] = Field(
        "first", description="of a word only its first token has a class, as in the end task; all: every token has"
    )
    pairs_from: Literal["next_sentence", "title", "acronyms"] = Field(
        "next_sentence",
        description="which pairs of pair_match belong together: a text and how it goes on; its title and a text; "
        "the initials of some words and a text with these words",
    )
    guide_acronyms: bool = Field(
        True,
        description="acronyms: pieces of texts are read, short ones most often, and every token is asked whether it "
        "stands in the words that the letters come from; false: whole texts, one answer each, as in the paper",
    )
    entity_markers: tuple[str, str, str, str] = Field(
        ("[[", "]]", "<<", ">>"),
        description="markers around the two spans of marked_relation, as in the task; name them under "
        "tokenizer.entity_markers too",
    )
    keep_head: bool = Field(
        False,
        description="fine-tuning starts from the head of the first aligned objective that has the task's classes, "
        "by their names, instead of a new one",
    )

    def check_use(self, tokenizer: TokenizerSettings, *, max_length: int) -> None:
        """Refuse, where an objective reads this text, what could not be done with it."""
        if not self.sources:
            raise ValueError("aligned.sources: name the files that the aligned objectives read")
        if max_length < FEWEST_TOKENS:
            raise ValueError(f"pretrain.max_length: aligned objectives need {FEWEST_TOKENS} tokens, not {max_length}")
        if tokenizer.path is None:
            self._check_tokenizer(tokenizer)

    def _check_tokenizer(self, tokenizer: TokenizerSettings) -> None:
        if self.subword_sampling and tokenizer.kind != "unigram":
            raise ValueError("aligned.subword_sampling needs tokenizer.kind: unigram, whose model words are cut by")
        if self.spans_from == "title_case" and not tokenizer.lowercase:
            raise ValueError("aligned.spans_from: title_case can be read off the letters without tokenizer.lowercase")

    @model_validator(mode="after")
    def recipe_is_complete(self) -> AlignedSettings:
        if (self.spans_from == "word_list") != (self.word_list is not None):
            raise ValueError("word_list: name the file exactly where spans_from is word_list")
        return self
