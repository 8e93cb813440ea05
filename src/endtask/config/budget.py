"""Amounts with a unit: how long to train (`10min`), how much text to select (`5%`) or draw (`10x`), batch sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from endtask.config.section import MOST

BudgetUnit = Literal["seconds", "tokens", "steps", "flops"]
SizeUnit = Literal["bytes", "passages", "share", "retrieved"]
BatchUnit = Literal["texts", "tokens"]

_AMOUNT = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%]+)")

_BUDGET_UNITS: dict[str, tuple[BudgetUnit, float]] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), ("seconds", 1.0)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), ("seconds", 60.0)),
    **dict.fromkeys(("h", "hour", "hours"), ("seconds", 3600.0)),
    **dict.fromkeys(("tok", "tokens"), ("tokens", 1.0)),
    **dict.fromkeys(("ktok", "Ktok"), ("tokens", 1e3)),
    "Mtok": ("tokens", 1e6),
    "Gtok": ("tokens", 1e9),
    **dict.fromkeys(("step", "steps"), ("steps", 1.0)),
    **dict.fromkeys(("flop", "flops", "FLOPs"), ("flops", 1.0)),
}
_SHORT_UNIT = {"seconds": "s", "tokens": "tok", "steps": "steps", "flops": "flops"}
_SIZE_UNITS: dict[str, tuple[SizeUnit, float]] = {
    **dict.fromkeys(("B", "bytes"), ("bytes", 1.0)),
    **dict.fromkeys(("kB", "KB"), ("bytes", 1e3)),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    **dict.fromkeys(("passage", "passages"), ("passages", 1.0)),
    "%": ("share", 0.01),
    "%retrieved": ("retrieved", 0.01),
}
_BATCH_UNITS: dict[str, tuple[BatchUnit, float]] = {
    **dict.fromkeys(("text", "texts"), ("texts", 1.0)),
    **{unit: ("tokens", factor) for unit, (kind, factor) in _BUDGET_UNITS.items() if kind == "tokens"},
}


_MOST_OF_ALL = 10**30
"""The largest amount of anything."""


def _parse_amount(
    text: str, units: dict[str, tuple[Any, float]], examples: str, most: int = _MOST_OF_ALL
) -> tuple[float, Any]:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not an amount with a unit; write it like {examples}")
    unit, factor = units[match[2]]
    amount = float(match[1]) * factor
    if amount <= 0:
        raise ValueError(f"{text!r} must be more than zero")
    if amount > most:
        raise ValueError(f"{text!r} is more than {most:.0e} {unit}, the most there can be")
    return amount, unit


class FromText:
    """Lets pydantic read the class from its text and write it back as text."""

    @classmethod
    def parse(cls, text: str) -> Any:
        raise TypeError

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        """Return what editors check: a text with a unit, or a whole number."""
        return {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*([0-9]|all)"},
                {"type": "integer", "minimum": 1, "maximum": MOST},
            ]
        }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def validate(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise ValueError(f"{value!r} needs a unit")
            return cls.parse(str(value))

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


@dataclass(frozen=True)
class Budget(FromText):
    """How much training may cost.

    >>> Budget.parse("10min").seconds
    600.0
    >>> str(Budget.parse("50Mtok")), Budget.parse("90").seconds
    ('50Mtok', 90.0)
    """

    amount: float
    unit: BudgetUnit
    text: str

    @classmethod
    def parse(cls, text: str) -> Budget:
        if text.strip().isdecimal():
            text = f"{text.strip()}s"
        amount, unit = _parse_amount(text, _BUDGET_UNITS, "600s, 10min, 50Mtok, 2000steps or 1e17flops")
        return cls(amount, unit, text.strip())

    @property
    def seconds(self) -> float | None:
        """The allowed time; None for a budget in another unit."""
        return self.amount if self.unit == "seconds" else None

    def share(self, fraction: float) -> Budget:
        """Return a fraction of this budget, in the same unit."""
        amount = self.amount * fraction
        return Budget(amount, self.unit, f"{amount:.10g}{_SHORT_UNIT[self.unit]}")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SizeBudget(FromText):
    """How much text may be selected: bytes of text, a number of passages or a share of the corpus.

    >>> SizeBudget.parse("5%").amount
    0.05
    >>> SizeBudget.parse("5%, at least 20MB").bytes_of(corpus_bytes=1e8)
    20000000.0
    """

    amount: float
    unit: SizeUnit
    text: str
    at_least: float = 0.0
    """Bytes that a share of the corpus is raised to."""

    @classmethod
    def parse(cls, text: str) -> SizeBudget:
        share, comma, least = text.partition(", at least ")
        amount, unit = _parse_amount(share, _SIZE_UNITS, "300MB, 50000passages, 5% or 20%retrieved")
        if comma:
            minimum = cls.parse(least)
            if unit != "share" or minimum.unit != "bytes":
                raise ValueError(f"{text!r}: only a share of the corpus has a minimum, such as `5%, at least 20MB`")
            return cls(amount, unit, text.strip(), minimum.amount)
        if unit in ("share", "retrieved") and amount > 1:
            whole = "the whole corpus" if unit == "share" else "all that is retrieved"
            raise ValueError(f"{text!r} is more than {whole}")
        return cls(amount, unit, text.strip())

    def bytes_of(self, corpus_bytes: float) -> float:
        """Return the bytes that a budget in bytes, or a share of a corpus of this size, allows."""
        return self.amount if self.unit == "bytes" else max(self.amount * corpus_bytes, self.at_least)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class BatchSize:
    """How much a batch holds: a plain number of texts, as in the papers, or an amount of tokens.

    >>> BatchSize.parse("32ktok").amount, BatchSize.parse("256").unit
    (32000, 'texts')
    """

    amount: int
    unit: BatchUnit

    @classmethod
    def parse(cls, value: str | int) -> BatchSize:
        text = str(value).strip()
        if text.isdecimal():
            if int(text) == 0:
                raise ValueError(f"{text} must be more than zero")
            text += "texts"
        amount, unit = _parse_amount(text, _BATCH_UNITS, "32 or 4096tok", MOST)
        if amount != int(amount):
            raise ValueError(f"{text!r} is not a whole number")
        return cls(int(amount), unit)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def validate(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise ValueError(f"{value!r} is neither a number of texts nor an amount like 4096tok")
            return cls.parse(value)

        return core_schema.no_info_plain_validator_function(
            validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda size: size.amount if size.unit == "texts" else str(size)
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        """Return what editors check: a number, or a text with a unit."""
        return {
            "anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST}, {"type": "string", "pattern": r"^\s*[0-9]"}]
        }

    def __str__(self) -> str:
        return str(self.amount) if self.unit == "texts" else f"{self.amount}tok"


_TIMES = re.compile(r"([0-9]*\.?[0-9]+)\s*x")
_DRAW_EXAMPLES = "10x (as many passages as ten times the train rows), 300MB, 50000passages, 5% or all"


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
        """Return the amount that a setting such as `10x` or `300MB` means."""
        if text.strip() == "all":
            return cls(1.0, "share", "all")
        if (times := _TIMES.fullmatch(text.strip())) and 0 < float(times[1]) <= MOST:
            return cls(float(times[1]), "times", text.strip())
        try:
            size = SizeBudget.parse(text)
        except ValueError:
            size = None
        if size is None or size.unit == "retrieved":
            raise ValueError(f"{text!r} is not an amount of text; write it like {_DRAW_EXAMPLES}")
        return cls(size.amount, size.unit, size.text)

    def budget(self, train_rows: int) -> SizeBudget | None:
        """Return the amount of text for so many train rows; None: all text.

        >>> TextAmount.parse("10x").budget(train_rows=500).amount
        5000.0
        """
        if self.unit == "times":
            return SizeBudget(float(max(1, round(self.amount * train_rows))), "passages", self.text)
        if self.unit == "share" and self.amount == 1:
            return None
        return SizeBudget(self.amount, self.unit, self.text)

    def in_words(self, train_rows: int) -> str:
        """Return the requested amount in words, for a warning where there is less.

        >>> TextAmount.parse("10x").in_words(train_rows=300)
        '10x of train would be 3,000'
        >>> TextAmount.parse("300MB").in_words(train_rows=300)
        '300MB were requested'
        """
        budget = self.budget(train_rows)
        if self.unit == "times" and budget is not None:
            return f"{self} of train would be {int(budget.amount):,}"
        return f"{self} were requested"

    def __str__(self) -> str:
        return self.text
