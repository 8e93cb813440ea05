"""Settings of the domain's text: random passages of chosen sources, for masked LM on the domain (DAPT)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from endtask.config.budget import FromText, SizeBudget
from endtask.config.section import Section

_TIMES = re.compile(r"([0-9]*\.?[0-9]+)\s*x")
_EXAMPLES = "10x (as many passages as ten times the train rows), 300MB, 50000passages, 5% or all"


@dataclass(frozen=True)
class TextAmount(FromText):
    """How much text to draw: a multiple of the train rows, an amount of text, or all there is.

    >>> TextAmount.parse("10x"), str(TextAmount.parse("300MB"))
    (TextAmount(amount=10.0, unit='times', text='10x'), '300MB')
    """

    amount: float
    unit: Literal["times", "bytes", "passages", "share"]
    text: str

    @classmethod
    def parse(cls, text: str) -> TextAmount:
        """Read it as the user writes it."""
        if text.strip() == "all":
            return cls(1.0, "share", "all")
        if (times := _TIMES.fullmatch(text.strip())) and float(times[1]) > 0:
            return cls(float(times[1]), "times", text.strip())
        try:
            size = SizeBudget.parse(text)
        except ValueError:
            size = None
        if size is None or size.unit == "retrieved":
            raise ValueError(f"{text!r} is not an amount of text; write it like {_EXAMPLES}")
        return cls(size.amount, size.unit, size.text)

    def budget(self, train_rows: int) -> SizeBudget | None:
        """The same as an amount of text; None for all.

        >>> TextAmount.parse("10x").budget(train_rows=500)
        SizeBudget(amount=5000.0, unit='passages', text='10x')
        """
        if self.unit == "times":
            return SizeBudget(float(max(1, round(self.amount * train_rows))), "passages", self.text)
        if self.unit == "share" and self.amount == 1:
            return None
        return SizeBudget(self.amount, self.unit, self.text)

    def in_words(self, train_rows: int) -> str:
        """What was asked for, to be told where there is less.

        >>> TextAmount.parse("10x").in_words(train_rows=300)
        '10x of train would be 3,000'
        >>> TextAmount.parse("300MB").in_words(train_rows=300)
        '300MB were asked for'
        """
        budget = self.budget(train_rows)
        if self.unit == "times" and budget is not None:
            return f"{self} of train would be {int(budget.amount):,}"
        return f"{self} were asked for"

    def __str__(self) -> str:
        return self.text


class DomainSettings(Section):
    """The domain: a random draw from the corpus, read by objectives with `texts: domain`."""

    sources: tuple[str, ...] = Field((), description="names of corpus sources to draw from; empty: the whole corpus")
    amount: TextAmount = Field(
        TextAmount.parse("10x"),
        description="passages as a multiple of the train rows (10x), an amount of text (300MB, 5% of the sources), all",
    )
