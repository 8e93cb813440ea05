"""Settings of the text of aligned objectives: pre-training shaped like the end task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from endtask.config.data import SourceSettings
from endtask.config.section import Section

if TYPE_CHECKING:
    from endtask.config.model import TokenizerSettings

FEWEST_TOKENS = 32
"""The shortest input that leaves room for a text next to an acronym."""


class AlignedSettings(Section):
    """The text of aligned objectives: pre-training shaped like the end task (objective alignment)."""

    sources: tuple[SourceSettings, ...] = Field(
        (), description="what hyperlinks, acronyms and next_sentence read; rows may carry `links`"
    )
    subword_sampling: tuple[str, ...] = Field(
        (),
        description="names of those sources whose words are split into subwords at random (subword regularisation), "
        "with a unigram tokenizer",
    )

    def check_use(self, tokenizer: TokenizerSettings, *, max_length: int) -> None:
        """Raise `ValueError` for settings with which no aligned objective can be trained."""
        if not self.sources:
            raise ValueError("aligned.sources: name the files that the aligned objectives read")
        if max_length < FEWEST_TOKENS:
            raise ValueError(f"pretrain.max_length: aligned objectives need {FEWEST_TOKENS} tokens, not {max_length}")
        if self.subword_sampling and tokenizer.path is None and tokenizer.kind != "unigram":
            raise ValueError("aligned.subword_sampling needs tokenizer.kind: unigram, whose model samples the subwords")
